"""How methods compare the updates of all clients at once: as they are, or by sketches, which need less memory."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from cfljax.kernels.sketch import SIZE, sketch
from cfljax.options import option


def similarity() -> Any:
    """The option of such methods."""
    words = "how updates are compared: as they are, or by sketches of 4,096 numbers, which need less memory and a second training"
    return option("exact", words, choices=("exact", "sketch"))


def compared_size(d: int, similarity: str) -> int:
    """Numbers per client in what is compared."""
    return d if similarity == "exact" else min(d, SIZE)


def shortened(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """HOST. The vectors f32[n, d] as they are compared."""
    return vectors if similarity == "exact" else np.asarray(_sketch(vectors))


_sketch = jax.jit(sketch)
