"""What a step of the kernel of `chip` computes, as functions of arrays that are on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cfljax.lazy import jax, jnp
from cfljax.local.fitting import Form
from cfljax.types import Array

LOW = -1e30
"""The logit of a class that there is not."""
LABEL, PLACE, WEIGHT = range(3)
"""What stands in the columns of a sample's facts."""
Tally = tuple[Array, ...]
Moved = tuple[Array, Array | None]
"""(parameters, their momentum buffer)."""


class Numbers(NamedTuple):
    """f32[] each, as in `LocalStep`."""

    lr: Array
    momentum: Array
    mu: Array
    decay: Array


def forward(params: Sequence[Array], z: Array) -> list[Array]:
    """The outputs of all layers, from those of the first f32[B, h]."""
    outputs = [z]
    for kernel, bias in zip(params[1::2], params[2::2], strict=True):
        outputs.append(dot(jnp.maximum(outputs[-1], 0.0), kernel) + bias)
    return outputs


def losses_of(form: Form, logits: Array, labels: Array) -> tuple[Array, Array]:
    """(f32[B, 1] the losses, f32[B, c] their gradients by the logits). `labels`: f32[B, 1]."""
    column = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    logits = jnp.where(column < form.classes, logits, LOW)
    most = jnp.max(logits, axis=1, keepdims=True)
    powers = jnp.exp(logits - most)
    total = jnp.sum(powers, axis=1, keepdims=True)
    wanted = column.astype(jnp.float32) == labels
    losses = jnp.sum(jnp.where(wanted, most + jnp.log(total) - logits, 0.0), axis=1, keepdims=True)
    return losses, powers / total - wanted.astype(jnp.float32)


def backward(params: Sequence[Array], outputs: list[Array], dz: Array) -> tuple[Array, list[Array]]:
    """(f32[B, h] the gradient by the outputs of the first layer, the gradients by `params`), from that by the last outputs."""
    grads: list[Array] = []
    for kernel, z in zip(params[-2:0:-2], outputs[-2::-1], strict=True):
        grads = [dot(jnp.maximum(z, 0.0), dz, turned=True), jnp.sum(dz, axis=0, keepdims=True), *grads]
        dz = jnp.where(z > 0, dot(dz, kernel, across=True), 0.0)
    return dz, [jnp.sum(dz, axis=0, keepdims=True), *grads]


def spread(form: Form, facts: Array, here: Array, begin: int, width: int) -> Array:
    """f32[B, width]: in each row a one at the place of its sample, of the places from `begin` on."""
    places = begin + jax.lax.broadcasted_iota(jnp.int32, (form.seen, width), 1)
    return jnp.where(here & (places.astype(jnp.float32) == column(facts, PLACE)), 1.0, 0.0)


def move(
    form: Form, numbers: Numbers, d: Array, u: Array | None, back: Array, moved: Tally, speed: Tally
) -> tuple[Moved, Tally, Tally]:
    """((D, its momentum buffer), moved, speed) after a step: `gram._move`."""
    shrink = numbers.mu * form.mu + numbers.decay * form.decay
    pulls, one = form.mu or form.decay, (1.0, 0.0)
    if u is None:
        kept = 1 - numbers.lr * shrink
        d = kept * d + numbers.lr * back if pulls else d + numbers.lr * back
        return (d, None), tuple(kept * m + numbers.lr * c for m, c in zip(moved, one, strict=True)), speed
    u = numbers.momentum * u + back - shrink * d if pulls else numbers.momentum * u + back
    speed = tuple(numbers.momentum * s + c - shrink * m for s, c, m in zip(speed, one, moved, strict=True))
    return (d + numbers.lr * u, u), tuple(m + numbers.lr * s for m, s in zip(moved, speed, strict=True)), speed


def descended(form: Form, numbers: Numbers, w: Array, u: Array | None, anchor: Array, grad: Array) -> Moved:
    """(parameters, their momentum buffer) after a step."""
    if form.mu:
        grad = grad + numbers.mu * (w - anchor)
    if form.decay:
        grad = grad + numbers.decay * w
    if u is not None:
        u = grad = numbers.momentum * u + grad
    return w - numbers.lr * grad, u


def column(facts: Array, place: int) -> Array:
    """f32[B, 1]: a column of the facts; a slice of lanes is not to be had everywhere."""
    columns = jax.lax.broadcasted_iota(jnp.int32, facts.shape, 1)
    return jnp.sum(jnp.where(columns == place, facts, 0.0), axis=1, keepdims=True)


def rows_of(length: int) -> Array:
    """i32[length, 1]: 0, 1, …"""
    return jax.lax.broadcasted_iota(jnp.int32, (length, 1), 0)


def dot(a: Array, b: Array, turned: bool = False, across: bool = False) -> Array:
    """a b; aᵀ b if `turned`; a bᵀ if `across`."""
    dims = (((0 if turned else 1,), (1 if across else 0,)), ((), ()))
    return jax.lax.dot_general(a, b, dims, preferred_element_type=jnp.float32)
