"""A bit for each number of an update."""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jnp
from cfljax.local.compressors import Compressor
from cfljax.types import Array


@dataclasses.dataclass(frozen=True)
class Sign(Compressor):
    """The signs, and the mean of the absolute numbers."""

    # Nothing is drawn
    def encode(self, key: Array, row: Array) -> Array:  # noqa: ARG002
        """Return the signs of the row times the mean of its absolute numbers."""
        return jnp.sign(row) * jnp.mean(jnp.abs(row))

    def bytes(self, d: int) -> int:
        """Count the scale, a float32, and a bit for each number."""
        return 4 + -(-d // 8)
