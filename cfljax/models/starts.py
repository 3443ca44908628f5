"""Initial weights of the package's models, from one draw: a draw per parameter, as in flax, takes
seconds to compile."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

from cfljax import keys
from cfljax.lazy import jax, jnp
from cfljax.types import Array, Tree

INIT_NAMES = ("lecun", "he", "glorot", "torch")
START_HELP = "initial weights: lecun, he (truncated normal), glorot, torch (uniform)"

# For each layer the spread of the kernel, and the bias
_IFCA_STARTS = {
    "conv_0": (0.05, 0.0),
    "conv_1": (0.05, 0.1),
    "dense_0": (0.04, 0.1),
    "dense_1": (0.04, 0.1),
    "out": (1 / 192, 0.0),
}


# (path, numbers that are uniform in [−1, 1)) -> a parameter as a model's paper or program draws it;
# None: as every model
Published = Callable[[tuple[str, ...], Array], Array | None]


def make_start(word: str, published: Published | None = None) -> Callable[[Array, Tree], Tree]:
    """Return (key, tree of shapes {layer: {"kernel", "bias"[, "recurrent"]}}) -> parameters.
    Normalisation layers ("scale", "bias", "running_mean", "running_var") and embeddings ("embed_…")
    may be among them. `published`: what the word "published" means."""

    def draw(key: Array, shapes: Tree) -> Tree:
        paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
        sizes = [math.prod(leaf.shape) for _, leaf in paths]
        drawn = keys.uniform(key, sum(sizes))
        leaves = []
        for (path, leaf), part in zip(paths, jax.lax.split(drawn, sizes), strict=True):
            *above, name = (step.key for step in path)
            layer = functools.reduce(operator.getitem, above, shapes)
            leaves.append(
                _init_parameter(word, published, (*above, name), layer, part.reshape(leaf.shape))
            )
        return jax.tree.unflatten(tree, leaves)

    return draw


def _init_parameter(
    word: str,
    published: Published | None,
    path: tuple[str, ...],
    layer: dict[str, jax.ShapeDtypeStruct],
    drawn: Array,
) -> Array:
    found = published(path, drawn) if published is not None and word == "published" else None
    if found is not None:
        return found
    *above, name = path
    if name in ("scale", "running_var"):
        return jnp.ones_like(drawn)
    # A dense layer on the squares of an image
    if name == "embed_kernel":
        return _init_kernel(word, "", "kernel", {"kernel": layer["embed_kernel"]}, drawn)
    if name.startswith(("embed_", "class_")):
        return jnp.zeros_like(drawn) if name == "embed_bias" else 0.02 * to_truncated(drawn)
    # Normalisation
    if "kernel" not in layer:
        return jnp.zeros_like(drawn)
    return _init_kernel(word, above[-1], name, layer, drawn)


def _init_kernel(
    word: str, kind: str, name: str, layer: dict[str, jax.ShapeDtypeStruct], drawn: Array
) -> Array:
    recurrent = layer.get("recurrent")
    *window, inputs, outputs = layer["kernel"].shape
    inputs = math.prod(window) * inputs
    outputs = math.prod(window) * outputs
    if recurrent is not None:
        # Each of the four gates counts as a layer
        outputs //= 4
    if word == "ifca":
        spread, bias = _IFCA_STARTS[kind]
        return jnp.full_like(drawn, bias) if name == "bias" else spread * to_truncated(drawn)
    if word == "torch":
        return drawn / math.sqrt(inputs if recurrent is None else outputs)
    if name == "bias" or word == "zeros":
        return jnp.zeros_like(drawn)
    if name == "recurrent":
        return _orthogonal(drawn)
    if word == "glorot":
        return drawn * math.sqrt(6 / (inputs + outputs))
    # Divided by the standard deviation of normal numbers that are cut off at ±2
    return to_truncated(drawn) / 0.8796256610342398 * math.sqrt((2 if word == "he" else 1) / inputs)


def to_normal(drawn: Array) -> Array:
    """Convert numbers that are uniform in [−1, 1) to normal ones."""
    # −1 itself would become −∞
    return math.sqrt(2) * jax.lax.erf_inv(jnp.maximum(drawn, -0.999999))


def to_truncated(drawn: Array) -> Array:
    """Convert to normal numbers within ±2 standard deviations."""
    return math.sqrt(2) * jax.lax.erf_inv(drawn * math.erf(math.sqrt(2)))


def _orthogonal(drawn: Array) -> Array:
    """Compute an orthogonal matrix for each gate: f32[h, 4h]."""
    width = drawn.shape[0]
    normal = jax.lax.erf_inv(jnp.maximum(drawn, -0.999999)).reshape(width, 4, width)
    q, r = jnp.linalg.qr(jnp.moveaxis(normal, 1, 0))
    q = q * jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))[:, None]
    return jnp.moveaxis(q, 0, 1).reshape(width, 4 * width)
