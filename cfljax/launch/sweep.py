"""A sweep from its runs to a full results folder: what is there already is kept, what is missing is computed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cfljax import plan
from cfljax.config import Run, Spec
from cfljax.launch.batch import run_batch
from cfljax.launch.checkpoint import Keeper
from cfljax.progress import Progress
from cfljax.store import Store


class Options(NamedTuple):
    """How a sweep is carried out; none of it is part of a result."""

    keep: str = "labels"
    """What a unit keeps: "models" (and labels), "labels" or "none"."""
    quiet: bool = False
    retry_failed: bool = False
    target: float | None = None
    """Accuracy for `round_to_target`."""


class Outcome(NamedTuple):
    """How many runs of the spec ended in which way, those of earlier starts included."""

    done: int
    diverged: int
    failed: int
    computed: int
    """Runs of this start."""


def carry_out(spec: Spec, store: Store, options: Options, limit: int | Callable[[Run], int] = 1) -> Outcome:
    """Run what the folder lacks, in batches of at most `limit` runs that share a program. Batches that another process is
    working on are left to it, and taken over if it dies."""
    runs = spec.runs()
    redo = ("failed",) if options.retry_failed else ()
    with store.claim("plan", wait=True):
        batches = _settle(spec, runs, store, limit)
        there = store.done(redo, verify=True)
    todo = [batch for batch in batches if any(run.id not in there for run in batch.runs)]
    computed = 0
    with Progress(sum(len(b.runs) * b.first.train.rounds for b in todo), options.quiet) as progress:
        for message in spec.warnings:
            progress.say(f"cfljax: {message}")
        while todo:
            others = []
            for batch in todo:
                with store.claim(batch.id) as mine:
                    if not mine:
                        others.append(batch)
                    elif not all(store.has(run.id, redo) for run in batch.runs):
                        computed += _one(batch, store, options, redo, progress)
                    else:
                        progress.update(len(batch.runs) * batch.first.train.rounds, _name(batch))
            todo = [batch for batch in others if not all(store.has(run.id, redo) for run in batch.runs)]
            if todo:
                time.sleep(0.5)
    records = store.records()
    statuses = [records[run.id]["status"] for run in runs if run.id in records]
    return Outcome(statuses.count("done"), statuses.count("diverged"), statuses.count("failed"), computed)


def _one(batch: plan.Batch, store: Store, options: Options, redo: tuple[str, ...], progress: Progress) -> int:
    """Compute a batch and keep its units; how many there were."""
    told = [0]

    def report(done: int, accuracy: float) -> None:
        progress.update((done - told[0]) * len(batch.runs), _name(batch), accuracy)
        told[0] = done

    keeper = Keeper(store, batch.id)
    units = run_batch(batch, options.keep, options.target, report, keeper=keeper)
    for record, arrays in units:
        if not store.has(record["id"], redo):
            store.write(record["id"], record, arrays)
        progress.finish(record["status"])
        if record["status"] == "failed":
            progress.say(f"cfljax: {_name(batch)} failed: {record['error']}")
        elif record["status"] == "diverged":
            progress.say(f"cfljax: {record['label']} (seed {record['seed']}) diverged in round {record['diverged_at']}")
    keeper.remove()
    progress.update((batch.first.train.rounds - told[0]) * len(batch.runs), _name(batch))
    return len(units)


def _name(batch: plan.Batch) -> str:
    seeds = sorted({run.seed for run in batch.runs})
    return f"{batch.first.label} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"


def _settle(spec: Spec, runs: list[Run], store: Store, limit: int | Callable[[Run], int]) -> list[plan.Batch]:
    """The batches of these runs. Those that an earlier start has laid down stay as they are (a run's last bits depend on
    its batch); the rest is batched anew, and the plan is kept before anything runs."""
    earlier = (store.read_plan() or {}).get("batches", [])
    by_id = {run.id: run for run in runs}
    kept, taken = [], set()
    for ids in earlier:
        if all(name in by_id for name in ids["runs"]):
            group = [by_id[name] for name in ids["runs"]]
            whole = plan.batches(group, len(group))
            if len(whole) == 1:
                batch = whole[0]
                key = batch.program_key.partition("/")[0]
                kept.append(plan.Batch(batch.runs, ids["width"], batch.key, f"{key}/{ids['width']}"))
                taken.update(ids["runs"])
    batches = kept + plan.batches([run for run in runs if run.id not in taken], limit)
    place = {run.id: at for at, run in enumerate(runs)}
    batches.sort(key=lambda batch: place[batch.first.id])
    table: dict[str, Any] = {
        "name": spec.name,
        "units": [run.id for run in runs],
        "batches": [{"runs": [run.id for run in b.runs], "width": b.width} for b in batches],
    }
    if store.read_plan() != json.loads(json.dumps(table)):
        store.write_plan(table)
    return batches
