"""What a sweep would do, for its flags --dry-run and --explain: nothing is trained."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from cfljax.commands import as_json

if TYPE_CHECKING:
    from cfljax.config import Spec
    from cfljax.engine.settings import Assembled

# Bytes of memory: what methods hold is compared with this machine's memory only if it is more
NO_DEVICE_HAS_LESS = 1 << 30


def dry_run(spec: Spec, json: bool = False) -> None:
    """Print what would run, in words or as JSON; raise a SpecError for what a run would refuse, and
    for more than this machine's memory."""
    from cfljax.commands.methods import describe
    from cfljax.experiment import assemble, batching
    from cfljax.experiment.dry_run import dry_run as would_run
    from cfljax.experiment.dry_run import to_table
    from cfljax.experiment.federations import check_clients, check_labels
    from cfljax.experiment.model_size import count_run_size
    from cfljax.experiment.privacy import Crowd, find_crowd

    batches = batching.make_batches(spec.runs(), 1)
    sizes: dict[str, batching.Size] = {}

    def size(batch: batching.Batch) -> batching.Size:
        if batch.id not in sizes:
            federation = assemble.host_federation(batch.first)
            check_clients(batch.first, federation)
            check_labels(batch.first, federation)
            assemble.check_tokens(batch.first)
            sizes[batch.id] = count_run_size(batch.first, federation)
        return sizes[batch.id]

    def crowd(batch: batching.Batch) -> Crowd:
        return find_crowd(assemble.host_federation(batch.first))

    for message in spec.warnings:
        print(f"cfljax: {message}", file=sys.stderr)
    abouts = {run.label: describe(run.method).about for run in spec.runs()}
    sent = [
        f"  {label}: {about.communication}." if about else f"  {label}: as its docstring says"
        for label, about in abouts.items()
    ]
    if json:
        table = to_table(batches, size) | {"warnings": list(spec.warnings)}
        said = as_json.write(table)
    else:
        said = would_run(batches, size, crowd, sent)
        print(said)
    if any(
        batching.count_client_state(batch.first, size(batch)) > NO_DEVICE_HAS_LESS
        for batch in batches
    ):
        from cfljax.devices.machine import (
            # starts JAX's backend, which takes seconds where there are accelerators
            describe_machine,
        )

        for batch in batches:
            batching.check_memory(batch, size(batch), describe_machine().memory)
    # One object: the error of a sweep that does not fit takes its place
    if json:
        print(said)


def time_of(spec: Spec) -> str:
    """Estimate the time that the spec would take on this machine."""
    from cfljax.experiment import assemble, batching, times
    from cfljax.experiment.model_size import count_run_size

    batches = batching.make_batches(spec.runs(), 1)
    sizes = [
        count_run_size(batch.first, assemble.host_federation(batch.first)) for batch in batches
    ]
    return times.describe_estimates(times.estimate(batches, sizes))


def explain(spec: Spec, workers: int | None) -> int:
    """Print how each program's clients would be trained on this machine, what each way would cost,
    and the form of the rounds."""
    from cfljax.devices.cores import use_cores
    from cfljax.devices.machine import describe_machine
    from cfljax.experiment import assemble, batching, execution, times
    from cfljax.experiment.model_size import count_run_size
    from cfljax.experiment.widths import batch_limit

    runs = spec.runs()
    if len(runs) == 1 or workers == 1:
        use_cores()
    machine = describe_machine(speed=None)
    print(execution.explain_machine(machine))
    lines: dict[str, str] = {}
    batches = batching.make_batches(runs, functools.partial(batch_limit, machine=machine))
    sizes = []
    for batch in batches:
        sizes.append(count_run_size(batch.first, assemble.host_federation(batch.first)))
        if batch.program_key not in lines:
            federation = assemble.federation_of(batch.first)
            model = assemble.model_of(batch.first, federation)
            name = f"{batch.first.label} on {batch.first.data.name}, {model.name}"
            choice = execution.choose_plan(batch.first, model, federation, machine, batch.width)
            form = _explain_form(assemble.assemble_batch(batch, machine))
            lines[batch.program_key] = f"{execution.explain_plan(name, choice)}\n  {form}"
    print("\n".join(lines.values()))
    print(times.describe_estimates(times.estimate(batches, sizes)))
    return 0


def _explain_form(parts: Assembled) -> str:
    """Return the form of the rounds, and the rule that chose it, in words."""
    from cfljax.engine.program import is_split

    if is_split(parts):
        return (
            "each stage of a round is a program, which methods share: a short run "
            "(train.plan.quick) on one device"
        )
    why = (
        "it has several devices"
        if parts.mesh is not None
        else "it is no short run (train.plan.quick)"
    )
    if not parts.settings.sequential or not parts.plan.sequential:
        why = "clients or runs train side by side"
    return f"the rounds between two evaluations are one program: {why}"
