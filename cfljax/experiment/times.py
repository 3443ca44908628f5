"""HOST. How long runs have taken on this machine while nothing else kept it busy. Each batch stores
it in the cache folder, where a dry run reads it."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cfljax.devices.cores import find_accelerator, list_cores
from cfljax.files import cache_folder, read_table, write_table

if TYPE_CHECKING:
    from cfljax.engine.outputs import Output
    from cfljax.experiment.batching import Batch, Size

EVALUATION_SHARE = 1 / 3
"""The share of a run's seconds from which evaluation is worth a line."""
# How many programs' times the file keeps; when there are more, it begins again
MAX_STORED_TIMES = 2000
# A program that was found compiled is expected to take this share of what it took before
RECOMPILED_SHARE = 0.8
# Processes per core from which a machine is busy with something else: a sweep uses each core once
BUSY_LOAD = 1.25


class Times(NamedTuple):
    """What a batch has taken, in seconds of one core or of the accelerator."""

    train: float  # For each unit of `_count_work`
    evaluate: float  # For each unit of `_count_scoring`
    setup: float
    compile: float


def store_times(batch: Batch, size: Size, outputs: Collection[Output], threads: int | None) -> None:
    """Store the times of a batch. If other processes keep the machine busy, only
    what nothing is known of is stored. `threads`: how many cores of a CPU it used; None: it ran on
    an accelerator."""
    file = _file(threads is not None)
    rounds = max(int(output.history["round"][-1]) for output in outputs)
    evaluations = max(len(output.history["round"]) for output in outputs)
    columns = zip(*(output.seconds for output in outputs), strict=True)
    compiled, trained, evaluated, setup = (
        (threads or 1) * float(sum(column)) for column in columns
    )
    kept = read_table(file, _is_times)
    names = _list_keys(batch)
    done = max(_count_work(batch, size) * rounds / batch.first.train.rounds, 1.0)
    scored = max(_count_scoring(batch, size, evaluations), 1.0)
    now = Times(trained / done, evaluated / scored, setup, compiled)
    busy = _is_busy()
    for name in names:
        if (stored := kept.get(name)) is None:
            kept[name] = list(now)
            continue
        if busy:
            continue
        before = Times(*stored)
        longest = max(compiled, RECOMPILED_SHARE * before.compile)
        # Of one program the fastest batch is the one that was disturbed least
        quiet = map(min, now, before) if name == batch.shape_key else now
        kept[name] = list(Times(*quiet)._replace(compile=longest))
    write_table(
        file, {name: kept[name] for name in names} if len(kept) > MAX_STORED_TIMES else kept
    )


def estimate(batches: Collection[Batch], sizes: Collection[Size]) -> list[float | None]:
    """Estimate the seconds of each batch on this machine: by the last batch with the same program,
    else the same method, else the same model, on the same data; None if there was none. A program
    is compiled once."""
    here = uses_cpu()
    kept = read_table(_file(here), _is_times)
    compiled = set()
    found: list[float | None] = []
    for batch, size in zip(batches, sizes, strict=True):
        took = _find(kept, batch)
        again = batch.program_key in compiled
        compiled.add(batch.program_key)
        if took is None:
            found.append(None)
            continue
        trained = took.train * _count_work(batch, size)
        evaluated = took.evaluate * _count_scoring(batch, size)
        compiling = 0.0 if again else took.compile
        found.append(trained + evaluated + took.setup + compiling)
    return found


def advise_on_evaluation(batches: Collection[Batch], sizes: Collection[Size]) -> list[str]:
    """Return a line for each batch whose evaluations are expected to take more than a third of its
    seconds, with what would change that; "" for others."""
    kept = read_table(_file(uses_cpu()), _is_times)
    found = ((batch, size, _find(kept, batch)) for batch, size in zip(batches, sizes, strict=True))
    return ["" if took is None else _advise(batch, size, took) for batch, size, took in found]


def _advise(batch: Batch, size: Size, took: Times) -> str:
    """Return the line of a batch that is expected to take these times."""
    train = batch.first.train
    trained = took.train * _count_work(batch, size)
    evaluated = took.evaluate * _count_scoring(batch, size)
    if evaluated <= EVALUATION_SHARE * (trained + evaluated):
        return ""
    # Half as much as the training is a third of all
    factor = math.ceil(2 * evaluated / max(trained, 1e-9))
    share = evaluated / (trained + evaluated)
    scored = _count_scored(batch, size)
    every, fewer = min(train.eval_every * factor, train.rounds), max(1, scored // factor)
    rarer = _count_evaluations(train.rounds, every) / _count_evaluations(
        train.rounds, train.eval_every
    )
    remedies = {f"eval_every = {every}": rarer, f"eval_clients = {fewer}": fewer / scored}
    told = [
        f"train.{name} saves {share * (1 - left):.0%}"
        for name, left in remedies.items()
        if left < 1
    ]
    return f"evaluation takes about {share:.0%} of the time; {', '.join(told)}" if told else ""


def _find(kept: Mapping[str, list[float]], batch: Batch) -> Times | None:
    """Return the times of the batch that was most like this one; None: there was none."""
    found = next((kept[name] for name in _list_keys(batch) if name in kept), None)
    return None if found is None else Times(*found)


def describe_estimates(estimates: Collection[float | None]) -> str:
    """Sum up in a line how long batches with these estimates take together."""
    known = [each for each in estimates if each is not None]
    if not known:
        return "time on this machine: unknown, as this machine has not run anything similar"
    least = "about" if len(known) == len(estimates) else "at least"
    seconds = sum(known) / (len(list_cores()) if uses_cpu() else 1)
    return (
        f"time on this machine: {least} {format_seconds(seconds)} while nothing else runs on it, "
        "by the times of its runs"
    )


def format_seconds(seconds: float) -> str:
    """Format seconds as `m:ss`, or `h:mm:ss`."""
    whole = int(seconds)
    hours = whole // 3600
    minutes = whole // 60 % 60
    rest = whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _is_busy() -> bool:
    """Return whether more processes want to run than the machine has cores, on average over the
    last minute; False where the system does not tell."""
    if not hasattr(os, "getloadavg"):
        return False
    return os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)


def uses_cpu() -> bool:
    """Return whether runs are computed on the CPU, as far as is known without JAX."""
    return find_accelerator() is None or "cpu" in os.environ.get("JAX_PLATFORMS", "")


def _list_keys(batch: Batch) -> tuple[str, str, str]:
    """Return the keys under which the times of a batch are stored, the closest first."""
    run = batch.first
    alike = f"{run.model.name} {run.data.name} {'steps' if run.train.epochs is None else 'epochs'}"
    return batch.shape_key, f"{run.method} {alike}", alike


def _count_work(batch: Batch, size: Size) -> float:
    """Return what the seconds of runs that differ only in their sizes are proportional to."""
    run = batch.first
    part = run.train.participants(size.learners)
    batched = 1 if run.train.batch == "full" else int(run.train.batch)
    each = (
        (run.train.steps or 1) * batched
        if run.train.epochs is None
        else run.train.epochs / size.clients
    )
    return len(batch.runs) * run.train.rounds * part * each * size.parameters


def _count_scoring(batch: Batch, size: Size, evaluations: int | None = None) -> float:
    """Return what the seconds of evaluating are proportional to. `evaluations`: how many there
    were; None: those of all rounds."""
    train = batch.first.train
    if evaluations is None:
        evaluations = _count_evaluations(train.rounds, train.eval_every)
    return float(len(batch.runs) * evaluations * _count_scored(batch, size) * size.parameters)


def _count_evaluations(rounds: int, every: int) -> int:
    """Return how many evaluations a run has: before the rounds, every so many, and the last."""
    return 1 + math.ceil(rounds / every)


def _count_scored(batch: Batch, size: Size) -> int:
    """Return how many clients an evaluation scores."""
    return min(batch.first.train.eval_clients or size.clients, size.clients)


def _file(on_cpu: bool) -> Path:
    """Return the file of the times of this machine's CPU, or of its accelerator."""
    node = "".join(c if c.isalnum() else "-" for c in platform.node().lower())
    return cache_folder() / f"times-{node}-{'cpu' if on_cpu else 'accelerator'}.json"


def _is_times(value: object) -> bool:
    """Return whether the value is the numbers of `Times`, as `store_times` writes them."""
    return (
        isinstance(value, list)
        and len(value) == len(Times._fields)
        and all(type(v) is float and 0 <= v < 1e12 for v in value)
    )
