"""Predict how long each training backend takes for a client, from the machine's measured speed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from cfljax.devices.machine import TYPICAL, Speed
from cfljax.lazy import jax, jnp
from cfljax.local.gram import MAX_PRODUCT_UPDATE, first_layer
from cfljax.local.parts import ModelParts, kernel_trains
from cfljax.local.products import GRAM_BLOCK, GRAM_SIZES, MAX_WHOLE_GRAM
from cfljax.local.schedule import Work
from cfljax.local.turned import get_path
from cfljax.types import Array, Model, Tree

# Training on the Gram matrix is chosen if it is predicted to be faster by this factor
MARGIN = 1.1
# A product with fewer columns than this takes about as long as with this number of columns
NARROW_COLUMNS = 32
# The size in bytes of a matrix that about fits into a core's cache
CACHE_BYTES = 1 << 23
# A number for one client, or an array i32[S] or f32[S] with one number for each of S clients
# (numpy, JAX, or traced)
Numbers = Any


class Layer(NamedTuple):
    """The shape of the first dense layer of a model."""

    inputs: int
    outputs: int

    @property
    def width(self) -> int:
        """The outputs that decide the time of its products: a narrow layer is no faster than one of
        NARROW_COLUMNS outputs."""
        return max(self.outputs, NARROW_COLUMNS)


Making = Literal["beforehand", "in turn", "side by side"]
"""When Gram matrices are computed: before the first round, or in each round, for one client after
another or several at once."""


def choose_making(sequential: bool, kept: bool) -> Making:
    """Return when a plan computes Gram matrices. `sequential`: clients train one after another.
    `kept`: computed once."""
    if kept:
        return "beforehand"
    return "in turn" if sequential else "side by side"


def layer_shape(model: Model, parts: ModelParts | None = None) -> Layer | None:
    """Return the shape of the model's first layer if it trains, and doing so on a Gram matrix is
    exact, else None."""
    first = first_layer(model)
    if first is None or not kernel_trains(parts, model, first.kernel):
        return None

    # A function of its own, as JAX caches shapes for as long as the function lives
    def unravel(flat: Array) -> Tree:
        return model.unravel(flat)

    leaf: Tree = jax.eval_shape(unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    return Layer(*get_path(leaf, first.kernel).shape)


def expected_seconds(
    layer: Layer, work: Work, samples: Array, steps: Array, sizes: tuple[int, ...], making: Making
) -> Array:
    """Predict the seconds f32[S] of each client's training on a typical core, on the Gram matrix
    for its size or, if it is larger than all `sizes`, step by step. `samples` and `steps`:
    i32[S]."""
    seconds = time_steps(TYPICAL, layer, work, samples, steps)
    for size in reversed(sizes):
        seconds = jnp.where(
            samples <= size, time_gram(TYPICAL, layer, work, samples, size, steps, making), seconds
        )
    return jnp.where(steps > 0, seconds, 0.0)


def time_steps(
    speed: Speed, layer: Layer, work: Work, samples: Numbers, steps: Numbers | None = None
) -> Numbers:
    """Predict the seconds of the first layer's part in training a client step by step. `samples`
    and `steps` may be arrays over clients; so is the result. Without `steps` the client does all
    steps of `work`."""
    steps = count_all_steps(work, samples) if steps is None else steps
    if work.batch is None:
        fetched = samples * layer.inputs
        each = speed.large
    else:
        fetched = steps * work.batch * layer.inputs
        each = speed.small
    # A narrow kernel is turned (local/turned.py)
    products = 2 * (work.batch or samples) * layer.inputs * layer.outputs * each
    return fetched * speed.value + steps * (speed.step + products)


def time_gram(
    speed: Speed,
    layer: Layer,
    work: Work,
    samples: Numbers,
    size: int,
    steps: Numbers | None = None,
    making: Making = "in turn",
) -> Numbers:
    """Predict as `time_steps` does, for training the client on a Gram matrix of `size` rows."""
    steps = count_all_steps(work, samples) if steps is None else steps
    # How many numbers of the matrix are computed
    if making == "in turn" and size > MAX_WHOLE_GRAM:
        pairs = samples * (samples + GRAM_BLOCK) / 2
    else:
        pairs = size * size * (making != "beforehand")
    # The matrix, and the products with the kernel before and after all steps
    once = layer.inputs * ((pairs + 2 * size * layer.width) * speed.large + size * speed.value)
    if work.batch is None:
        return once + steps * (speed.step + size * size * layer.width * speed.large)
    updates_product = (
        making != "side by side" and max(work.batch, layer.outputs) <= MAX_PRODUCT_UPDATE
    )
    # Rows of a matrix in the cache need not be fetched
    cached = updates_product and 4 * size * size <= CACHE_BYTES
    each = layer.outputs * speed.small + (0 if cached else speed.value)
    return once + steps * (speed.step + work.batch * size * each)


def gram_limit(
    speed: Speed, layer: Layer, work: Work, longest: int, making: Making = "in turn"
) -> int:
    """Return the number of samples up to which training on the Gram matrix is predicted to be
    faster; 0: never. The prediction for a matrix size assumes a client with three quarters of that
    number of samples."""
    limit = 0
    for size in (*(rung for rung in GRAM_SIZES if rung < longest), min(longest, GRAM_SIZES[-1])):
        samples = max(1, size * 3 // 4)
        on_gram = time_gram(speed, layer, work, samples, size, making=making)
        if on_gram * MARGIN > time_steps(speed, layer, work, samples):
            break
        limit = size
    if limit < longest:
        return limit
    # All clients: the limit is the size to which the largest client is padded
    return max(limit, next((rung for rung in GRAM_SIZES if rung >= longest), longest))


def predict_seconds(model: Model, work: Work, counts: np.ndarray, steps: np.ndarray) -> float:
    """Predict the seconds of a round's steps i64[S] on a typical core, for a model that uses each
    parameter once per sample. `counts` i32[C]: the clients' samples."""
    batch = work.batch or float(counts[counts > 0].mean()) if counts.any() else 0.0
    return float(steps.sum()) * (TYPICAL.step + 3 * batch * model.size * TYPICAL.small)


def count_all_steps(work: Work, samples: Numbers) -> Numbers:
    """Count the steps of a client that is not a straggler; an array over clients if `samples` is
    one."""
    if work.steps is not None:
        return int(work.steps)
    assert work.epochs is not None
    return work.epochs * (1 if work.batch is None else -(-samples // work.batch))
