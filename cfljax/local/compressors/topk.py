"""The largest numbers of an update, each with its index."""

from __future__ import annotations

import dataclasses
import math

from cfljax.lazy import jax, jnp
from cfljax.local.compressors import Compressor
from cfljax.registry.options import option
from cfljax.types import Array


@dataclasses.dataclass(frozen=True)
class TopK(Compressor):
    """The largest numbers alone; the server takes the others as zeros."""

    keep: float | None = option(
        None, "the share of the numbers that is sent, the largest ones (0.01)", above=0, high=1
    )

    def __post_init__(self) -> None:
        # Ids name it, whether it was given or not
        if self.keep is None:
            object.__setattr__(self, "keep", 0.01)

    def count(self, d: int) -> int:
        """Return how many of d numbers are sent: at least one."""
        assert self.keep is not None
        # Without the margin a product such as 0.07 · 100 = 7.000000000000001 would round up to 8
        return min(d, max(1, math.ceil(self.keep * d - 1e-6)))

    # Nothing is drawn
    def encode(self, key: Array, row: Array) -> Array:  # noqa: ARG002
        """Return the row with all but its largest numbers set to 0."""
        largest = jax.lax.top_k(jnp.abs(row), self.count(row.shape[0]))[1]
        return jnp.zeros_like(row).at[largest].set(row[largest])

    def bytes(self, d: int) -> int:
        """Count four bytes for each number that is sent, and four for its index."""
        return 8 * self.count(d)
