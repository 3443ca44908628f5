"""Inspect a results folder: `status` at a glance, `verify` to the last bit. Both only read."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TypedDict

from cfljax.store.folder import DamagedWarning
from cfljax.store.units import Store


class Counts(TypedDict):
    """Numbers of units."""

    done: int
    diverged: int
    failed: int
    # Being computed now
    claimed: int
    damaged: int
    # Of the plan's, without a record; None without a plan
    left: int | None
    planned: int | None
    # On record, but not in the plan
    earlier: int


def counts(folder: str | os.PathLike[str]) -> Counts:
    """Count the folder's units by state."""
    store = Store(folder, read_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedWarning)
        records = store.records()
        plan: list[str] | None = (store.read_plan() or {}).get("units")
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
    """Summarise the folder in one line: `12 of 20 runs: 10 done, 1 diverged, 1 failed; 2 being
    computed, 8 left`."""
    n = counts(folder)
    finished = n["done"] + n["diverged"] + n["failed"]
    total = f"{finished} of {n['planned']} runs" if n["planned"] is not None else f"{finished} runs"
    line = (
        f"{total}: {n['done']} done, {n['diverged']} diverged, {n['failed']} failed; "
        f"{n['claimed']} claimed"
    )
    if n["left"] is not None:
        line += f", {n['left']} left"
    if n["damaged"]:
        line += f"; {n['damaged']} damaged (computed again when the sweep is started)"
    if n["earlier"]:
        line += f"; {n['earlier']} of an earlier spec"
    return line


def count_busy_seconds(stores: Iterable[Store]) -> float:
    """Count the seconds in which batches were being computed, as the folders' logs say. Seconds in
    which several were computed side by side count once."""
    begun: dict[object, float] = {}
    spans = []
    for event in (each for store in stores for each in store.events()):
        if event["event"] == "begin":
            begun[event.get("batch")] = event["time"]
        elif event["event"] == "done" and event.get("batch") in begun:
            spans.append((begun.pop(event.get("batch")), event["time"]))
    total = 0.0
    until = 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def verify(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Map the id of every damaged unit to its error: each file is read and its SHA-256 compared.
    Empty if all is well."""
    store = Store(folder, read_only=True)
    problems = ((name, store.check(name)) for name in store.ids())
    return {name: problem for name, problem in problems if problem is not None}
