"""HOST. From a data set to a federation: partitions say which client holds which samples, packing
makes the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfljax.registry import Registry

if TYPE_CHECKING:
    from cfljax.federation.common import Partition
    from cfljax.federation.groups import MakeView

INDEX_VIEWS = ("rotated", "label_swap", "label_permutation", "feature_shift")
"""The views of `groups.py`. A client can go over to another group's while a run trains
(`data.drift`), because a view is an index map. `corrupted` makes new samples instead."""
LABEL_VIEWS = ("rotated", "feature_shift")
"""The views that can change samples of some labels alone (`labels` of an entry of `data.views`)."""
PARTITIONS: Registry[Partition] = Registry(
    "partition",
    {
        "iid": "cfljax.federation.ungrouped:IID",
        "quantity": "cfljax.federation.ungrouped:QUANTITY",
        "shards": "cfljax.federation.labels:SHARDS",
        "classes": "cfljax.federation.labels:CLASSES",
        "dirichlet": "cfljax.federation.labels:DIRICHLET",
        "pachinko": "cfljax.federation.pachinko:PACHINKO",
        **{name: f"cfljax.federation.groups:{name.upper()}" for name in INDEX_VIEWS},
        "corrupted": "cfljax.federation.corrupted:CORRUPTED",
        "fedprox": "cfljax.federation.fedprox:FEDPROX",
        "domains": "cfljax.federation.domains:DOMAINS",
        "user": "cfljax.federation.ungrouped:USER",
        "file": "cfljax.federation.from_file:FILE",
    },
    "cfljax.partitions",
)
VIEWS: Registry[MakeView] = Registry(
    "view",
    {name: f"cfljax.federation.groups:{name.upper()}_VIEW" for name in INDEX_VIEWS}
    | {"corrupted": "cfljax.federation.corrupted:CORRUPTED_VIEW"},
)
