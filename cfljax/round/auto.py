"""`clusters = "auto"`: the number of clusters is found before the first round, from how the first
updates of clients differ.

Up to PROBED clients that are there in round 0 train for one epoch from w_0 (methods that pre-train
anyway use those updates), and `kernels.number` chooses from 1 to `most` clusters by the directions
of the updates, less what they have in common. Neither test data nor true groups have a say. The run
keeps `most` models, so that runs with different choices share a program; those beyond the chosen
number are never joined. Kept with the results: `auto_clusters` and `auto_curve`, the criterion of
each number.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.host import CRITERIA
from cfljax.lazy import jnp
from cfljax.registry.options import option
from cfljax.round.config import MethodConfig
from cfljax.round.state import Number
from cfljax.types import Array

PROBED = 256  # The most clients whose updates are compared


@dataclasses.dataclass(frozen=True)
class CountedConfig(MethodConfig):
    """The base class of the options of methods whose number of clusters may be found."""

    auto: str = option(
        "silhouette", 'how the number of clusters is found with "auto"', choices=CRITERIA
    )
    most: int = option(8, 'largest number of clusters that "auto" finds', low=2)


def allowed(number: Number | None, clusters: int) -> Array | None:
    """bool[K]: which of `clusters` models may be chosen; None: all."""
    return None if number is None else jnp.arange(clusters) < number.clusters
