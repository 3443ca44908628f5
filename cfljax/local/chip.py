"""A client's whole local training as one kernel of an accelerator, a program per client: no step starts a kernel, waits for another
client, or returns to the host. For a chain of dense layers (`mclr`, `mlp`) and plain SGD.

The first kernel is W_0 − D during training, and D alone changes. A step reads from each of its samples a row f of numbers and the
outputs z_0 = x W_0 at the start: the outputs now are z_0 − f D. By steps f is the sample x itself, and the step adds xᵀ · dz to D
(dz: the gradient by these outputs). In Gram form (see `gram`) f is the sample's row of the Gram matrix, D has a row per sample, and
the step adds dz to the rows of its samples. What pulls all of W (`Fixed.along` of `gram`) is two numbers besides D.

One description for both compilers of Pallas, Mosaic (TPU) and Triton (GPU), which differ in three things:

- Sizes: a TPU has tiles of 8 × 128, Triton powers of two of at least 16. What is beyond a client's own sizes is zero.
- Rows: a TPU copies the rows of a step one by one, since its positions are numbers of the scalar unit; Triton gathers them.
- State: on a TPU it stays in the kernel's results, on Triton it is carried through the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from cfljax.local.fitting import Form
from cfljax.types import Array

LOW = -1e30
"""The logit of a class that there is not."""
FACTS, F, ALONG = range(3)
"""The order of `Refs.rows`."""
LABEL, PLACE, WEIGHT = range(3)
"""What stands in the columns of a sample's facts."""
LR, MOMENTUM, MU, DECAY = range(4)
"""What stands in the numbers of a step."""
COUNT, TOTAL, PER_EPOCH, WIDTH = range(4)
"""What stands in the counts of a client; WIDTH: the length of an epoch's order."""
UNROLLED = 16
"""Up to this number of rows are copied without a loop."""
LOSS, MOVED, SPEED, WHICH = 0, 1, 3, 5
"""What stands in the tally: the sum of losses, two factors each, the model that it started from."""


class Refs(NamedTuple):
    """The kernel's arguments, results and scratch."""

    numbers: Any
    """f32[1, 4]."""
    counts: Any
    """i32[1, 4]."""
    order: Any
    """i32[1, T]: the orders of all epochs, one after another."""
    z: Any
    """f32[K · n, h]: the outputs of the first layer at the start, of each model, without the bias."""
    rows: Sequence[Any]
    """What a step reads of its samples: facts f32[n, lanes], f f32[n, m], and where needed X · anchor and X V f32[n, h]."""
    start: Sequence[Any]
    """All parameters but the first kernel, [K · r, c] each: bias, kernel, bias, …"""
    anchor: Sequence[Any]
    velocity: Sequence[Any]
    state: Sequence[Any]
    """Results: D f32[m, h], the parameters `start` after training, and with momentum the buffers of each."""
    tally: Any
    """f32[8, lanes]: in its first row the numbers after training."""
    scratch: Sequence[Any]
    """On a TPU: a step's rows, and its z."""


Tally = tuple[Array, ...]
Piece = Callable[[int], Array]
"""(index in `Refs.rows`) -> these rows of the samples that a step sees."""


def kernel(form: Form, refs: Refs) -> None:
    """Trains one client."""
    which = _choose(form, refs) if form.models > 1 else jnp.int32(0)
    begin = [_of_model(ref, which, form.models) for ref in refs.start]
    anchor = [ref[...] for ref in refs.anchor] if form.anchored else begin
    states = [jnp.zeros((form.across, form.widths[0]), jnp.float32), *begin]
    if form.momentum:
        states += [jnp.zeros_like(states[0]), *([ref[...] for ref in refs.velocity] or map(jnp.zeros_like, begin))]
    zero, one = jnp.float32(0), jnp.float32(1)

    def step(number: Array, states: Sequence[Array], tally: Tally) -> tuple[list[Array], Tally]:
        return _step(form, refs, which, anchor, number, states, tally)

    tally = _all_steps(form, refs, step, states, (zero, zero, zero, zero, one))
    column = jax.lax.broadcasted_iota(jnp.int32, refs.tally.shape, 1)
    told = (*tally, which.astype(jnp.float32))
    refs.tally[...] = sum((jnp.where(column == place, value, 0.0) for place, value in enumerate(told)), start=jnp.float32(0))


def _all_steps(form: Form, refs: Refs, step: Callable[..., tuple[list[Array], Tally]], states: list[Array], tally: Tally) -> Tally:
    """The tally after all steps of the client; the states are then in `refs.state`."""

    def write(states: Sequence[Array]) -> None:
        for ref, value in zip(refs.state, states, strict=True):
            ref[...] = value

    def turn(number: Array, tally: Tally) -> Tally:
        states, tally = step(number, [ref[...] for ref in refs.state], tally)
        write(states)
        return tally

    total = refs.counts[0, TOTAL]
    if form.dialect == "tpu":
        write(states)
        return jax.lax.fori_loop(0, total, turn, tally)
    states, tally = jax.lax.fori_loop(0, total, lambda number, at: step(number, *at), (states, tally))
    write(states)
    return tally


def _of_model(ref: Any, which: Array, models: int) -> Array:
    """The rows of a model in an array that has those of all."""
    rows = ref.shape[0] // models
    return ref[...] if models == 1 else ref[pl.ds(pl.multiple_of(which * rows, rows), rows), :]


def _choose(form: Form, refs: Refs) -> Array:
    """i32[]: the model with the least loss on all samples of the client, as `kernels.choose.least_loss` has it."""
    facts = refs.rows[FACTS][...]
    here = _numbers(form.rows) < refs.counts[0, COUNT]
    best, which = jnp.float32(jnp.nan), jnp.int32(0)
    for k in range(form.models):
        at = jnp.int32(k)
        params = [_of_model(ref, at, form.models) for ref in refs.start]
        logits = _forward(params, _of_model(refs.z, at, form.models) + params[0])[-1]
        loss = jnp.sum(jnp.where(here, _losses(form, logits, _column(facts, LABEL))[0], 0.0))
        better = (loss < best) | ((best != best) & (loss == loss))
        best, which = jnp.where(better, loss, best), jnp.where(better, at, which)
    return which


def _step(
    form: Form, refs: Refs, which: Array, anchor: list[Array], number: Array, states: Sequence[Array], tally: Tally
) -> tuple[list[Array], Tally]:
    """States and tally after a step."""
    loss, moved, speed = tally[LOSS], tally[MOVED:SPEED], tally[SPEED:]
    params, half = states[1 : 1 + len(refs.start)], 1 + len(refs.start)
    piece, z, left = _look(form, refs, which, number)
    numbers = Numbers(*(refs.numbers[0, place] for place in range(4)))
    facts, f = piece(FACTS), piece(F)
    z = _now(form, numbers, piece, z, moved) - _dot(f, states[0]) + params[0]
    outputs = _forward(params, z)
    losses, dz = _losses(form, outputs[-1], _column(facts, LABEL))
    here, weight = _numbers(form.seen) < left, _column(facts, WEIGHT)
    mean = 1.0 if form.summed else 1 / jnp.maximum(left.astype(jnp.float32), 1.0)
    dz, grads = _backward(params, outputs, jnp.where(here, weight * mean * dz, 0.0))
    back = dz if form.gram and form.batch is None else _dot(_spread(form, facts, here) if form.gram else f, dz, turned=True)
    loss = loss + jnp.sum(jnp.where(here, weight * losses, 0.0))
    buffers = states[half:] if form.momentum else [None] * half
    d, moved, speed = _move(form, numbers, states[0], buffers[0], back, moved, speed)
    after = [d, *(_moved(form, numbers, *each) for each in zip(params, buffers[1:], anchor, grads, strict=True))]
    return [w for w, _ in after] + [u for _, u in after if u is not None], (loss, *moved, *speed)


class Numbers(NamedTuple):
    """f32[] each, as in `LocalStep`."""

    lr: Array
    momentum: Array
    mu: Array
    decay: Array


def _look(form: Form, refs: Refs, which: Array, number: Array) -> tuple[Piece, Array, Array]:
    """What a step sees: its samples' rows, their z f32[B, h], and the number i32[] of its samples."""
    count = refs.counts[0, COUNT]
    if form.batch is None:
        return (lambda of: refs.rows[of][...]), _of_model(refs.z, which, form.models), count
    epoch = jax.lax.div(number, refs.counts[0, PER_EPOCH])
    done = (number - epoch * refs.counts[0, PER_EPOCH]) * form.batch
    begin, left = epoch * refs.counts[0, WIDTH] + done, jnp.minimum(count - done, form.batch)
    if form.dialect == "gpu":
        where = refs.order[0, pl.ds(begin, form.seen)]
        return (lambda of: refs.rows[of][where, :]), refs.z[which * form.rows + where, :], left
    *rows, z = refs.scratch

    def copy(j: Any, _: Any) -> None:
        place = refs.order[0, begin + j]
        for to, whole in zip(rows, refs.rows, strict=True):
            to[pl.ds(j, 1), :] = whole[pl.ds(place, 1), :]
        z[pl.ds(j, 1), :] = refs.z[pl.ds(which * form.rows + place, 1), :]

    if form.seen <= UNROLLED:
        for j in range(form.seen):
            copy(j, None)
    else:
        jax.lax.fori_loop(0, form.seen, copy, None)
    return (lambda of: rows[of][...]), z[...], left


def _now(form: Form, numbers: Numbers, piece: Piece, z: Array, moved: Tally) -> Array:
    """f32[B, h]: the outputs of the first kernel by all that has moved it but D: `gram.Fixed.along`. Q needs no rows of its own,
    where z are those of the start, and samples have those of the anchor."""
    anchored, begun = form.along
    at = z
    if form.decay:
        z = z - moved[0] * numbers.decay * at
    if anchored:
        z = z - moved[0] * numbers.mu * (at - piece(ALONG))
    if begun:
        z = z - moved[1] * piece(ALONG + anchored)
    return z


def _forward(params: Sequence[Array], z: Array) -> list[Array]:
    """The outputs of all layers, from those of the first f32[B, h]."""
    outputs = [z]
    for kernel, bias in zip(params[1::2], params[2::2], strict=True):
        outputs.append(_dot(jnp.maximum(outputs[-1], 0.0), kernel) + bias)
    return outputs


def _losses(form: Form, logits: Array, labels: Array) -> tuple[Array, Array]:
    """(f32[B, 1] the losses, f32[B, c] their gradients by the logits). `labels`: f32[B, 1]."""
    column = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    logits = jnp.where(column < form.classes, logits, LOW)
    most = jnp.max(logits, axis=1, keepdims=True)
    powers = jnp.exp(logits - most)
    total = jnp.sum(powers, axis=1, keepdims=True)
    wanted = column.astype(jnp.float32) == labels
    losses = jnp.sum(jnp.where(wanted, most + jnp.log(total) - logits, 0.0), axis=1, keepdims=True)
    return losses, powers / total - wanted.astype(jnp.float32)


def _backward(params: Sequence[Array], outputs: list[Array], dz: Array) -> tuple[Array, list[Array]]:
    """(f32[B, h] the gradient by the outputs of the first layer, the gradients by `params`), from that by the last outputs."""
    grads: list[Array] = []
    for kernel, z in zip(params[-2:0:-2], outputs[-2::-1], strict=True):
        grads = [_dot(jnp.maximum(z, 0.0), dz, turned=True), jnp.sum(dz, axis=0, keepdims=True), *grads]
        dz = jnp.where(z > 0, _dot(dz, kernel, across=True), 0.0)
    return dz, [jnp.sum(dz, axis=0, keepdims=True), *grads]


def _spread(form: Form, facts: Array, here: Array) -> Array:
    """f32[B, m]: in each row a one at the place of its sample."""
    column = jax.lax.broadcasted_iota(jnp.int32, (form.seen, form.across), 1).astype(jnp.float32)
    return jnp.where(here & (column == _column(facts, PLACE)), 1.0, 0.0)


def _move(
    form: Form, numbers: Numbers, d: Array, u: Array | None, back: Array, moved: Tally, speed: Tally
) -> tuple[tuple[Array, Array | None], Tally, Tally]:
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


def _moved(form: Form, numbers: Numbers, w: Array, u: Array | None, anchor: Array, grad: Array) -> tuple[Array, Array | None]:
    """(parameters, their momentum buffer) after a step."""
    if form.mu:
        grad = grad + numbers.mu * (w - anchor)
    if form.decay:
        grad = grad + numbers.decay * w
    if u is not None:
        u = grad = numbers.momentum * u + grad
    return w - numbers.lr * grad, u


def _column(facts: Array, place: int) -> Array:
    """f32[B, 1]: a column of the facts; a slice of lanes is not to be had everywhere."""
    column = jax.lax.broadcasted_iota(jnp.int32, facts.shape, 1)
    return jnp.sum(jnp.where(column == place, facts, 0.0), axis=1, keepdims=True)


def _numbers(length: int) -> Array:
    """i32[length, 1]: 0, 1, …"""
    return jax.lax.broadcasted_iota(jnp.int32, (length, 1), 0)


def _dot(a: Array, b: Array, turned: bool = False, across: bool = False) -> Array:
    """a b; aᵀ b if `turned`; a bᵀ if `across`."""
    dims = (((0 if turned else 1,), (1 if across else 0,)), ((), ()))
    return jax.lax.dot_general(a, b, dims, preferred_element_type=jnp.float32)
