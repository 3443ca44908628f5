"""The methods: one file and one line each."""

from cfljax.registry import Registry

METHODS = Registry(
    "method",
    {
        "fedavg": "cfljax.methods.fedavg:fedavg",
        "fedprox": "cfljax.methods.fedprox:fedprox",
        "local": "cfljax.methods.local:local",
        "oracle": "cfljax.methods.oracle:oracle",
    },
)
