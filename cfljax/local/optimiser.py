"""The rules by which local training moves a client's parameters."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from cfljax.types import Array, LocalStep, Tree


class Start(Protocol):
    """Makes the optimiser's state before the first step."""

    def __call__(self, params: Tree, velocity: Tree | None, /) -> Tree:
        """`velocity`: momentum buffers to begin with; None: zero."""


class Move(Protocol):
    """Takes one step."""

    def __call__(self, grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        """(parameters, state) after the step."""


class StepRule(NamedTuple):
    """An optimiser for one client. Its state starts anew each time that the client trains."""

    init: Start
    step: Move


def sgd(numbers: LocalStep) -> StepRule:
    """u ← momentum · u + g; w ← w − lr · u. Without momentum there is no buffer at all."""
    lr, momentum = numbers.lr, numbers.momentum

    def init(params: Tree, velocity: Tree | None) -> Tree:
        if momentum is None:
            return ()
        return jax.tree.map(jnp.zeros_like, params) if velocity is None else velocity

    def step(grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        if momentum is not None:
            state = grads = jax.tree.map(lambda u, g: momentum * u + g, state, grads)
        return jax.tree.map(lambda w, u: w - lr * u, params, grads), state

    return StepRule(init, step)


def from_optax(name: str, arguments: dict[str, object], lr: Array) -> StepRule:
    """An optimiser of optax by its name; the learning rate is traced."""
    import optax

    transform = getattr(optax, name)(lr, **arguments)

    def step(grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return StepRule(lambda params, _: transform.init(params), step)
