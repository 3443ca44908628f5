"""HOST. Partitions (who holds which samples of a source), and packing into the Federation pytree."""

from cfljax.registry import Registry

PARTITIONS = Registry(
    "partition",
    {
        "iid": "cfljax.federation.sizes:IID",
        "quantity": "cfljax.federation.sizes:QUANTITY",
        "shards": "cfljax.federation.labels:SHARDS",
        "classes": "cfljax.federation.labels:CLASSES",
        "dirichlet": "cfljax.federation.labels:DIRICHLET",
        "rotated": "cfljax.federation.groups:ROTATED",
        "label_swap": "cfljax.federation.groups:LABEL_SWAP",
        "label_permutation": "cfljax.federation.groups:LABEL_PERMUTATION",
        "feature_shift": "cfljax.federation.groups:FEATURE_SHIFT",
        "fedprox": "cfljax.federation.recipes:FEDPROX",
        "femnist_fedgroup": "cfljax.federation.recipes:FEMNIST_FEDGROUP",
        "overlap": "cfljax.federation.papers:OVERLAP",
        "imbalance": "cfljax.federation.papers:IMBALANCE",
        "user": "cfljax.federation.natural:USER",
    },
    "cfljax.partitions",
)
