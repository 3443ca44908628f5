"""The results folder: atomic commit, verified read, resume."""

from cfljax.store.folder import DamagedWarning
from cfljax.store.inspect import count_busy_seconds, counts, status, verify
from cfljax.store.locks import Claim
from cfljax.store.provenance import device, provenance
from cfljax.store.quantities import QUANTITIES, summarise
from cfljax.store.units import Store

__all__ = [
    "QUANTITIES",
    "Claim",
    "DamagedWarning",
    "Store",
    "count_busy_seconds",
    "counts",
    "device",
    "provenance",
    "status",
    "summarise",
    "verify",
]
