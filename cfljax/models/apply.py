"""A network of any kind (flax.linen, flax.nnx or a pair of functions) as two functions: `init` and `apply`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from cfljax.errors import SpecError
from cfljax.keys import fold
from cfljax.lazy import jax, jnp
from cfljax.types import Array, Tree

if TYPE_CHECKING:
    from flax import linen, nnx

    Network = linen.Module | Callable[[nnx.Rngs], nnx.Module] | tuple[Callable[[Array], Tree], Callable[..., Array]]
    """A linen module, a class or factory of nnx modules, or a pair `init(key) -> params`, `apply(params, x[, key]) -> logits`."""


Apply = Callable[[Tree, Array, Array | None], Array]
"""(params, x f32[B, ...], key) -> logits f32[B, outputs]. The key draws dropout; None outside of training."""
Functions = tuple[Callable[[Array], Tree], Apply]
"""(init: key -> params, apply) of a network that has no state besides its parameters."""


def to_functions(network: Network, sample: jax.ShapeDtypeStruct, name: str) -> Functions:
    """Convert a network to functions. `sample` has the shape of a batch with one sample; `name` is for errors."""
    if isinstance(network, tuple) and len(network) == 2 and all(callable(part) for part in network):
        init, pair = network
        takes_key = len(inspect.signature(pair).parameters) > 2
        return init, pair if takes_key else lambda params, x, key: pair(params, x)  # noqa: ARG005
    from flax import linen

    if isinstance(network, linen.Module):
        return _wrap_linen(network, sample, name)
    if callable(network) and not (isinstance(network, type) and issubclass(network, linen.Module)):
        return _wrap_nnx(cast("Callable[[nnx.Rngs], nnx.Module]", network), name)
    wanted = "a flax.linen module, a class or factory of flax.nnx modules, or a pair (init, apply)"
    raise SpecError(f'model "{name}": {network!r:.60}: must be {wanted}')


def _training_argument(call: Callable[..., object], training: bool) -> dict[str, bool]:
    """Return the keyword argument that says whether a module trains (`deterministic`, `train` or `training`); {} if it has none."""
    names = inspect.signature(call).parameters
    if "deterministic" in names:
        return {"deterministic": not training}
    return {word: training for word in ("train", "training") if word in names}


def _wrap_linen(module: linen.Module, sample: jax.ShapeDtypeStruct, name: str) -> Functions:
    arguments = {training: _training_argument(type(module).__call__, training) for training in (False, True)}
    draw: Callable[..., Tree] = module.init
    compute: Callable[..., Tree] = module.apply

    def variables(key: Array) -> Tree:
        return draw({"params": key, "dropout": key}, jnp.zeros(sample.shape, sample.dtype), **arguments[False])

    shapes = jax.eval_shape(lambda: variables(jax.random.key(0)))  # traced, so that nothing is compiled for it
    extra = [kind for kind in shapes if kind != "params"]
    if extra:
        raise SpecError(f'model "{name}" keeps state besides its parameters ({", ".join(extra)}): use GroupNorm or LayerNorm')

    def apply(params: Tree, x: Array, key: Array | None) -> Array:
        if key is None:
            return compute({"params": params}, x, **arguments[False])
        with jax.threefry_partitionable(True):  # otherwise the padding of a batch would change the masks of its samples
            return compute({"params": params}, x, rngs={"dropout": fold(key, "dropout")}, **arguments[True])

    return lambda key: variables(key).get("params", {}), apply


def _wrap_nnx(factory: Callable[[nnx.Rngs], nnx.Module], name: str) -> Functions:
    from flax import nnx

    def parts(key: Array) -> Tree:
        module = factory(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise TypeError(f"it returned {module!r:.40}")
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    try:
        graph, _, streams, extra = jax.eval_shape(lambda: parts(jax.random.key(0)))
    except TypeError as error:
        reason = str(error).split("\n")[0]
        raise SpecError(f'model "{name}": must be callable as factory(rngs) and return a flax.nnx module: {reason}') from error
    if jax.tree.leaves(extra):
        raise SpecError(f'model "{name}" keeps state besides its parameters (batch statistics?): use GroupNorm or LayerNorm')

    def apply(params: Tree, x: Array, key: Array | None) -> Array:
        training = key is not None
        module = nnx.merge(graph, params, _seed_streams(streams, key), copy=True)  # a copy: variables belong to one trace
        module.set_attributes(deterministic=not training, use_running_average=not training, raise_if_not_found=False)
        with jax.threefry_partitionable(True):  # as above
            return module(x, **_training_argument(type(module).__call__, training))

    return lambda key: parts(key)[1], apply


def _seed_streams(shapes: Tree, key: Array | None) -> Tree:
    """Return the states of the random streams of an nnx module, each with a different key."""
    leaves, tree = jax.tree.flatten(shapes)
    key = jax.random.key(0) if key is None else key
    fresh = [
        fold(key, "dropout", number) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else jnp.zeros(leaf.shape, leaf.dtype)
        for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(tree, fresh)
