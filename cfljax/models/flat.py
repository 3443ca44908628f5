"""From a network to a `types.Model`: flat float32 vectors outside, the network's own tree of parameters inside."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.errors import SpecError
from cfljax.models.apply import Functions, functions_of
from cfljax.types import Model


class FirstDense(NamedTuple):
    """A model whose first layer is dense: logits = rest(params, x.reshape(B, -1) @ kernel + bias)."""

    kernel: tuple[str, ...]
    """Keys that lead to the kernel f32[inputs, h] in the unravelled parameters."""
    bias: tuple[str, ...]
    """Keys that lead to the bias f32[h]."""
    rest: Callable[[Any, jax.Array], jax.Array]
    """(params, f32[B, h] what the first layer gives) -> logits f32[B, outputs]."""


class Net(NamedTuple):
    """What a registry entry may return in place of a bare network: the network, and what belongs to it."""

    network: Any
    """A flax.linen module, a factory of flax.nnx modules, or a pair of functions (init, apply)."""
    start: Callable[[jax.Array, Any], Any] | None = None
    """(key, tree of shapes) -> params; None: as the network draws them."""
    loss: str = "softmax"
    """"softmax": one logit per class; "sigmoid": one logit, two classes."""
    training: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    """(key, x f32[B, ...]) -> x as the network sees it in training (crops, flips)."""
    evaluation: Callable[[jax.Array], jax.Array] | None = None
    """x f32[B, ...] -> x as the network sees it outside of training, of the same shape."""
    penalty: Callable[[Any], jax.Array] | None = None
    """params -> f32[]."""
    first: FirstDense | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """`Model.forward`: prepares x, and applies the network. A key means training."""

    apply: Callable[[Any, jax.Array, jax.Array | None], jax.Array]
    net: Net

    def __call__(self, params: Any, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """(params, x f32[B, ...], key=None) -> logits f32[B, outputs]."""
        if key is not None and self.net.training is not None:
            x = self.net.training(key, x)
        elif key is None and self.net.evaluation is not None:
            x = self.net.evaluation(x)
        return self.apply(params, x, key)


def from_module(module: Any, sample_shape: tuple[int, ...], classes: int, *, loss: str = "softmax", name: str = "own") -> Model:
    """A model of the user's own: a flax.linen module, a flax.nnx module class or factory (called with an `nnx.Rngs`), or a
    pair of functions `init(key) -> params`, `apply(params, x f32[B, ...][, key]) -> logits f32[B, outputs]`, whose key is
    None outside of training. A module is told that it trains through the argument `train`, `training` or
    `deterministic` if it has one."""
    return as_model(name, Net(module, loss=loss), sample_shape, classes)


def as_model(name: str, network: Any, sample_shape: tuple[int, ...], classes: int) -> Model:
    """The network (or Net) as functions of flat vectors. Shapes are evaluated, nothing is allocated."""
    net = network if isinstance(network, Net) else Net(network)
    if net.loss not in ("softmax", "sigmoid"):
        raise SpecError(f'model "{name}": loss = "{net.loss}": must be "softmax" or "sigmoid"')
    sample = jax.ShapeDtypeStruct((1, *sample_shape), jnp.float32)
    if net.evaluation is not None:
        sample = jax.eval_shape(net.evaluation, sample)
    functions, shapes, logits = _shapes(name, net.network, sample)
    _check_outputs(name, logits, classes, net.loss)
    size, ravel, unravel = flattening(name, shapes)
    start = net.start
    draw = functions.init if start is None else lambda key: start(key, shapes)
    loss, correct = _softmax() if net.loss == "softmax" else _sigmoid()
    return Model(
        name=name,
        size=size,
        init=jax.jit(lambda key: ravel(draw(key))),
        unravel=unravel,
        ravel=ravel,
        forward=Forward(functions.apply, net),
        loss=loss,
        correct=correct,
        penalty=net.penalty,
    )


def first_dense(model: Model) -> FirstDense | None:
    """The model's first layer where it is dense, for solvers that work on its Gram matrix; else None."""
    return model.forward.net.first if isinstance(model.forward, Forward) else None


def flattening(name: str, shapes: Any) -> tuple[int, Callable[[Any], jax.Array], Callable[[jax.Array], Any]]:
    """d, ravel (params -> f32[d]) and unravel (f32[d] -> params) for a tree of shapes, in `ravel_pytree`'s order. Unlike
    that function's, this unravel needs no parameters to be made from and takes float64, too."""
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    for path, leaf in paths:
        if leaf.dtype != jnp.float32:
            where = jax.tree_util.keystr(path)
            raise SpecError(f'model "{name}": parameter {where} is {leaf.dtype}: parameters are float32 (compute in another dtype)')
    forms = [leaf.shape for _, leaf in paths]
    sizes = [math.prod(form) for form in forms]
    if not sum(sizes):
        raise SpecError(f'model "{name}" has no parameters: give it at least one layer to train')

    if sum(sizes) >= 2**31:
        raise SpecError(f'model "{name}" has {sum(sizes):,} parameters; at most 2,147,483,647')

    def ravel(params: Any) -> jax.Array:
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])

    def unravel(flat: jax.Array) -> Any:
        parts = jax.lax.split(flat, sizes)  # its transpose is one concatenation, not a sum of padded vectors
        return jax.tree.unflatten(tree, [part.reshape(form) for part, form in zip(parts, forms, strict=True)])

    return sum(sizes), ravel, unravel


def _shapes(name: str, network: Any, sample: jax.ShapeDtypeStruct) -> tuple[Functions, Any, Any]:
    """The network's functions, and the shapes of its parameters and of its output for one sample."""
    try:
        functions = functions_of(network, sample, name)
        shapes = jax.eval_shape(functions.init, jax.random.key(0))
        return functions, shapes, jax.eval_shape(lambda params, x: functions.apply(params, x, None), shapes, sample)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: flax's own
        reason = str(error).strip().split("\n")[0]
        raise SpecError(f'model "{name}" cannot take samples of shape {sample.shape[1:]}: {reason}') from error


def _check_outputs(name: str, logits: Any, classes: int, loss: str) -> None:
    wanted = (1, 1) if loss == "sigmoid" else (1, classes)
    if getattr(logits, "shape", None) != wanted:
        got = getattr(logits, "shape", type(logits).__name__)
        need = f'must be {wanted} for {classes} classes with loss "{loss}"'
        raise SpecError(f'model "{name}": the output for one sample is {got}: {need}')


def _softmax() -> tuple[Callable, Callable]:
    import optax

    def loss(logits: jax.Array, y: jax.Array) -> jax.Array:
        # one-hot labels, not a gather: its gradient is a scatter, and a label out of range would make a NaN
        wanted = jax.nn.one_hot(y, logits.shape[-1], dtype=jnp.float32)
        return optax.softmax_cross_entropy(logits.astype(_real(logits)), wanted)

    return loss, lambda logits, y: jnp.argmax(logits, axis=-1) == y


def _sigmoid() -> tuple[Callable, Callable]:
    import optax

    def loss(logits: jax.Array, y: jax.Array) -> jax.Array:
        logit = logits[..., 0].astype(_real(logits))
        return optax.sigmoid_binary_cross_entropy(logit, y.astype(logit.dtype))

    return loss, lambda logits, y: (logits[..., 0] > 0) == (y > 0)


def _real(logits: jax.Array) -> Any:
    """float32, or float64 where the caller computes in that."""
    return jnp.promote_types(logits.dtype, jnp.float32)
