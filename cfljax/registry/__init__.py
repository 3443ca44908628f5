"""What specs may name: registries of entries, the options that an entry takes, and where a user's
entry comes from."""

from cfljax.registry.entries import Entry, Registry, adopt, list_origins, when_replaced
from cfljax.registry.options import NoOptions, option

__all__ = ["Entry", "NoOptions", "Registry", "adopt", "option", "list_origins", "when_replaced"]
