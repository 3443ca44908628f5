"""The types that all modules share. Each docstring begins with the shape: `f32[S, d]` is a float32
array with axes S and d. An axis has the same letter everywhere: C clients, S participants (the
cohort), K clusters, N samples of a client, B samples of a batch, d parameters, R runs, P rows of
the pool, T rows of a split, V views. HOST marks what runs outside of compiled programs, in numpy.
"""

from cfljax.quantity import Quantity
from cfljax.types.arrays import Array, HostHyper, Hyper, Tree, on_host
from cfljax.types.federation import (
    ClientState,
    Cohort,
    Devices,
    DevicesNow,
    Drift,
    Federation,
    Flight,
    Grams,
    Parts,
    Pool,
    Source,
    Split,
    View,
)
from cfljax.types.method import Info, Method, Models, OfClients, PreRound, Traffic
from cfljax.types.training import (
    Forward,
    Jobs,
    LocalStep,
    Model,
    OfLogits,
    Plan,
    Score,
    Updates,
)

__all__ = [
    "Array",
    "ClientState",
    "Cohort",
    "Devices",
    "DevicesNow",
    "Drift",
    "Federation",
    "Flight",
    "Forward",
    "Grams",
    "HostHyper",
    "Hyper",
    "Info",
    "Jobs",
    "LocalStep",
    "Method",
    "Model",
    "Models",
    "OfClients",
    "OfLogits",
    "Parts",
    "Plan",
    "Pool",
    "PreRound",
    "Quantity",
    "Score",
    "Source",
    "Split",
    "Traffic",
    "Tree",
    "Updates",
    "View",
    "on_host",
]
