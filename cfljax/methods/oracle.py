"""Oracle: FedAvg inside each of the true groups, which are taken as known. It shows what the best
clustering could reach. Where the groups change (`data.drift`), its clients go over to their new
groups at once.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About
from cfljax.round.recipes import TrueGroups

ABOUT = About(
    title="Oracle",
    family="clustered",
)


@dataclasses.dataclass(frozen=True)
class Oracle(FedAvg):
    """Oracle: FedAvg inside each true group.

    The true groups are known, and each has a model, a row of f32[K, d]. A participant trains its
    group's model, which becomes its members' mean by `average`.
    """

    first_clusters = TrueGroups()
