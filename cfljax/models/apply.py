"""Networks of every kind as two functions: init(key) -> params, apply(params, x, key or None) -> logits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.errors import SpecError
from cfljax.keys import fold


class Functions(NamedTuple):
    """A network without state besides its parameters."""

    init: Callable[[jax.Array], Any]
    """key -> params."""
    apply: Callable[[Any, jax.Array, jax.Array | None], jax.Array]
    """(params, x f32[B, ...], key or None) -> logits f32[B, outputs]."""


def functions_of(network: Any, sample: jax.ShapeDtypeStruct, name: str) -> Functions:
    """The functions of a linen module, an nnx factory or a pair; `sample`: the shape of a batch of one."""
    if isinstance(network, tuple) and len(network) == 2 and all(callable(part) for part in network):
        return _pair(*network)
    from flax import linen

    if isinstance(network, linen.Module):
        return _linen(network, sample, name)
    if callable(network) and not (isinstance(network, type) and issubclass(network, linen.Module)):
        return _nnx(network, name)
    wanted = "a flax.linen module, a class or factory of flax.nnx modules, or a pair (init, apply)"
    raise SpecError(f'model "{name}": {network!r:.60}: must be {wanted}')


def _pair(init: Callable, apply: Callable) -> Functions:
    takes_key = len(inspect.signature(apply).parameters) > 2
    return Functions(init, apply if takes_key else lambda params, x, key: apply(params, x))  # noqa: ARG005


def _training_words(call: Callable, training: bool) -> dict[str, bool]:
    """The argument by which a module learns whether it trains, if it has one."""
    names = inspect.signature(call).parameters
    if "deterministic" in names:
        return {"deterministic": not training}
    return {word: training for word in ("train", "training") if word in names}


def _linen(module: Any, sample: jax.ShapeDtypeStruct, name: str) -> Functions:
    words = {training: _training_words(type(module).__call__, training) for training in (False, True)}

    def variables(key: jax.Array) -> Any:
        return module.init({"params": key, "dropout": key}, jnp.zeros(sample.shape, sample.dtype), **words[False])

    shapes = jax.eval_shape(variables, jax.random.key(0))
    extra = [kind for kind in shapes if kind != "params"]
    if extra:
        raise SpecError(f'model "{name}" keeps state besides its parameters ({", ".join(extra)}): use GroupNorm or LayerNorm')

    def apply(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        if key is None:
            return module.apply({"params": params}, x, **words[False])
        with jax.threefry_partitionable(True):  # else the masks of real samples would change with the batch's padding
            return module.apply({"params": params}, x, rngs={"dropout": fold(key, "dropout")}, **words[True])

    return Functions(lambda key: variables(key).get("params", {}), apply)


def _nnx(factory: Callable, name: str) -> Functions:
    from flax import nnx

    def parts(key: jax.Array) -> Any:
        module = factory(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise TypeError(f"it returned {module!r:.40}")
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    try:
        graph, _, streams, extra = jax.eval_shape(parts, jax.random.key(0))
    except TypeError as error:
        reason = str(error).split("\n")[0]
        raise SpecError(f'model "{name}": must be callable as factory(rngs) and return a flax.nnx module: {reason}') from error
    if jax.tree.leaves(extra):
        raise SpecError(f'model "{name}" keeps state besides its parameters (batch statistics?): use GroupNorm or LayerNorm')

    def apply(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        training = key is not None
        module = nnx.merge(graph, params, _streams(streams, key), copy=True)  # a copy: variables belong to one trace
        module.set_attributes(deterministic=not training, use_running_average=not training, raise_if_not_found=False)
        with jax.threefry_partitionable(True):  # as above
            return module(x, **_training_words(type(module).__call__, training))

    return Functions(lambda key: parts(key)[1], apply)


def _streams(shapes: Any, key: jax.Array | None) -> Any:
    """The random streams of an nnx module, each with a key of its own."""
    leaves, tree = jax.tree.flatten(shapes)
    key = jax.random.key(0) if key is None else key
    fresh = [
        fold(key, "dropout", number) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else jnp.zeros(leaf.shape, leaf.dtype)
        for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(tree, fresh)
