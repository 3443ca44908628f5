"""HOST. From a data set to a federation: partitions say which client holds which samples, packing
makes the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfljax.registry import Registry

if TYPE_CHECKING:
    from cfljax.federation.common import Partition
    from cfljax.federation.groups import MakeView

PARTITIONS: Registry[Partition] = Registry(
    "partition",
    {
        "iid": "cfljax.federation.ungrouped:IID",
        "quantity": "cfljax.federation.ungrouped:QUANTITY",
        "shards": "cfljax.federation.labels:SHARDS",
        "classes": "cfljax.federation.labels:CLASSES",
        "dirichlet": "cfljax.federation.labels:DIRICHLET",
        "pachinko": "cfljax.federation.pachinko:PACHINKO",
        "rotated": "cfljax.federation.groups:ROTATED",
        "label_swap": "cfljax.federation.groups:LABEL_SWAP",
        "label_permutation": "cfljax.federation.groups:LABEL_PERMUTATION",
        "feature_shift": "cfljax.federation.groups:FEATURE_SHIFT",
        "corrupted": "cfljax.federation.corrupted:CORRUPTED",
        "fedprox": "cfljax.federation.fedprox:FEDPROX",
        "domains": "cfljax.federation.domains:DOMAINS",
        "user": "cfljax.federation.ungrouped:USER",
    },
    "cfljax.partitions",
)
_IN_GROUPS = ("rotated", "label_swap", "label_permutation", "feature_shift")
VIEWS: Registry[MakeView] = Registry(
    "view",
    {name: f"cfljax.federation.groups:{name.upper()}_VIEW" for name in _IN_GROUPS}
    | {"corrupted": "cfljax.federation.corrupted:CORRUPTED_VIEW"},
)
