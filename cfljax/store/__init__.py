"""The results folder: atomic commit, verified read, resume."""

from cfljax.store.folder import DamagedWarning
from cfljax.store.inspect import count_busy_seconds, counts, status, verify
from cfljax.store.locks import Claim
from cfljax.store.provenance import device, provenance
from cfljax.store.summary import QUANTITIES, SECONDS_COLUMNS, summarise, summarise_drift
from cfljax.store.units import Store

__all__ = [
    "QUANTITIES",
    "SECONDS_COLUMNS",
    "Claim",
    "DamagedWarning",
    "Store",
    "count_busy_seconds",
    "counts",
    "device",
    "provenance",
    "status",
    "summarise",
    "summarise_drift",
    "verify",
]
