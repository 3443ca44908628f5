"""What a sweep would do, for its flags --dry-run and --explain: nothing is trained."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cfljax.config import Spec
    from cfljax.devices.machine import Machine
    from cfljax.experiment.batching import Batch

NO_DEVICE_HAS_LESS = 1 << 30
"""Bytes of memory: what methods hold is compared with that of this machine only where it is more."""


def dry_run(spec: Spec, target: str | None, mesh: str | None, explained: bool = False) -> int:
    """Print what would run: on this machine, or on the chip `target`, and how it would train there if `explained`. SpecError where
    a method would hold more than its memory."""
    from cfljax.experiment import assemble, batching
    from cfljax.experiment.dry_run import dry_run as would_run
    from cfljax.experiment.model_size import size_of_run
    from cfljax.experiment.privacy import Crowd, crowd_of

    if target is not None:
        return _dry_run_on(spec, target, mesh, explained)
    batches = batching.batches(spec.runs(), 1)
    sizes: dict[str, batching.Size] = {}

    def size(batch: batching.Batch) -> batching.Size:
        if batch.id not in sizes:
            federation = assemble.host_federation(batch.first)
            sizes[batch.id] = size_of_run(batch.first, federation)
        return sizes[batch.id]

    def crowd(batch: batching.Batch) -> Crowd:
        return crowd_of(assemble.host_federation(batch.first))

    for message in spec.warnings:
        print(f"cfljax: {message}", file=sys.stderr)
    print(would_run(batches, size, crowd))
    if batching.most_held((batch, size(batch)) for batch in batches) > NO_DEVICE_HAS_LESS:
        from cfljax.devices.machine import this_machine  # starts JAX's backend, which takes seconds where there are accelerators

        for batch in batches:
            batching.check_memory(batch, size(batch), this_machine().memory)
    return 0


def _dry_run_on(spec: Spec, target: str, mesh: str | None, explained: bool) -> int:
    """Print what would run on the chip `target`. SpecError where a method would hold more than its memory."""
    from cfljax.devices import chips
    from cfljax.devices.mesh import parse
    from cfljax.experiment import assemble, batching, needs
    from cfljax.experiment.dry_run import dry_run as would_run
    from cfljax.experiment.model_size import size_of_run
    from cfljax.experiment.privacy import Crowd, crowd_of
    from cfljax.launch.plan_file import batch_limit

    machine = chips.machine_of(target, None if mesh is None else parse(mesh))
    batches = batching.batches(spec.runs(), lambda run: batch_limit(run, machine))

    def size(batch: batching.Batch) -> batching.Size:
        federation = assemble.host_federation(batch.first)
        return size_of_run(batch.first, federation, assemble.model_of(batch.first, federation))

    def crowd(batch: batching.Batch) -> Crowd:
        return crowd_of(assemble.host_federation(batch.first))

    def taken(batch: batching.Batch) -> int:
        federation = assemble.host_federation(batch.first)
        return needs.bytes_of(batch, federation, assemble.model_of(batch.first, federation), machine)

    for message in spec.warnings:
        print(f"cfljax: {message}", file=sys.stderr)
    print(f"{chips.explain(target, machine)}; a batch is as wide as fills half of that")
    print(would_run(batches, size, crowd, taken))
    if explained:
        print(_ways(batches, machine))
    for message in _misfits(batches, machine, taken):
        print(f"cfljax: {message}", file=sys.stderr)
    for batch in batches:
        batching.check_memory(batch, size(batch), machine.memory)
    return 0


def _misfits(batches: list[Batch], machine: Machine, taken: Callable[[Batch], int]) -> list[str]:
    """What of the sweep does not suit the chip, in sentences."""
    from cfljax.experiment.batching import amount

    largest = max(batches, key=taken)
    used, found = math.prod(machine.shape(largest.width)), []
    if used < machine.devices:
        found.append(f"--mesh: {used} of {machine.devices} devices compute, and the others have nothing to do")
    if (most := taken(largest)) > machine.memory:
        why = f"{largest.first.label} on {largest.first.data.name} would take {amount(most)} for a single run, and there are"
        found.append(f"{why} {amount(machine.memory)}: it will hardly fit; take fewer participants, a smaller batch or model")
    return found


def _ways(batches: list[Batch], machine: Machine) -> str:
    """How the clients of each program would be trained on a chip that is not here."""
    from cfljax.experiment import assemble, execution

    lines: dict[str, str] = {}
    for batch in batches:
        federation = assemble.host_federation(batch.first)
        model = assemble.model_of(batch.first, federation)
        runs = math.ceil(batch.width / machine.shape(batch.width).runs)
        name = f"{batch.first.label} on {batch.first.data.name}, {model.name}, {runs} run{'s' if runs > 1 else ''} side by side"
        choice = execution.choose(batch.first, model, federation, machine, runs)
        lines.setdefault(batch.program_key, execution.explain(name, choice))
    return "\n".join(lines.values())


def explain(spec: Spec, workers: int | None) -> int:
    """Print how each program's clients would be trained on this machine, what each way would cost, and what must be compiled."""
    from cfljax.devices.cores import use_cores
    from cfljax.devices.machine import this_machine
    from cfljax.engine import known
    from cfljax.experiment import assemble, batching, execution
    from cfljax.launch.batch import assembled
    from cfljax.launch.plan_file import batch_limit

    runs = spec.runs()
    if len(runs) == 1 or workers == 1:
        use_cores()
    machine = this_machine(speed=None)
    print(execution.explain_machine(machine))
    lines: dict[str, str] = {}
    for batch in batching.batches(runs, lambda run: batch_limit(run, machine)):
        if batch.program_key not in lines:
            federation = assemble.federation_of(batch.first)
            model = assemble.model_of(batch.first, federation)
            name = f"{batch.first.label} on {batch.first.data.name}, {model.name}"
            choice = execution.choose(batch.first, model, federation, machine, batch.width)
            then = known.seconds_then(assembled(batch, machine))
            lines[batch.program_key] = f"{execution.explain(name, choice)}\n  {_compiling(then)}"
    print("\n".join(lines.values()))
    return 0


def _compiling(then: float | None) -> str:
    """What is said of programs that took `then` seconds to compile when they were; None: they are not in the cache."""
    if then is None:
        return "programs to be compiled, for this shape of the data"
    return f"programs compiled before, in {then:.3g} s, and kept in the cache"
