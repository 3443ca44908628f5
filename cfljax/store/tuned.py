"""The record of a search in a results folder: `tune.json`, what each setting scored at each rung, with its SHA-256."""

from __future__ import annotations

from cfljax.errors import StoreError
from cfljax.registry.options import Table
from cfljax.store.atomic import write_bytes
from cfljax.store.records import decode, encode
from cfljax.store.units import Store

SEARCH_FILE = "tune.json"
MAX_BYTES = 256 << 20


def read_search(store: Store) -> Table | None:
    """Read the record of the folder's search; None if it has none."""
    file = store.folder / SEARCH_FILE
    try:
        if file.stat().st_size > MAX_BYTES:
            raise StoreError(f"{file}: is larger than a search's record can be; move it away")
        table = decode(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{file}: cannot be read ({' '.join(str(error).split())[:80]}); move it away to start a new search"
        ) from error
    groups = table.get("groups")
    known = isinstance(groups, list) and all(isinstance(each, dict) and isinstance(each.get("settings"), list) for each in groups)
    if not known or not isinstance(table.get("rungs"), list):
        raise StoreError(f"{file}: is not a record of a search; move it away to start a new search")
    return table


def write_search(store: Store, table: Table) -> None:
    """Write the record of the folder's search atomically."""
    write_bytes(store.folder / SEARCH_FILE, encode(table))
