"""Losses by name: `model.loss = "mse"`, and those that users register."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.lazy import jnp
from cfljax.registry import Registry
from cfljax.types import Array, OfLogits, Score


class Loss(NamedTuple):
    """A loss, and what says how good predictions are."""

    of_samples: OfLogits
    """(outputs f32[B, outputs], y) -> f32[B]: the loss of each sample."""
    score_of_samples: OfLogits | None = None
    """(outputs, y) -> f32[B]: the score of each sample. None: labels are classes, and a sample is
    right if its class has the highest output."""
    score: Score = Score()
    """What the mean of these scores is called."""
    outputs: int | None = None
    """How many outputs the model has; None: one per class, and one for a number."""


LOSSES: Registry[Callable[[], Loss]] = Registry(
    "loss", {"mse": "cfljax.models.losses:make_mse"}, "cfljax.losses"
)
"""Losses of the package and of users, by the name in `model.loss`."""


def make_mse() -> Loss:
    """Return the squared error of a number. Its score is R², to which the engine turns the sums of
    squared errors."""
    return Loss(_squared_error, _squared_error, Score("r2", explains=True), 1)


def _squared_error(outputs: Array, y: Array) -> Array:
    return jnp.square(outputs[:, 0] - y.astype(outputs.dtype))


def find_score(loss: str | None) -> Score:
    """Return the score of runs with this value of `model.loss`."""
    return Score() if loss is None else LOSSES.entry(loss, "model.loss").make().score
