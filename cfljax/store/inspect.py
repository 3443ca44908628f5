"""What a results folder holds: `status` at a glance, `verify` to the last bit. Both only look."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from typing import Any

from cfljax.store.folder import DamagedWarning
from cfljax.store.units import Store


def planned(store: Store) -> list[str] | None:
    """Ids that the plan lists, in its order; None without a plan or when it lists none."""
    plan = store.read_plan()
    units = (plan or {}).get("units")
    return None if units is None else [str(name) for name in units]


def counts(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Units done, diverged, failed, claimed, damaged, left and planned; `left` and `planned` are None without a plan."""
    store = Store(folder, read_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedWarning)
        records, plan = store.records(), planned(store)
    names = set(records) if plan is None else set(plan) & set(records)
    by_status = Counter(records[name]["status"] for name in names)
    claimed = [name for name in store.claimed() if name not in records and name != "plan"]
    return {
        "done": by_status["done"],
        "diverged": by_status["diverged"],
        "failed": by_status["failed"],
        "claimed": len(claimed),
        "damaged": len(store.ids()) - len(records),
        "left": None if plan is None else len(set(plan) - names),
        "planned": None if plan is None else len(plan),
        "earlier": len(records) - len(names),
    }


def status(folder: str | os.PathLike[str]) -> str:
    """One line: `12 of 20 runs: 10 done, 1 diverged, 1 failed; 2 being computed, 8 left`."""
    n = counts(folder)
    finished = n["done"] + n["diverged"] + n["failed"]
    total = f"{finished} of {n['planned']} runs" if n["planned"] is not None else f"{finished} runs"
    text = f"{total}: {n['done']} done, {n['diverged']} diverged, {n['failed']} failed; {n['claimed']} claimed"
    if n["left"] is not None:
        text += f", {n['left']} left"
    if n["damaged"]:
        text += f"; {n['damaged']} damaged (computed again when the sweep is started)"
    if n["earlier"]:
        text += f"; {n['earlier']} of an earlier spec"
    return text


def verify(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Id -> what is wrong, of every damaged unit: each file is read and its SHA-256 compared. Empty when all is well."""
    store = Store(folder, read_only=True)
    found = {name: store.check(name) for name in store.ids()}
    return {name: problem for name, problem in found.items() if problem is not None}
