"""Multinomial logistic regression and multi-layer perceptrons."""

from __future__ import annotations

import dataclasses

import jax

from cfljax.models.flat import FirstDense, Net
from cfljax.models.starts import HELP, STARTS, start
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Tree


@dataclasses.dataclass(frozen=True)
class MCLROptions:
    """Options of `mclr`."""

    init: str = option("lecun", HELP + "; or zeros", choices=(*STARTS, "zeros"))


@dataclasses.dataclass(frozen=True)
class MLPOptions:
    """Options of `mlp`."""

    hidden: tuple[int, ...] = option((200,), "widths of the hidden layers", low=1)
    init: str = option("lecun", HELP, choices=STARTS)


def make_mclr(options: MCLROptions, sample_shape: tuple[int, ...], classes: int) -> Net:  # noqa: ARG001
    """Multinomial logistic regression."""
    return _net((), options.init, classes)


def make_mlp(options: MLPOptions, sample_shape: tuple[int, ...], classes: int) -> Net:  # noqa: ARG001
    """Multi-layer perceptron with ReLU."""
    return _net(options.hidden, options.init, classes)


def _net(hidden: tuple[int, ...], init: str, classes: int) -> Net:
    from cfljax.models.nets import Dense

    def rest(params: Tree, z: jax.Array) -> jax.Array:
        for number in range(1, len(hidden) + 1):
            layer = params[f"dense_{number}"]
            z = jax.nn.relu(z) @ layer["kernel"] + layer["bias"]
        return z

    first = FirstDense(("dense_0", "kernel"), ("dense_0", "bias"), rest)
    return Net(Dense(hidden, classes), start=start(init), first=first)


MCLR = Entry(MCLROptions, make_mclr)
MLP = Entry(MLPOptions, make_mlp)
