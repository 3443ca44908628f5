"""`clusters = "auto"`: the number of clusters is found before the first round, from how the first updates of clients differ.

Up to PROBED clients that are there in round 0 train for one epoch from w_0 (methods that pre-train anyway use those updates), and
`kernels.number` chooses from 1 to `most` clusters by the directions of the updates, less what they have in common. Neither test
data nor true groups have a say. The run keeps `most` models, so that runs with different choices share a program; those beyond
the chosen number are never joined. Kept with the results: `auto_clusters` and `auto_curve`, the criterion of each number.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.kernels.host import CRITERIA, choose_number
from cfljax.lazy import jnp
from cfljax.registry.options import option
from cfljax.round.config import MethodConfig
from cfljax.round.state import Number
from cfljax.types import Array, on_host

PROBED = 256  # The most clients whose updates are compared


@dataclasses.dataclass(frozen=True)
class CountedConfig(MethodConfig):
    """The base class of the options of methods whose number of clusters may be found."""

    auto: str = option("silhouette", 'how the number of clusters is found with "auto"', choices=CRITERIA)
    most: int = option(8, 'largest number of clusters that "auto" finds', low=2)


def number_of(config: CountedConfig, moves: np.ndarray) -> Number | None:
    """HOST. Return the number of clusters of updates f32[n, d], sorted by identity; None where the options give it."""
    if not config.counts_clusters:
        return None
    found = choose_number(moves, config.most, config.auto)
    return Number(on_host(np.array(found.clusters, np.int32)), on_host(found.curve.astype(np.float32)))


def allowed(number: Number | None, clusters: int) -> Array | None:
    """bool[K]: which of `clusters` models may be chosen; None: all."""
    return None if number is None else jnp.arange(clusters) < number.clusters


def extras_of(number: Number | None) -> dict[str, Array]:
    """Return what is kept with the results: i32[] the number found, and f32[2, 2 · most] numbers 1, 2, … and their criteria."""
    if number is None:
        return {}
    numbers = jnp.arange(1, number.curve.shape[0] + 1, dtype=jnp.float32)
    return {"auto_clusters": number.clusters, "auto_curve": jnp.stack([numbers, number.curve])}
