"""A client's whole local training as one kernel of an accelerator, a program per client: no step starts a kernel, waits for another
client, or returns to the host. For a chain of dense layers (`mclr`, `mlp`) and plain SGD.

The first kernel is W_0 − D during training, and D alone changes. A step reads from each of its samples a row f of numbers and the
outputs z_0 = x W_0 at the start: the outputs now are z_0 − f D. By steps f is the sample x itself, and the step adds xᵀ · dz to D
(dz: the gradient by these outputs). In Gram form (see `gram`) f is the sample's row of the Gram matrix, D has a row per sample, and
the step adds dz to the rows of its samples. What pulls all of W (`Fixed.along` of `gram`) is two numbers besides D.

One description for both compilers of Pallas, Mosaic (TPU) and Triton (GPU), which differ in three things:

- Sizes: a TPU has tiles of 8 × 128, Triton powers of two of at least 16. What is beyond a client's own sizes is zero.
- Rows: a TPU copies the rows of a step one by one, since its positions are numbers of the scalar unit; Triton gathers them.
- State: on a TPU it stays in the kernel's results. On Triton it is carried through the loop, in registers; a D that is too large
  for them stays in the results, too, and is read and changed some rows at a time (`Form.tile`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cfljax.lazy import jax, jnp, pl
from cfljax.local import chip_step
from cfljax.local.chip_step import LABEL, WEIGHT, Numbers, Tally, column, dot, losses_of, rows_of
from cfljax.local.fitting import Form
from cfljax.types import Array

FACTS, F, ALONG = range(3)
"""The order of `Refs.rows`."""
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
    settle: Callable[[], None]
    """Lets what one thread of a GPU has written be read by all."""


States = list[Any]
"""D, the other parameters, and with momentum the buffers of each; None in place of a D that is not carried, and of its buffer."""
Piece = Callable[..., Array]
"""(index in `Refs.rows`, columns) -> these rows of the samples that a step sees, or some columns of them."""
ALL = slice(None)


class Seen(NamedTuple):
    """What the first layer moves by in a step."""

    piece: Piece
    facts: Array
    here: Array
    """bool[B, 1]: whether the row is a sample of the step."""
    dz: Array
    """f32[B, h]: the gradient by the outputs of the first layer."""


def kernel(form: Form, refs: Refs) -> None:
    """Trains one client."""
    which = _choose(form, refs) if form.models > 1 else jnp.int32(0)
    begin = [_of_model(ref, which, form.models) for ref in refs.start]
    anchor = [ref[...] for ref in refs.anchor] if form.anchored else begin
    first = None if form.tile else jnp.zeros((form.across, form.widths[0]), jnp.float32)
    states = [first, *begin]
    if form.momentum:
        states += [first, *([ref[...] for ref in refs.velocity] or map(jnp.zeros_like, begin))]
    _clear(form, refs)
    zero, one = jnp.float32(0), jnp.float32(1)

    def step(number: Array, states: States, tally: Tally) -> tuple[States, Tally]:
        return _step(form, refs, which, anchor, number, states, tally)

    tally = _all_steps(form, refs, step, states, (zero, zero, zero, zero, one))
    columns = jax.lax.broadcasted_iota(jnp.int32, refs.tally.shape, 1)
    told = (*tally, which.astype(jnp.float32))
    refs.tally[...] = sum((jnp.where(columns == place, value, 0.0) for place, value in enumerate(told)), start=jnp.float32(0))


def _all_steps(form: Form, refs: Refs, step: Callable[..., tuple[States, Tally]], states: States, tally: Tally) -> Tally:
    """The tally after all steps of the client; the states are then in `refs.state`."""

    def write(states: States) -> None:
        for ref, value in zip(refs.state, states, strict=True):
            if value is not None:
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
    here = rows_of(form.rows) < refs.counts[0, COUNT]
    best, which = jnp.float32(jnp.nan), jnp.int32(0)
    for k in range(form.models):
        at = jnp.int32(k)
        params = [_of_model(ref, at, form.models) for ref in refs.start]
        logits = chip_step.forward(params, _of_model(refs.z, at, form.models) + params[0])[-1]
        loss = jnp.sum(jnp.where(here, losses_of(form, logits, column(facts, LABEL))[0], 0.0))
        better = (loss < best) | ((best != best) & (loss == loss))
        best, which = jnp.where(better, loss, best), jnp.where(better, at, which)
    return which


def _step(
    form: Form, refs: Refs, which: Array, anchor: list[Array], number: Array, states: States, tally: Tally
) -> tuple[States, Tally]:
    """States and tally after a step."""
    loss, moved, speed = tally[LOSS], tally[MOVED:SPEED], tally[SPEED:]
    params, half = states[1 : 1 + len(refs.start)], 1 + len(refs.start)
    piece, z, left = _look(form, refs, which, number)
    numbers = Numbers(*(refs.numbers[0, place] for place in range(4)))
    facts = piece(FACTS)
    z = _now(form, numbers, piece, z, moved) - _change(form, refs, piece, states[0]) + params[0]
    outputs = chip_step.forward(params, z)
    losses, dz = losses_of(form, outputs[-1], column(facts, LABEL))
    here, weight = rows_of(form.seen) < left, column(facts, WEIGHT)
    mean = 1.0 if form.summed else 1 / jnp.maximum(left.astype(jnp.float32), 1.0)
    dz, grads = chip_step.backward(params, outputs, jnp.where(here, weight * mean * dz, 0.0))
    loss = loss + jnp.sum(jnp.where(here, weight * losses, 0.0))
    buffers = states[half:] if form.momentum else [None] * half
    first, moved, speed = _move(form, refs, numbers, (states[0], buffers[0]), Seen(piece, facts, here, dz), moved, speed)
    after = [first, *(chip_step.descended(form, numbers, *each) for each in zip(params, buffers[1:], anchor, grads, strict=True))]
    return [w for w, _ in after] + [u for _, u in after] * form.momentum, (loss, *moved, *speed)


def _look(form: Form, refs: Refs, which: Array, number: Array) -> tuple[Piece, Array, Array]:
    """What a step sees: its samples' rows, their z f32[B, h], and the number i32[] of its samples."""
    count = refs.counts[0, COUNT]
    if form.batch is None:
        return (lambda of, columns=ALL: refs.rows[of][:, columns]), _of_model(refs.z, which, form.models), count
    epoch = jax.lax.div(number, refs.counts[0, PER_EPOCH])
    done = (number - epoch * refs.counts[0, PER_EPOCH]) * form.batch
    begin, left = epoch * refs.counts[0, WIDTH] + done, jnp.minimum(count - done, form.batch)
    if form.dialect == "gpu":
        where = refs.order[0, pl.ds(begin, form.seen)]
        return (lambda of, columns=ALL: refs.rows[of][where, columns]), refs.z[which * form.rows + where, :], left
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
    return (lambda of, columns=ALL: rows[of][:, columns]), z[...], left


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


def _tiles(form: Form) -> list[int]:
    """Where the tiles of D begin."""
    return list(range(0, form.across, form.tile)) if form.tile else []


def _clear(form: Form, refs: Refs) -> None:
    """D, and its momentum buffer, as they are at the start, where they are not carried."""
    for begin in _tiles(form):
        for at in _of_first(form, refs):
            refs.state[at][pl.ds(begin, form.tile), :] = jnp.zeros((form.tile, form.widths[0]), jnp.float32)
    refs.settle()


def _of_first(form: Form, refs: Refs) -> tuple[int, ...]:
    """The places of D, and with momentum of its buffer, among the states."""
    return (0, 1 + len(refs.start)) if form.momentum else (0,)


def _change(form: Form, refs: Refs, piece: Piece, d: Array | None) -> Array:
    """f32[B, h]: f D, what training has changed in the outputs of the first kernel."""
    if d is not None:
        return dot(piece(F), d)
    tiles = [pl.ds(begin, form.tile) for begin in _tiles(form)]
    return sum((dot(piece(F, tile), refs.state[0][tile, :]) for tile in tiles), start=jnp.float32(0))


def _move(
    form: Form, refs: Refs, numbers: Numbers, first: tuple[Array | None, Array | None], seen: Seen, moved: Tally, speed: Tally
) -> tuple[tuple[Array | None, Array | None], Tally, Tally]:
    """((D, its momentum buffer), moved, speed) after a step."""
    d, u = first
    if d is not None:
        whole = form.gram and form.batch is None
        back = seen.dz if whole else dot(_factors(form, seen, 0, form.across), seen.dz, turned=True)
        return chip_step.move(form, numbers, d, u, back, moved, speed)
    end, refs_of_first = (moved, speed), [refs.state[at] for at in _of_first(form, refs)]
    refs.settle()  # all have read D
    for begin in _tiles(form):
        rows = pl.ds(begin, form.tile)
        d, *buffers = (ref[rows, :] for ref in refs_of_first)
        back = dot(_factors(form, seen, begin, form.tile), seen.dz, turned=True)
        changed, *scalars = chip_step.move(form, numbers, d, buffers[0] if buffers else None, back, moved, speed)
        end = scalars[0], scalars[1]
        for ref, value in zip(refs_of_first, changed, strict=False):
            ref[rows, :] = value
    refs.settle()
    return (None, None), *end


def _factors(form: Form, seen: Seen, begin: int, width: int) -> Array:
    """f32[B, width]: what dz is multiplied with, for the rows of D from `begin` on: numbers of f, or in Gram form a one for each
    sample."""
    if form.gram:
        return chip_step.spread(form, seen.facts, seen.here, begin, width)
    return seen.piece(F) if width == form.across else seen.piece(F, pl.ds(begin, width))
