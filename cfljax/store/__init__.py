"""The results folder: atomic commit, verified read, resume."""

from cfljax.store.folder import DamagedWarning
from cfljax.store.inspect import counts, planned, status, verify
from cfljax.store.locks import Claim
from cfljax.store.older import OlderWarning
from cfljax.store.provenance import provenance, versions
from cfljax.store.records import RECORD_SCHEMA, STATUSES
from cfljax.store.summary import QUANTITIES, SECONDS, summarise
from cfljax.store.units import Store, Unit

__all__ = [
    "QUANTITIES",
    "RECORD_SCHEMA",
    "SECONDS",
    "STATUSES",
    "Claim",
    "DamagedWarning",
    "OlderWarning",
    "Store",
    "Unit",
    "counts",
    "planned",
    "provenance",
    "status",
    "summarise",
    "verify",
    "versions",
]
