"""A small copy of a results folder, to be kept beside the code: no models, checkpoints, long
diagnostics, earlier labels."""

from __future__ import annotations

import os
from collections.abc import Iterable

from cfljax.errors import StoreError
from cfljax.store.units import Store

MAX_DIAGNOSTIC = 12_000  # Numbers of the largest diagnostic that is kept
DROPPED_KEYS = ("schema", "arrays", "sha256")  # Keys of a record that `Store.write` adds


def compact(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], units: Iterable[str] | None = None
) -> int:
    """Copy the units (by default all) with their spec and plan to the folder `out`; return the
    number of units."""
    source = Store(folder, read_only=True)
    if os.path.realpath(folder) == os.path.realpath(out):
        raise StoreError(f"{out}: is the folder itself; give another one for the copy")
    target = Store(out)
    names = source.ids() if units is None else list(units)
    for name in names:
        record, arrays = source.read(name)
        kept = {key: value for key, value in record.items() if key not in DROPPED_KEYS}
        arrays = {
            key: a
            for key, a in arrays.items()
            if key != "models" and (not key.startswith("diag/") or a.size <= MAX_DIAGNOSTIC)
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
