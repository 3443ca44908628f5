"""A small copy of a results folder, to be kept beside the code: no models, last states,
checkpoints, long diagnostics, earlier labels, and no paths of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cfljax.errors import StoreError
from cfljax.registry.options import Table
from cfljax.store.units import STATE_PREFIX, Store

# The most numbers of a diagnostic that is kept
MAX_DIAGNOSTIC = 12_000
# Keys of a record that `Store.write` adds, or that belong to arrays which are left out
DROPPED_KEYS = ("schema", "arrays", "sha256", "state")


def compact(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], units: Iterable[str] | None = None
) -> int:
    """Copy the units (by default all) with their spec and plan to the folder `out`; return the
    number of units. A plug-in is named by its path in its repository."""
    source = Store(folder, read_only=True)
    if os.path.realpath(folder) == os.path.realpath(out):
        raise StoreError(f"{out}: is the folder itself; give another one for the copy")
    target = Store(out)
    names = source.ids() if units is None else list(units)
    for name in names:
        record, arrays = source.read(name)
        kept = {key: value for key, value in record.items() if key not in DROPPED_KEYS}
        kept |= _name_plugins(record)
        arrays = {
            key: a
            for key, a in arrays.items()
            if key != "models"
            and not key.startswith(STATE_PREFIX)
            and (not key.startswith("diag/") or a.size <= MAX_DIAGNOSTIC)
        }
        if "labels" in arrays and arrays["labels"].ndim == 2:
            arrays["labels"] = arrays["labels"][-1]
        target.write(name, kept, arrays)
    if (text := source.read_spec()) is not None:
        target.write_spec(text)
    if (plan := source.read_plan()) is not None:
        target.write_plan({key: plan[key] for key in ("name", "units", "labels") if key in plan})
    for empty in (target.checkpoints, target.locks):
        if not any(empty.iterdir()):
            empty.rmdir()
    return len(names)


def _name_plugins(record: Table) -> Table:
    """Return the configuration of a record with its plug-ins by their paths in their
    repositories."""
    config = record.get("config")
    if not isinstance(config, dict) or "plugins" not in config:
        return {}
    return {"config": config | {"plugins": [_in_repository(path) for path in config["plugins"]]}}


def _in_repository(path: str) -> str:
    """Return an absolute path relative to the top of its repository, or else to the current folder;
    as it is if it is in neither."""
    file = Path(path)
    if not file.is_absolute():
        return path
    tops = (folder for folder in file.parents if (folder / ".git").exists())
    top = next(tops, Path.cwd())
    return file.relative_to(top).as_posix() if file.is_relative_to(top) else path
