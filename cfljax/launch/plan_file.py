"""The plan of a results folder, plan.json, which is made once: how runs are batched, and the
threads, devices, mesh and measured speed of every process that computes them. A run's last bits
depend on it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Callable

from cfljax.config import Run, Spec
from cfljax.devices.machine import Machine, Speed, read_or_measure, speed_file
from cfljax.devices.mesh import Shape
from cfljax.errors import SpecError
from cfljax.experiment import batching
from cfljax.experiment.widths import batch_limit
from cfljax.registry.options import Table
from cfljax.store import Store

OTHER_SWEEP_ERROR = (
    "a process of this sweep reads other data files, plugins or another version of cfljax "
    "than the one that laid down its plan: "
    "they have changed since, or are others on its machine; make them the same and start again"
)
"""What a process whose runs are others than the plan's says before it ends."""


def fingerprint(spec: Spec) -> str:
    """Return 64 hexadecimal digits that are equal for processes whose specs, data files and
    plug-ins make the same runs."""
    return hashlib.sha256("\n".join(run.id for run in spec.units()).encode()).hexdigest()


PreparedBatches = tuple[list[batching.Batch], Machine]
"""The batches of a sweep, and this machine with the mesh and the measured speed that plan.json
has."""


def make_plan(
    spec: Spec,
    store: Store,
    machine: Machine,
    limit: int | Callable[[list[Run]], int] | None,
    threads: int | None,
) -> PreparedBatches:
    """Divide the spec's runs into batches and write the plan before anything runs. Batches of an
    earlier start stay as they are, and so do the number of threads and devices, the mesh, and the
    machine's measured speed. `limit`: the most runs of a batch; None: as many as the machine's
    memory holds."""
    runs = spec.units()
    before = store.read_plan() or {}
    speed = (
        Speed(*before["speed"]) if "speed" in before else read_or_measure(speed_file(machine.kind))
    )
    machine = machine._replace(known_speed=speed, mesh=choose_mesh(store, before, machine.mesh))
    machine.shape()
    by_id = {run.id: run for run in runs}
    known = [
        each for each in before.get("batches", []) if all(name in by_id for name in each["runs"])
    ]
    laid_down = [
        make_batch([by_id[name] for name in each["runs"]], each["width"]) for each in known
    ]
    kept = [batch for batch in laid_down if batch is not None]
    taken = {run.id for batch in kept for run in batch.runs}
    rest = [run for run in runs if run.id not in taken]
    batches = kept + batching.make_batches(
        rest, functools.partial(batch_limit, machine=machine) if limit is None else limit
    )
    index = {run.id: at for at, run in enumerate(runs)}
    batches.sort(key=lambda batch: index[batch.first.id])
    table: Table = {
        "threads": before.get("threads") or threads or machine.threads,
        "devices": before.get("devices", machine.devices),
        "backend": before.get("backend") if before else machine.backend,
        "mesh": machine.mesh,
        "speed": machine.speed,
        **spec.describe_sweep(),
        "batches": [to_entry(batch) for batch in batches],
    }
    if before != json.loads(json.dumps(table)):
        store.write_plan(table)
    return batches, machine


def choose_threads(store: Store, wanted: int | None) -> int:
    """Return the threads of each task: as the folder was begun, with a line if `--cpus-per-task`
    asks for others; else 1."""
    threads = int((store.read_plan() or {}).get("threads") or wanted or 1)
    if wanted not in (None, threads):
        print(
            f"cfljax: --cpus-per-task {wanted}: {store.folder} was begun with {threads}, and "
            "continues so",
            file=sys.stderr,
        )
    return threads


def choose_mesh(store: Store, before: Table, wanted: Shape | None) -> Shape | None:
    """Return the mesh of the folder's plan, else the requested one; raise a SpecError if they
    differ."""
    if not before:
        return wanted
    laid = None if before.get("mesh") is None else Shape(*before["mesh"])
    if wanted not in (None, laid):
        has = "no mesh" if laid is None else f"--mesh {laid}"
        advice = "leave out --mesh" if laid is None else "give that"
        raise SpecError(
            f"--mesh {wanted}: {store.folder} was begun with {has}, as its plan.json says; "
            f"{advice}, or another folder"
        )
    return laid


def list_differences(store: Store, machine: Machine) -> list[str]:
    """List in sentences how this process differs from the folder's plan."""
    before = store.read_plan() or {}
    lines = []
    here = {
        "devices": machine.devices,
        "threads": machine.threads if machine.sequential else before.get("threads"),
    }
    for name, number in here.items():
        if before.get(name, number) != number:
            why = (
                f"{store.folder} was begun with {before[name]} {name}, and this process has "
                f"{number}"
            )
            lines.append(
                f"{why}: what it computes agrees with the rest to rounding, not to the last bit"
            )
    if before.get("backend") not in (None, machine.backend):
        why = (
            f"{store.folder} was begun on a {before['backend'].upper()}, and this is a "
            f"{machine.backend.upper()}"
        )
        lines.append(
            f"{why}: its batches stay as wide as they are; begin in another folder to have "
            "those that suit this machine"
        )
    return lines


def make_batch(runs: list[Run], width: int) -> batching.Batch | None:
    """Return the batch of these runs in a program of this width; None if they do not share a
    program."""
    whole = batching.make_batches(runs, len(runs))
    if len(whole) != 1:
        return None
    return dataclasses.replace(whole[0], width=width)


def to_entry(batch: batching.Batch) -> Table:
    """Return the batch as plan.json has it."""
    return {"runs": [run.id for run in batch.runs], "width": batch.width}
