"""Group normalisation, depthwise convolution, attention and embedding as functions of arrays."""

from __future__ import annotations

import functools
import math

from cfljax.lazy import custom_vjp, custom_vmap, jax, jnp

# How many rows of zeros come above and below, and how many columns on the left and right
Around = tuple[tuple[int, int], tuple[int, int]]
# How far a convolution goes: around every pixel, with zeros outside of the image ("same"), or only
# where the whole kernel lies inside of the image ("valid")
PADDINGS = ("same", "valid")


def padding_of(kernel: jax.Array, padding: str = "same") -> Around:
    """Return the zeros around an image for one of PADDINGS and the kernel f32[k, k, …]."""
    if padding == "valid":
        return (0, 0), (0, 0)
    height, width = kernel.shape[:2]
    return ((height - 1) // 2, height // 2), ((width - 1) // 2, width // 2)


def convolve_by_xla(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], around: Around
) -> jax.Array:
    """Convolve by XLA: f32[B, H, W, inputs], f32[k, k, inputs, outputs] -> f32[B, H', W',
    outputs]."""
    return jax.lax.conv_general_dilated(
        x, kernel, strides, around, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def shift_images(
    x: jax.Array, kernel: jax.Array, stride: int, padding: str = "same"
) -> list[jax.Array]:
    """Shift f32[B, H, W, c] to each position under the kernel: k · k images f32[B, H', W', c], with
    H' = ⌈H / stride⌉, or ⌈(H - k + 1) / stride⌉ if the padding is "valid"."""
    rows, columns = kernel.shape[:2]
    x = jnp.pad(x, ((0, 0), *padding_of(kernel, padding), (0, 0)))
    high = x.shape[1] - rows + 1
    wide = x.shape[2] - columns + 1
    return [
        x[:, i : i + high : stride, j : j + wide : stride]
        for i in range(rows)
        for j in range(columns)
    ]


# Up to this number of tokens an embedding is a product with one-hot rows: its gradient is a
# product, too, and no scatter
MAX_ONE_HOT = 512

# Floats of images that a depthwise convolution takes at a time: a megabyte of cache (all at once:
# 1.2 to 2.4 times as long)
DEPTHWISE_TILE_FLOATS = 1 << 18


@custom_vjp(nondiff_argnums=(3, 4, 5))
def group_norm(
    x: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    groups: int,
    most: float | None = None,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Normalise each image's channels in groups, f32[B, H, W, c], to mean 0 and variance 1 over the
    pixels, then scale and shift by channel. `most`: then clip to [0, most], which may be infinite;
    None: do not clip."""
    return _normalise(x, scale, bias, groups, most, epsilon)[0]


# x, the result, scale, and f32[B, c] the mean of a channel's group, and one over its deviation
_Kept = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _normalise(
    x: jax.Array, scale: jax.Array, bias: jax.Array, groups: int, most: float | None, epsilon: float
) -> tuple[jax.Array, _Kept]:
    # In bfloat16 the difference of the two means would be rounding
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    squares = wide * wide
    mean = _average_groups(jnp.sum(wide, (1, 2)), groups, x.shape)
    square = _average_groups(jnp.sum(squares, (1, 2)), groups, x.shape)
    spread = jax.lax.rsqrt(jnp.maximum(square - mean * mean, 0.0) + epsilon)
    factor = scale * spread
    y = wide * factor[:, None, None] + (bias - mean * factor)[:, None, None]
    y = (y if most is None else jnp.clip(y, 0.0, most)).astype(x.dtype)
    return y, (x, y, scale, mean, spread)


def _average_groups(sums: jax.Array, groups: int, shape: tuple[int, ...]) -> jax.Array:
    """Return f32[B, c]: the mean of each channel's group over all pixels, from the sums of each
    channel f32[B, c]."""
    batch, height, width, channels = shape
    each = channels // groups
    mean = jnp.sum(sums.reshape(batch, groups, each), -1) / (height * width * each)
    return jnp.repeat(mean, each, 1)


def _gradients_of_norm(
    groups: int, most: float | None, _: float, kept: _Kept, change: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the gradients of `group_norm` by x, scale and bias."""
    # By hand: fewer passes over the images than JAX's own, one for two sums and one for the
    # gradient of x
    x, y, scale, mean, spread = kept
    if most is not None:
        change = jnp.where((y > 0) & (y < most), change, 0.0)
    change = change.astype(jnp.promote_types(change.dtype, jnp.float32))
    straight = jnp.sum(change, (1, 2))
    along = jnp.sum(change * x, (1, 2))
    along = spread * (along - mean * straight)
    slope = -spread * spread * _average_groups(scale * along, groups, x.shape)
    shift = -spread * _average_groups(scale * straight, groups, x.shape) - mean * slope

    def per_pixel(of_channels: jax.Array) -> jax.Array:
        return of_channels[:, None, None]

    of_x = change * per_pixel(scale * spread) + x * per_pixel(slope) + per_pixel(shift)
    return (
        of_x.astype(x.dtype),
        jnp.sum(along, 0).astype(scale.dtype),
        jnp.sum(straight, 0).astype(scale.dtype),
    )


group_norm.defvjp(_normalise, _gradients_of_norm)


def depthwise(x: jax.Array, kernel: jax.Array, form: str, stride: int = 1) -> jax.Array:
    """Convolve each channel separately: f32[B, H, W, c], f32[k, k, 1, c] -> f32[B, ⌈H / stride⌉, ⌈W
    / stride⌉, c]. "patches" is the sum of the k · k shifted images, "native" and "windows" XLA's
    own, "auto" the sum on a CPU."""
    if form == "auto":
        patches = functools.partial(depthwise, form="patches", stride=stride)
        native = functools.partial(depthwise, form="native", stride=stride)
        return jax.lax.platform_dependent(x, kernel, cpu=patches, default=native)
    if form != "patches":
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            padding_of(kernel),
            dimension_numbers=numbers,
            feature_group_count=x.shape[-1],
        )
    return _convolve_by_shifts(x, kernel, stride)


@custom_vjp(nondiff_argnums=(2,))
def _convolve_by_shifts(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    out = jax.lax.map(
        lambda images: _sum(shift_images(images, kernel, stride), kernel), _split_tiles(x, x)
    )
    return out.reshape(-1, *out.shape[2:])[: len(x)]


def _split_tiles(values: jax.Array, images: jax.Array) -> jax.Array:
    """Split [B, ...] into [tiles, m, ...]: m images per tile, as many as stay in the cache; zeros
    pad the last tile."""
    batch = len(images)
    number = -(-batch // max(1, DEPTHWISE_TILE_FLOATS * batch // images.size))
    padded = jnp.pad(values, ((0, -batch % number), (0, 0), (0, 0), (0, 0)))
    return padded.reshape(number, -1, *values.shape[1:])


def _sum(images: list[jax.Array], kernel: jax.Array) -> jax.Array:
    factors = kernel.reshape(-1, kernel.shape[-1])
    return functools.reduce(jnp.add, (each * factors[i] for i, each in enumerate(images)))


def _gradients(
    stride: int, kept: tuple[jax.Array, jax.Array], out: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    rows, columns, _, channels = kernel.shape
    _, height, width, _ = x.shape
    _, high, wide, _ = out.shape
    # Never a whole row: of a tile of one image XLA would make a sum over its rows, which takes 17
    # times as long (measured)
    pixels = next((each for each in (4, 2) if wide % each == 0 and wide > each), 1)
    # The pixels between those that were computed have no gradient of their own
    gaps = [
        (0, length - 1 - (n - 1) * stride, stride - 1)
        for length, n in ((height, high), (width, wide))
    ]
    room = ((0, 0), (rows // 2, (rows - 1) // 2), (columns // 2, (columns - 1) // 2), (0, 0))

    def tile(total: jax.Array, of: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        images, change = of
        # A few pixels are a line, and lines come first: a sum of long lines is faster than one of
        # short ones
        lines = [
            jnp.sum((each * change).reshape(-1, pixels * channels), 0)
            for each in shift_images(images, kernel, stride)
        ]
        of_kernel = jnp.sum(jnp.stack(lines).reshape(-1, pixels, channels), 1)
        spread = jax.lax.pad(change, jnp.zeros((), change.dtype), ((0, 0, 0), *gaps, (0, 0, 0)))
        spread = jnp.pad(spread, room)
        back = [
            spread[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)
        ]
        return total + of_kernel, _sum(back, kernel[::-1, ::-1])

    of_kernel, of_x = jax.lax.scan(
        tile,
        jnp.zeros((rows * columns, channels), x.dtype),
        (_split_tiles(x, x), _split_tiles(out, x)),
    )
    return of_x.reshape(-1, *x.shape[1:])[: len(x)], of_kernel.reshape(kernel.shape)


_convolve_by_shifts.defvjp(
    lambda x, kernel, stride: (_convolve_by_shifts(x, kernel, stride), (x, kernel)), _gradients
)


def pool_3_2_centred(x: jax.Array) -> jax.Array:
    """Take the maximum of the 3 × 3 square around every second pixel, f32[B, H, W, c] -> f32[B, ⌈H
    / 2⌉, ⌈W / 2⌉, c]."""
    for axis in (1, 2):
        widths = [(1, 1) if axis == each else (0, 0) for each in range(4)]
        wide = jnp.pad(x, widths, constant_values=-jnp.inf)
        parts = [jax.lax.slice_in_dim(wide, i, i + x.shape[axis], 2, axis) for i in range(3)]
        x = functools.reduce(jnp.maximum, parts)
    return x


def embed(ids: jax.Array, table: jax.Array) -> jax.Array:
    """Look up rows of f32[vocabulary, width] for tokens [B, T] (floats, too): f32[B, T, width]; out
    of range is the nearest."""
    ids = jnp.clip(ids.astype(jnp.int32), 0, len(table) - 1)
    if len(table) <= MAX_ONE_HOT:
        return jax.nn.one_hot(ids, len(table), dtype=table.dtype) @ table
    return jnp.take(table, ids, axis=0)


def attend(
    queries: jax.Array, keys: jax.Array, values: jax.Array, heads: int, seen: jax.Array | None
) -> jax.Array:
    """Attend with `heads` heads: f32[B, T, width] each -> the same. `seen` bool[..., T, T]: the
    keys (last axis) of a query."""
    batch, length, width = queries.shape

    def split_heads(of: jax.Array) -> jax.Array:
        return of.reshape(batch, length, heads, width // heads).swapaxes(1, 2)

    scores = jnp.einsum("bhqd,bhkd->bhqk", split_heads(queries), split_heads(keys))
    scores = scores / math.sqrt(width // heads)
    if seen is not None:
        # Not −∞, with which a query that sees no key would have weights of NaN
        scores = jnp.where(seen, scores, -1e30)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), split_heads(values))
    return mixed.swapaxes(1, 2).reshape(batch, length, width)


@custom_vjp(nondiff_argnums=(2, 3))
def convolve_windows(
    x: jax.Array, kernel: jax.Array, stride: int, padding: str = "same"
) -> jax.Array:
    """Convolve f32[B, H, W, inputs] with f32[k, k, inputs, outputs] -> f32[B, H', W', outputs], H'
    and W' as in `shift_images`. If its gradient is wanted, or several x have a kernel each, by
    matrix products, otherwise by XLA."""

    @custom_vmap()
    def value(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return convolve_by_xla(x, kernel, (stride, stride), padding_of(kernel, padding))

    def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return _multiply_windows(x, kernel, stride, padding)

    def compute_several(
        number: int, mapped: list[bool], x: jax.Array, kernel: jax.Array
    ) -> tuple[jax.Array, bool]:
        if all(mapped):
            return jax.vmap(multiply)(x, kernel), True
        # More images of one kernel
        if mapped[0]:
            outputs = value(x.reshape(-1, *x.shape[2:]), kernel)
            return outputs.reshape(number, -1, *outputs.shape[1:]), True
        # More outputs of one x
        outputs = value(x, jnp.moveaxis(kernel, 0, 3).reshape(*kernel.shape[1:4], -1))
        return jnp.moveaxis(outputs.reshape(*outputs.shape[:3], number, -1), 3, 0), True

    value.def_vmap(compute_several)
    return value(x, kernel)


def _gradients_of_windows(
    stride: int, padding: str, kept: tuple[jax.Array, jax.Array], change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    windows = _gather_windows(x, kernel, stride, padding)
    exact = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    of_kernel = windows.reshape(-1, windows.shape[-1]).T @ change.reshape(-1, change.shape[-1])
    factors = kernel.reshape(-1, kernel.shape[-1]).T
    # In float32, as many of them are added up for a pixel
    of_windows = (change @ factors).astype(jnp.float32)
    add_up = jax.linear_transpose(lambda x: _gather_windows(x, kernel, stride, padding), exact)
    (of_x,) = add_up(of_windows)
    return of_x.astype(x.dtype), of_kernel.reshape(kernel.shape)


convolve_windows.defvjp(
    lambda x, kernel, stride, padding: (
        _multiply_windows(x, kernel, stride, padding),
        (x, kernel),
    ),
    _gradients_of_windows,
)


def _gather_windows(x: jax.Array, kernel: jax.Array, stride: int, padding: str) -> jax.Array:
    """Gather the windows: f32[B, H, W, inputs] -> f32[B, H', W', k · k · inputs]."""
    return jnp.concatenate(shift_images(x, kernel, stride, padding), -1)


def _multiply_windows(x: jax.Array, kernel: jax.Array, stride: int, padding: str) -> jax.Array:
    return _gather_windows(x, kernel, stride, padding) @ kernel.reshape(-1, kernel.shape[-1])
