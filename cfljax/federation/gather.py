"""DEVICE. From the pool to samples as the model sees them: gathered through the view of the client that holds them."""

from __future__ import annotations

import functools
import math

from cfljax.lazy import jax, jnp
from cfljax.types import Array, Federation, Pool, Split, View

COMPARED = 1 << 26
"""The most pairs of numbers that an accelerator compares to find places."""
SUMMED = 256
"""The longest line of which all sums are computed from all numbers: it takes microseconds."""
SHORT = 64
"""The longest line of which a CPU, too, compares all numbers: that is one kernel to compile, and as fast."""


def insertion_points(line: jax.Array, values: jax.Array, side: str = "left") -> jax.Array:
    """i32[n]: where each of the values belongs in the sorted line, as `jnp.searchsorted`. An accelerator compares all pairs in one
    kernel; halving the line, as a CPU does unless it is short, is a loop of several kernels."""
    halving = functools.partial(jnp.searchsorted, side=side)
    comparing = functools.partial(halving, method="compare_all")
    if line.size <= SHORT:
        return comparing(line, values)
    if line.size * values.size > COMPARED:
        return halving(line, values)
    return jax.lax.platform_dependent(line, values, cpu=halving, default=comparing)


def totals(counts: jax.Array) -> jax.Array:
    """i32[n]: the sum of the counts i32[n] up to each place, as `jnp.cumsum`. That is five kernels to compile on a CPU; a short
    line is summed for every place anew, which is fewer."""
    if counts.size > SUMMED:
        return jnp.cumsum(counts)
    place = jnp.arange(counts.size)
    return jnp.sum(jnp.where(place <= place[:, None], counts, 0), axis=1, dtype=counts.dtype)


def samples(federation: Federation, client: Array, rows: Array, mask: Array) -> tuple[jax.Array, jax.Array]:
    """(x f32[B, ...], y i32[B] or i32[B, classes]) of pool rows i32[B] as clients i32[B] see them, or as one client i32[] sees all;
    exactly 0 where the mask is False."""
    pool, view = federation.pool, federation.view
    one = None if view is None or jnp.ndim(client) else _at(view.of, client)
    client = jnp.broadcast_to(client, jnp.shape(rows))
    of = jnp.zeros_like(client) if view is None else _at(view.of, client)
    y = _at(pool.y, rows)
    if view is not None and view.labels is not None:
        y = jnp.asarray(view.labels)[of, y]
    x = _shifted(_values(pool, view, of, one, rows, federation.sample_shape), view, of)
    seen = jnp.where(_wide(jnp.asarray(mask), x.ndim), x, 0.0)
    return seen.reshape(-1, *federation.sample_shape, *x.shape[2:]), jnp.where(_wide(jnp.asarray(mask), y.ndim), y, 0)


def _at(values: Array, index: Array) -> jax.Array:
    """`values[index]`, with indices clipped into range: those of masked entries may be anything."""
    return jnp.take(jnp.asarray(values), index, axis=0, mode="clip")


def _wide(per_sample: jax.Array, ndim: int) -> jax.Array:
    return jnp.reshape(per_sample, per_sample.shape + (1,) * (ndim - 1))


def _values(pool: Pool, view: View | None, of: jax.Array, one: jax.Array | None, rows: Array, shape: tuple[int, ...]) -> jax.Array:
    """f32[B, F] or f32[B, F, width]: the samples turned as the view says, normalised or looked up. `one` i32[]: the view of all of
    them; None: they have several."""
    lines = jnp.asarray(pool.x).reshape(-1, math.prod(shape))  # a CPU makes large blocks of lines in half the time of images
    if view is not None and view.pixels is not None:
        pixels = jnp.asarray(view.pixels)
        x = _turned(lines, _at(pixels, of), rows) if one is None else _turned_alike(lines, pixels, of, one, rows)
    else:
        x = _at(lines, rows)
    if pool.table is not None:
        return _at(pool.table, x)
    mean, scale = (jnp.broadcast_to(jnp.asarray(each), shape).reshape(-1) for each in (pool.mean, pool.scale))
    return (x.astype(jnp.float32) - mean) * scale


def _turned(lines: jax.Array, source: jax.Array, rows: Array) -> jax.Array:
    """[B, F]: value f of sample b is value `source[b, f]` of pool row `rows[b]`; zero (black, not yet normalised) for −1."""
    # one gather of single values straight from the pool: measured 1.6 to 3 times faster than two
    moved = lines.at[jnp.asarray(rows)[:, None], source].get(mode="clip", wrap_negative_indices=False)
    return jnp.where(source < 0, jnp.zeros((), lines.dtype), moved)


def _turned_alike(lines: jax.Array, pixels: jax.Array, of: jax.Array, one: jax.Array, rows: Array) -> jax.Array:
    """[B, F]: as `_turned` with `pixels[of]`, where `of` i32[B] is `one` throughout. To find values one by one takes a TPU arrays
    of indices several times as large as the samples; it takes whole lines in place of that, and of these whole columns."""
    columns = lambda lines: _columns(_at(lines, rows), _at(pixels, one))  # noqa: E731
    return jax.lax.platform_dependent(lines, tpu=columns, default=lambda lines: _turned(lines, _at(pixels, of), rows))


def _columns(x: jax.Array, source: jax.Array) -> jax.Array:
    """[B, F]: column f is column `source[f]` of x [B, F]; zero for −1."""
    return jnp.where(source < 0, jnp.zeros((), x.dtype), jnp.take(x, source, axis=1, mode="clip"))


def _shifted(x: jax.Array, view: View | None, of: jax.Array) -> jax.Array:
    if view is not None and view.gain is not None:
        x = x * _wide(_at(view.gain, of), x.ndim)
    if view is not None and view.offset is not None:
        x = x + _wide(_at(view.offset, of), x.ndim)
    return x


def client_rows(split: Split, client: Array, positions: Array) -> jax.Array:
    """i32[B] pool rows of a client's samples at these positions; those at positions beyond its samples must be masked."""
    last = jnp.maximum(_at(split.count, client) - 1, 0)
    return _at(split.rows, _at(split.start, client) + jnp.clip(positions, 0, last))
