"""A byte for each number of an update."""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jax, jnp
from cfljax.local.compressors import Compressor
from cfljax.registry.options import option
from cfljax.types import Array


@dataclasses.dataclass(frozen=True)
class Int8(Compressor):
    """Multiples from −127 to 127 of the largest absolute number over 127, which is sent, too."""

    rounding: str | None = option(
        None,
        "to either side at random (default), or to the nearest",
        choices=("stochastic", "nearest"),
    )

    def __post_init__(self) -> None:
        # Ids name it, whether it was given or not
        if self.rounding is None:
            object.__setattr__(self, "rounding", "stochastic")

    def encode(self, key: Array, row: Array) -> Array:
        """Round the row to 255 multiples of a number."""
        step = jnp.max(jnp.abs(row)) / 127
        multiples = jnp.where(step == 0, 0.0, row / step)
        if self.rounding == "nearest":
            return jnp.round(multiples) * step
        # Up with the probability of the fraction: the mean of the rounded number is the number
        low = jnp.floor(multiples)
        return (low + (jax.random.uniform(key, row.shape) < multiples - low)) * step

    def bytes(self, d: int) -> int:
        """Count the scale, a float32, and a byte for each number."""
        return 4 + d
