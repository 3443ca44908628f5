"""A sweep from its runs to a full results folder: what is there already is kept, what is missing is computed."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from cfljax import distributed, mesh, plan
from cfljax.config import Run, Spec
from cfljax.launch import together
from cfljax.launch.batch import InHalves, run_batch
from cfljax.launch.checkpoint import Keeper
from cfljax.local import speed
from cfljax.progress import Progress
from cfljax.store import OlderWarning, Store, older

OTHERS = (
    "a process of this sweep reads other data files, plugins or another version of cfljax than the one that laid down its plan: "
    "they have changed since, or are others on its machine; make them the same and start again"
)
"""What such a process says before it ends."""


class Options(NamedTuple):
    """How a sweep is carried out; none of it is part of a result."""

    keep: str = "labels"
    """What a unit keeps: "models" (and labels), "labels" or "none"."""
    quiet: bool = False
    retry_failed: bool = False
    target: float | None = None
    """Accuracy for `round_to_target`."""
    launcher: Any = None
    """The launcher's own options, checked."""
    shard: tuple[int, int] | None = None
    """(i, n): do the i-th of n equal parts of the runs and leave the rest to others."""


class Outcome(NamedTuple):
    """How many runs of the spec ended in which way, those of earlier starts included."""

    done: int
    diverged: int
    failed: int
    computed: int
    """Runs of this start."""


def carry_out(spec: Spec, store: Store, options: Options, limit: int | Callable[[Run], int] | None = None) -> Outcome:
    """Run what the folder lacks, in batches that share a program: of at most `limit` runs, else as many as the device's memory
    holds. Batches that another process is working on are left to it, and taken over if it dies."""
    todo = lay_down(spec, store, options, limit)
    with Progress(sum(map(rounds_of, todo)), sum(len(batch.runs) for batch in todo), options.quiet) as progress:
        for message in spec.warnings:
            progress.say(f"cfljax: {message}")
        work(todo, store, options, progress)
    return outcome(spec, store, todo)


def lay_down(
    spec: Spec, store: Store, options: Options, limit: int | Callable[[Run], int] | None = None, threads: int | None = None
) -> list[plan.Batch]:
    """Settle the plan; the batches that are still to do. `threads`: what each process computes with, if it is not all cores."""
    with store.claim("plan", wait=True):
        batches = _settle(spec, store, batch_limit if limit is None else limit, threads)
        there = store.done(redo(options), verify=True)
    return [batch for batch in _shared(spec, batches, options.shard) if any(run.id not in there for run in batch.runs)]


def mark(spec: Spec) -> str:
    """Equal for processes whose specs, data files and plugins make the same runs."""
    return hashlib.sha256("\n".join(run.id for run in spec.units()).encode()).hexdigest()


def _shared(spec: Spec, batches: list[plan.Batch], shard: tuple[int, int] | None) -> list[plan.Batch]:
    """The batches of a shard: those whose first run lies in its part of the spec, so that neighbours share programs."""
    if shard is None:
        return batches
    place = {run.id: at for at, run in enumerate(spec.units())}
    return [batch for batch in batches if place[batch.first.id] * shard[1] // len(place) == shard[0]]


def work(todo: list[plan.Batch], store: Store, options: Options, progress: Progress) -> None:
    """Do these batches, whoever does them, until all are done."""
    worker = Worker(store, options, redo(options), progress)
    while todo:
        others = [batch for batch in todo if not worker.take(batch)]
        todo = [batch for batch in others if not worker.finished(batch)]
        if todo:
            time.sleep(0.5)


def outcome(spec: Spec, store: Store, todo: list[plan.Batch]) -> Outcome:
    """How the runs of the spec have ended; `todo` is what was computed now."""
    records = store.records()
    statuses = [records[run.id]["status"] for run in spec.units() if run.id in records]
    computed = sum(len(batch.runs) for batch in todo)
    return Outcome(statuses.count("done"), statuses.count("diverged"), statuses.count("failed"), computed)


def redo(options: Options) -> tuple[str, ...]:
    """The statuses of units that are computed again."""
    return ("failed",) if options.retry_failed else ()


class Worker(NamedTuple):
    """Batches into units."""

    store: Store
    options: Options
    redo: tuple[str, ...]
    progress: Progress

    def finished(self, batch: plan.Batch) -> bool:
        """Whether all its units are there."""
        return all(self.store.has(run.id, self.redo) for run in batch.runs)

    def take(self, batch: plan.Batch) -> bool:
        """Do the batch, unless it is done; False when another process is at it."""
        with self.store.claim(batch.id) as mine:
            if not mine:
                return False
            if self.finished(batch):
                self.progress.pass_over(rounds_of(batch))
            else:
                self.compute(batch)
        return True

    def compute(self, batch: plan.Batch) -> None:
        """The batch's units, or those of its halves where it is too large for the device or a run of it raises."""
        told, name = [0], name_of(batch)
        self.progress.start(name, rounds_of(batch))

        def report(done: int, accuracy: float | None) -> None:
            self.progress.update((done - told[0]) * len(batch.runs), accuracy)
            told[0] = done

        keeper = self.keeper(batch)
        try:
            units = run_batch(batch, self.options.keep, self.options.target, report, keeper)
        except InHalves as why:
            self.progress.update(-told[0] * len(batch.runs))
            self.store.remove_checkpoint(batch.id)
            for part in self.split(batch, str(why)):
                self.compute(part)
            return
        for record, arrays in units:
            self.keep(name, record, arrays)
        keeper.remove()
        self.progress.update(rounds_of(batch) - told[0] * len(batch.runs))

    def keeper(self, batch: plan.Batch) -> Keeper:
        """Of its checkpoints. Where several processes compute together, the others learn here which batch comes next."""
        if not distributed.connected():
            return Keeper(self.store, batch.id)
        together.announce(batch)
        return together.Sharer(self.store, batch.id)

    def split(self, batch: plan.Batch, why: str) -> list[plan.Batch]:
        """The halves of a batch, in its place in the plan before they run; `why` is told if it is something."""
        parts = plan.halves(batch)
        words = f"{why} with {batch.width} runs side by side; {parts[0].width} from here on"
        if why:
            self.progress.say(f"cfljax: {name_of(batch)}: {words}")
        with self.store.claim("plan", wait=True):
            table = self.store.read_plan() or {"batches": []}
            whole = [run.id for run in batch.runs]
            rest = [entry for entry in table["batches"] if entry["runs"] != whole]
            table["batches"] = rest + [_entry(part) for part in parts]
            self.store.write_plan(table)
        return parts

    def keep(self, name: str, record: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Commit a unit and tell how it ended."""
        if not self.store.has(record["id"], self.redo):
            self.store.write(record["id"], record, arrays)
        self.progress.finish(record["status"])
        if record["status"] == "failed":
            self.progress.say(f"cfljax: {name} failed: {record['error']}")
        elif record["status"] == "diverged":
            self.progress.say(f"cfljax: {record['label']} (seed {record['seed']}) diverged in round {record['diverged_at']}")


def batch_limit(run: Run) -> int:
    """How many runs go through one program together. On a CPU they go one after another, so one; on an accelerator as many as
    half of its memory holds by the plan's estimate."""
    import jax

    from cfljax import assemble
    from cfljax.federation.pack import nbytes

    if assemble.sequential():
        return mesh.most_groups()
    federation = assemble.host_federation(run)
    size = {"clients": federation.clients, "pool_bytes": 0, "parameters": assemble.model_of(run, federation).size}
    each = max(plan.memory(plan.batches([run], 1)[0], size), 1)
    memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 8 << 30)
    return max(1, min(256, (memory // 2 - nbytes(federation)) // each)) * mesh.most_groups()


def rounds_of(batch: plan.Batch) -> int:
    """Of all its runs together."""
    return len(batch.runs) * batch.first.train.rounds


def as_laid_down(runs: list[Run], width: int) -> plan.Batch | None:
    """The batch of these runs in a program of this width; None where they do not share a program."""
    whole = plan.batches(runs, len(runs))
    if len(whole) != 1:
        return None
    key = whole[0].program_key.partition("/")[0]
    return plan.Batch(whole[0].runs, width, whole[0].key, f"{key}/{width}")


def _tell_of_older(store: Store, left: list[str]) -> None:
    """Name in one line what an earlier start has computed as an older version did, and this one leaves out."""
    found = (store.record(name) for name in left)
    if line := older.left(store, [record for record in found if record is not None]):
        warnings.warn(line, OlderWarning, stacklevel=2)


def _entry(batch: plan.Batch) -> dict[str, Any]:
    return {"runs": [run.id for run in batch.runs], "width": batch.width}


def name_of(batch: plan.Batch) -> str:
    """What people call the batch."""
    seeds = sorted({run.seed for run in batch.runs})
    return f"{batch.first.label} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"


def _settle(spec: Spec, store: Store, limit: int | Callable[[Run], int], threads: int | None) -> list[plan.Batch]:
    """The batches of the spec's runs. Those that an earlier start has laid down stay as they are (a run's last bits depend on
    its batch, on the number of threads and devices, and on what the machine's measured speed suggests); the rest is batched
    anew, and the plan is kept before anything runs."""
    runs, before = spec.units(), store.read_plan() or {}
    speed.use(speed.Speed(*before["speed"]) if "speed" in before else speed.known(speed.kept()))
    shape = before.get("mesh") if before else mesh.asked()
    mesh.ask(None if shape is None else mesh.Shape(*shape))
    earlier = before.get("batches", [])
    by_id = {run.id: run for run in runs}
    kept, taken = [], set()
    for ids in earlier:
        if all(name in by_id for name in ids["runs"]):
            batch = as_laid_down([by_id[name] for name in ids["runs"]], ids["width"])
            if batch is not None:
                kept.append(batch)
                taken.update(ids["runs"])
    batches = kept + plan.batches([run for run in runs if run.id not in taken], limit)
    place = {run.id: at for at, run in enumerate(runs)}
    batches.sort(key=lambda batch: place[batch.first.id])
    table: dict[str, Any] = {
        "name": spec.name,
        "threads": before.get("threads", threads),
        "devices": before.get("devices", jax.local_device_count()),
        "mesh": mesh.asked(),
        "speed": list(speed.known()),
        "units": [run.id for run in runs],
        "batches": [_entry(batch) for batch in batches],
    }
    _tell_of_older(store, [name for name in (before.get("units") if before else store.ids()) or [] if name not in by_id])
    if store.read_plan() != json.loads(json.dumps(table)):
        store.write_plan(table)
    return batches
