"""Compute one batch, from its configuration to units in the results folder."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import os
import traceback
from collections.abc import Callable

import numpy as np

from cfljax import lazy
from cfljax.config import Run
from cfljax.config.frozen import to_plain
from cfljax.config.plugins import locate_error
from cfljax.devices import distributed
from cfljax.devices.machine import Machine
from cfljax.devices.mesh import CLIENTS, RUNS
from cfljax.engine.groups import default_flags, fetch
from cfljax.engine.metrics import score_clustering
from cfljax.engine.outputs import Output
from cfljax.engine.resume import CheckpointMismatch
from cfljax.engine.settings import Assembled
from cfljax.engine.simulate import simulate
from cfljax.errors import CfljaxError, DataError, SpecError, StoreError
from cfljax.experiment import times
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import Batch, check_memory
from cfljax.experiment.model_size import count_run_size
from cfljax.experiment.privacy import epsilon, epsilon_of_choices, find_crowd
from cfljax.federation.room import NO_ROOM, Room, find_phases
from cfljax.launch.checkpoints import Checkpoints, from_arrays, to_arrays
from cfljax.launch.continuing import pack_state
from cfljax.registry.options import Table, Value, show
from cfljax.registry.renamed import explain_old_name
from cfljax.store import provenance, summarise
from cfljax.types import Array, Federation, on_host


class SplitBatch(Exception):
    """Carry out the batch as its two halves: it is too large for the device's memory, or one of its
    runs raises an error."""


# What a unit may keep besides its curves
KEEP_CHOICES = ("state", "models", "labels", "none")
# (record, arrays) as `Store.write` takes them
Unit = tuple[Table, dict[str, np.ndarray]]
OnProgress = Callable[[int, float | None], None]
"""Is called with (rounds done, mean accuracy of the batch's runs; None where they have not just
been evaluated)."""
OnEvaluation = Callable[[Run, int, dict[str, float]], bool]
"""Is called at each evaluation of each run with (the run, rounds done, numbers by their names in
the history); True stops the run."""


class CallbackError(Exception):
    """The user's callback has raised the error that is the cause of this one."""


def run_batch(
    batch: Batch,
    machine: Machine,
    keep: str = "labels",
    progress: OnProgress | None = None,
    checkpoints: Checkpoints | None = None,
    catch: bool = True,
    until: int | None = None,
    callback: OnEvaluation | None = None,
) -> list[Unit]:
    """Compute a batch on this machine and return its units.

    Args:
        batch, machine: what is computed, and where.
        keep: what units keep, of KEEP_CHOICES; each includes the next.
        progress: is called after each chunk of rounds.
        checkpoints: where the batch's state is kept; None: nowhere.
        catch: an exception becomes `failed` records, so that a sweep goes on; but an error that the
            next batch would meet, too (no data, no disk), is raised, and SplitBatch if a smaller
            batch may do better.
        until: pause after this number of rounds, with a checkpoint; a paused batch has no units.
        callback: is called at each evaluation. What it raises is raised here, too."""
    units = []
    error = None
    # Outside of `try`: a JAX that cannot be imported is no fault of the run
    lazy.load()
    try:
        with default_flags():
            units = _compute_units(batch, machine, keep, progress, checkpoints, until, callback)
    except Exception as caught:
        error = caught
        if (place := locate_error(caught)) and (now := explain_old_name(caught)):
            error = SpecError(f"{place}{type(caught).__name__}: {caught}{now}")
    if distributed.is_connected():
        distributed.next_batch(error)
    if error is None:
        return units
    if isinstance(error, CallbackError) and error.__cause__ is not None:
        raise error.__cause__
    if not catch or isinstance(error, DataError | StoreError):
        raise error
    why = (
        str(error)
        if isinstance(error, CfljaxError)
        else f"{locate_error(error)}{type(error).__name__}: {error}"
    )
    too_large = batch.width > 1 and (
        "RESOURCE_EXHAUSTED" in str(error) or isinstance(error, MemoryError)
    )
    if too_large or len(batch.runs) > 1:
        # The error's traceback refers to the arrays of this batch, whose memory the halves need
        error = None
        gc.collect()
        raise SplitBatch("out of memory" if too_large else " ".join(why.split()))
    if os.environ.get("CFLJAX_DEBUG") and not isinstance(error, CfljaxError):
        traceback.print_exception(error)
    return [make_failed(run, why) for run in batch.runs]


def _compute_units(
    batch: Batch,
    machine: Machine,
    keep: str,
    progress: OnProgress | None,
    checkpoints: Checkpoints | None,
    until: int | None,
    callback: OnEvaluation | None,
) -> list[Unit]:
    """Assemble a batch, compute it, store its times, and make the units of its runs."""
    parts = assemble_batch(batch, machine)
    size = count_run_size(batch.first, parts.federation, parts.model)
    check_memory(batch, size, machine.memory)
    how = describe_plan(parts, batch.width, machine, batch.first.train.room)
    outputs = _simulate(batch, parts, how, progress, checkpoints, until, callback)
    if outputs and not distributed.is_connected():
        times.store_times(batch, size, outputs, machine.threads if machine.sequential else None)
    return [
        make_unit(run, output, keep, parts.federation, how)
        # There are no outputs at a pause, and more than runs if the last run pads the batch
        for run, output in zip(batch.runs, outputs, strict=False)
    ]


def describe_plan(parts: Assembled, width: int, machine: Machine, room: Room = NO_ROOM) -> str:
    """Describe the execution plan for records. The table in the text may be written as
    `train.plan`."""
    plan = parts.plan
    grid = {} if parts.mesh is None else dict(parts.mesh.shape)
    kept = parts.federation.train.grams is not None
    forced: Table = {"lanes": plan.lanes, "gram": plan.gram, "keep": kept, "stream": plan.stream}
    forced |= {"devices": grid.get(CLIENTS, 1), "pool": "sharded" if parts.sharded else "copied"}
    forced |= {"quick": True} if plan.quick else {}
    forced |= {name: size for name, size in room._asdict().items() if size is not None}
    groups = f" on {grid[RUNS]} groups of devices" if grid.get(RUNS, 1) > 1 else ""
    computing = ""
    if machine.sequential:
        computing = f", {machine.threads} thread{'s' if machine.threads > 1 else ''}"
    return f"{show(forced)}, {width} run{'s' if width > 1 else ''} at a time{groups}{computing}"


def _simulate(
    batch: Batch,
    parts: Assembled,
    plan: str,
    progress: OnProgress | None,
    checkpoints: Checkpoints | None,
    until: int | None,
    callback: OnEvaluation | None,
) -> list[Output]:
    """Simulate the batch, from its checkpoint if one fits; processes without `checkpoints` go on
    from process 0's. `plan`: the execution plan, in words."""

    def report_chunk(done: int, accuracy: np.ndarray) -> None:
        known = accuracy[np.isfinite(accuracy)]
        if progress is not None:
            progress(done, float(known.mean()) if len(known) else None)

    stops = False

    def show_evaluation(at: int, round: int, numbers: dict[str, float]) -> bool:
        nonlocal stops
        assert callback is not None
        # The slots behind the last run repeat it, and end with it
        if at < len(batch.runs):
            try:
                stops = callback(batch.runs[at], round, numbers)
            except Exception as error:
                raise CallbackError("a callback raised an error") from error
        return stops

    save = None if checkpoints is None else checkpoints.save
    compute = functools.partial(
        simulate,
        parts,
        batch.seeds,
        batch.hypers,
        progress=report_chunk,
        checkpoint=save,
        until=until,
        callback=None if callback is None else show_evaluation,
    )
    resume = None if checkpoints is None else checkpoints.load()
    if distributed.is_connected():
        arrays, meta = ({}, None) if resume is None else to_arrays(resume)
        names, meta = distributed.agree((list(arrays), meta))
        arrays = distributed.broadcast({name: arrays.get(name, 0) for name in names})
        resume = None if meta is None else from_arrays(arrays, meta)
    try:
        if resume is not None and resume.end is not None and resume.end.plan != plan:
            raise CheckpointMismatch(
                f"the shorter run was computed by another plan, {resume.end.plan} (now {plan})"
            )
        return compute(resume=resume)
    except CheckpointMismatch as why:
        if checkpoints is not None:
            checkpoints.refuse(str(why))
        return compute()


def make_unit(
    run: Run,
    output: Output,
    keep: str,
    federation: Federation | None = None,
    plan: str | None = None,
) -> Unit:
    """Make the unit of a finished run.

    Args:
        run: the run.
        output: its part of what the batch has computed.
        keep: what the unit keeps, of KEEP_CHOICES.
        federation: with it the report knows the true groups and the sizes of the clients.
        plan: see `describe_plan`."""
    if federation is not None:
        output, federation = _drop_dummies(output, federation)
    if output.diverged_at >= 0:
        status: Table = {"status": "diverged", "diverged_at": output.diverged_at}
    else:
        status = {"status": "done"}
    record = _make_record(
        run,
        **status,
        plan=plan,
        timings=output.seconds._asdict(),
        summary=_make_summary(run, output, federation),
    )
    if output.score != "accuracy":
        record["score"] = output.score
    if output.stopped_at >= 0:
        record["stopped_at"] = output.stopped_at
    arrays = _make_arrays(run, output, keep, federation)
    if keep == "state":
        state, record["state"] = pack_state(output.last, plan or "")
        arrays |= state
    return record, arrays


def _drop_dummies(output: Output, federation: Federation) -> tuple[Output, Federation]:
    """Return the output, and the federation without its samples, without the clients and phases
    that only pad them; both as they are if there are none."""
    real = np.flatnonzero(np.asarray(federation.uid) >= 0)
    drift = find_phases(federation.drift)
    if len(real) == federation.clients and drift is federation.drift:
        return output, federation
    pool = federation.pool
    nothing = pool._replace(
        x=on_host(np.zeros((0, *pool.x.shape[1:]), np.float32)),
        y=on_host(np.zeros((0, *pool.y.shape[1:]), np.asarray(pool.y).dtype)),
    )
    # On the host: on a device each number of clients would be a program
    known = fetch(dataclasses.replace(federation, pool=nothing, drift=drift))
    diag = dict(output.diag)
    if "mixture_of_clients" in diag:
        diag["mixture_of_clients"] = diag["mixture_of_clients"][:, real]
    output = output._replace(
        labels=output.labels[:, real], client_accuracy=output.client_accuracy[real], diag=diag
    )
    return output, known.take(on_host(real))


def _make_arrays(
    run: Run, output: Output, keep: str, federation: Federation | None
) -> dict[str, np.ndarray]:
    """Return the arrays of a unit: the curves, and of models and labels what `keep` says."""
    curves = {name: values for name, values in output.history.items() if values.ndim == 1}
    tables = {name: values for name, values in output.history.items() if values.ndim > 1}
    arrays = {f"history/{name}": _shrink(values) for name, values in curves.items()}
    arrays |= {
        f"diag/{run.method}/{name}": _shrink(values)
        for name, values in (tables | output.diag).items()
    }
    arrays["client_accuracy"] = output.client_accuracy
    if keep != "none":
        narrow = np.int16 if output.labels.max(initial=0) < 2**15 else np.int32
        arrays["labels"] = output.labels.astype(narrow)
        if federation is not None:
            rounds = output.history["round"]
            arrays["group"] = np.asarray(federation.at(int(rounds[-1])).group, np.int32)
            arrays["train_size"] = np.asarray(federation.train.count, np.int32)
            if federation.drift is not None:
                # Labels are kept of all evaluations, or of the last one
                labelled = rounds[-len(np.atleast_2d(output.labels)) :]
                arrays["groups"] = _find_true_groups(federation, labelled)
    if keep in ("state", "models"):
        arrays["models"] = output.models
    return arrays


def _make_summary(run: Run, output: Output, federation: Federation | None) -> Table:
    """Return the numbers of a run that tables show."""
    history = output.history
    last = int(history["round"][-1])
    drift = run.data.drift
    summary: Table = summarise(
        history,
        output.client_accuracy,
        spans=() if drift is None else drift.spans,
        score=output.score,
    )
    summary |= {f"{name}_last": float(history[name][-1]) for name in run.train.metrics or ()}
    if federation is not None and len(run.data.views) > 1 and run.data.true_groups is None:
        labels = np.atleast_2d(output.labels)[-1]
        summary |= _score_views(run, labels, federation.at(last).group)
    summary |= output.newcomers | output.finetuned
    if (clock := run.train.clock) is not None and clock.cost_per_s:
        summary["cost"] = clock.cost_per_s * float(history["device_s"][-1])
    if run.train.transit.privacy is not None and federation is not None:
        crowd = find_crowd(federation)
        spent = epsilon(run, crowd)
        # JSON has no infinity: a run without noise has no ε
        if not math.isinf(spent):
            summary["epsilon"] = spent
        choices = epsilon_of_choices(run, crowd)
        if choices is not None:
            summary["epsilon_choice"] = choices
    return summary


def _score_views(run: Run, labels: np.ndarray, group: Array) -> dict[str, float]:
    """Return the ARI of labels i[C] against the groups of each view alone, whose combinations
    `group` i[C] numbers."""
    sizes = {f"ari_{each.name}": each.options.groups for each in run.data.views}
    own = np.unravel_index(np.asarray(group) % math.prod(sizes.values()), tuple(sizes.values()))
    models = int(labels.max(initial=0)) + 1
    return {
        name: float(score_clustering(labels, of, models, sizes[name]).ari)
        for name, of in zip(sizes, own, strict=True)
    }


def _find_true_groups(federation: Federation, rounds: np.ndarray) -> np.ndarray:
    """Return the true group of each client after each of these rounds i32[E]: i16[E, C], or i32 if
    i16 cannot count the groups."""
    assert federation.drift is not None
    phase = np.searchsorted(np.asarray(federation.drift.begin), rounds, side="right") - 1
    groups = np.asarray(federation.drift.group)[phase]
    return groups.astype(np.int16 if federation.groups < 2**15 else np.int32)


def make_failed(run: Run, why: str) -> Unit:
    """Make the unit of a run that raised an error."""
    return _make_record(
        run, status="failed", error=" ".join(why.split()), timings={}, summary={}
    ), {}


def _make_record(run: Run, **facts: Value) -> Table:
    """Return the record of a run with these facts; fields that are not given say that there are
    none."""
    return {
        "id": run.id,
        "method": run.method,
        "label": run.label,
        "seed": run.seed,
        "config": run.resolved(),
        "contents": dict(run.contents),
        "varies": dict(run.varies),
        **({"left_out": to_plain(run.left_out)} if run.left_out else {}),
        "diverged_at": None,
        "error": None,
        "plan": None,
        **provenance(),
        **facts,
    }


def _shrink(values: np.ndarray) -> np.ndarray:
    """Return float32, except for counts such as bytes, which it does not hold exactly from 2^24
    on."""
    if values.dtype == np.float64 and np.max(np.abs(values), initial=0) < 2**24:
        return values.astype(np.float32)
    return values
