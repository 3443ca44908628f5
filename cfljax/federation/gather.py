"""DEVICE. From the pool to samples as the model sees them: gathered through the view of the client
that holds them."""

from __future__ import annotations

import functools
import math

from cfljax.lazy import jax, jnp
from cfljax.types import Array, Federation, Pool, Split, View

# The most pairs of numbers that an accelerator compares to find insertion points
MAX_COMPARED_PAIRS = 1 << 26
# The longest line of which all sums are computed from all numbers: it takes microseconds
MAX_SUMMED_LENGTH = 256
# The longest line of which a CPU, too, compares all numbers: that is one kernel to compile, and as
# fast
MAX_COMPARED_LENGTH = 64


def insertion_points(line: jax.Array, values: jax.Array, side: str = "left") -> jax.Array:
    """Find where each of the values belongs in the sorted line, i32[n], as `jnp.searchsorted`."""
    # An accelerator compares all pairs in one kernel; bisection, which a CPU uses unless the line
    # is short, is a loop of several kernels
    bisect = functools.partial(jnp.searchsorted, side=side)
    compare_all = functools.partial(bisect, method="compare_all")
    if line.size <= MAX_COMPARED_LENGTH:
        return compare_all(line, values)
    if line.size * values.size > MAX_COMPARED_PAIRS:
        return bisect(line, values)
    return jax.lax.platform_dependent(line, values, cpu=bisect, default=compare_all)


def cumulative_counts(counts: jax.Array) -> jax.Array:
    """Sum the counts i32[n] up to each position; a short array for every position separately, which
    takes a CPU fewer kernels."""
    if counts.size > MAX_SUMMED_LENGTH:
        return jnp.cumsum(counts)
    order = jnp.arange(counts.size)
    return jnp.sum(jnp.where(order <= order[:, None], counts, 0), axis=1, dtype=counts.dtype)


def samples(
    federation: Federation, client: Array, rows: Array, mask: Array
) -> tuple[jax.Array, jax.Array]:
    """Return (x f32[B, ...], y i32[B] or i32[B, classes]): samples as clients see them, turned,
    scaled and labelled by their views.

    Args:
        federation: The clients' data.
        client: i32[B], or i32[] if all samples are seen by one client.
        rows: i32[B] rows of the pool, as `client_rows` returns them.
        mask: bool[B]; without it x and y are 0.
    """
    pool, view = federation.pool, federation.view
    # The view of all samples, if one client sees them, and all labels alike
    one = None
    if view is not None and view.by_label is None and not jnp.ndim(client):
        one = _take(view.of, client)
    client = jnp.broadcast_to(client, jnp.shape(rows))
    of = jnp.zeros_like(client) if view is None else _take(view.of, client)
    y = _take(pool.y, rows)
    # Through which view each sample is shown; its label is always that of the client's view
    shown = of
    if view is not None and view.by_label is not None:
        shown = jnp.asarray(view.by_label)[of, y]
    if view is not None and view.labels is not None:
        y = jnp.asarray(view.labels)[of, y]
    x = _values(pool, view, shown, one, rows, federation.sample_shape)
    if view is not None and view.gain is not None:
        x = x * _add_axes(_take(view.gain, shown), x.ndim)
    if view is not None and view.offset is not None:
        x = x + _add_axes(_take(view.offset, shown), x.ndim)
    x = jnp.where(_add_axes(jnp.asarray(mask), x.ndim), x, 0.0)
    x = x.reshape(-1, *federation.sample_shape, *x.shape[2:])
    return x, jnp.where(_add_axes(jnp.asarray(mask), y.ndim), y, 0)


def _take(values: Array, index: Array) -> jax.Array:
    """Return `values[index]`, with indices clipped into range: masked entries may have any."""
    return jnp.take(jnp.asarray(values), index, axis=0, mode="clip")


def _add_axes(per_sample: jax.Array, ndim: int) -> jax.Array:
    """Return one number per sample with `ndim` axes, to be combined with arrays of samples."""
    return jnp.reshape(per_sample, per_sample.shape + (1,) * (ndim - 1))


def _values(
    pool: Pool,
    view: View | None,
    of: jax.Array,
    one: jax.Array | None,
    rows: Array,
    shape: tuple[int, ...],
) -> jax.Array:
    """Return f32[B, F] or f32[B, F, width]: samples turned, normalised or looked up. `one` i32[]:
    the view of all, if they have one."""
    # A CPU makes large blocks of lines in half the time of images
    lines = jnp.asarray(pool.x).reshape(-1, math.prod(shape))
    if view is not None and view.pixels is not None:
        pixels = jnp.asarray(view.pixels)
        if one is None:
            x = _take_pixels(lines, _take(pixels, of), rows)
        else:
            x = _take_view(lines, pixels, of, one, rows)
    else:
        x = _take(lines, rows)
    if pool.table is not None:
        return _take(pool.table, x)
    mean = jnp.broadcast_to(jnp.asarray(pool.mean), shape).reshape(-1)
    scale = jnp.broadcast_to(jnp.asarray(pool.scale), shape).reshape(-1)
    return (x.astype(jnp.float32) - mean) * scale


def _take_pixels(lines: jax.Array, source: jax.Array, rows: Array) -> jax.Array:
    """Return [B, F]: value f of sample b is value `source[b, f]` of pool row `rows[b]`; zero
    (black, not yet normalised) for −1."""
    # One gather of single values straight from the pool: measured 1.6 to 3 times faster than two
    moved = lines.at[jnp.asarray(rows)[:, None], source].get(
        mode="clip", wrap_negative_indices=False
    )
    return jnp.where(source < 0, jnp.zeros((), lines.dtype), moved)


def _take_view(
    lines: jax.Array, pixels: jax.Array, of: jax.Array, one: jax.Array, rows: Array
) -> jax.Array:
    """Do what `_take_pixels` does with `pixels[of]`, where all of `of` i32[B] is `one`."""

    # On a TPU, gathering single values needs index arrays several times the size of the samples, so
    # whole rows and then whole columns are gathered
    def gather_columns(lines: jax.Array) -> jax.Array:
        return _take_columns(_take(lines, rows), _take(pixels, one))

    def gather_values(lines: jax.Array) -> jax.Array:
        return _take_pixels(lines, _take(pixels, of), rows)

    return jax.lax.platform_dependent(lines, tpu=gather_columns, default=gather_values)


def _take_columns(x: jax.Array, source: jax.Array) -> jax.Array:
    """Return [B, F]: column f is column `source[f]` of x [B, F]; zero for −1."""
    return jnp.where(source < 0, jnp.zeros((), x.dtype), jnp.take(x, source, axis=1, mode="clip"))


def client_rows(split: Split, client: Array, positions: Array) -> jax.Array:
    """Return i32[B]: the rows of the pool where a client's samples are.

    Args:
        split: The samples: `federation.train`, `federation.test` or `federation.valid`.
        client: i32[] the position of the client on the client axis.
        positions: i32[B] positions in the client's list, from 0 on; samples at positions beyond its
            end must be masked.

    Example:
        ```python
        positions = jnp.arange(federation.train.longest)
        rows = client_rows(federation.train, client, positions)
        x, y = samples(federation, client, rows, positions < federation.train.count[client])
        ```
    """
    last = jnp.maximum(_take(split.count, client) - 1, 0)
    return _take(split.rows, _take(split.start, client) + jnp.clip(positions, 0, last))
