"""HOST. How many runs go through one program together. On an accelerator all runs of a batch are
computed side by side, and the width of a batch follows from what XLA says of the compiled programs
of a few runs."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, cast

from cfljax.config import Run
from cfljax.devices.machine import Machine
from cfljax.engine.groups import default_flags, make_inputs, split_into_groups
from cfljax.engine.program import compile_programs
from cfljax.errors import DataError
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import Batch, make_batches
from cfljax.federation.pack import count_bytes

if TYPE_CHECKING:
    import jax

# Runs of each device that are compiled together to see what they take. A batch of no more runs has
# its programs then.
MEASURED_RUNS_PER_GROUP = 8
MAX_WIDTH = 256
# The share of a device's memory that a batch may fill by these figures, which lack what other
# programs take
MEMORY_SHARE = 0.6


def batch_limit(runs: list[Run], machine: Machine) -> int:
    """Return how many of these runs, which share a program, go through it together. On a CPU runs
    go one after another, so one for each group of devices; on an accelerator as many as its memory
    holds. What a few of them take is measured by compiling their programs, and the rest follows in
    proportion. Runs that raise an error do so again, and are recorded, when they are carried
    out."""
    groups = machine.most_groups
    if machine.sequential or len(runs) <= groups:
        return groups
    # Only this process compiles here: a mesh over all processes would wait for the others
    if machine.processes > 1:
        machine = machine._replace(devices=1, mesh=None, processes=1)
    few = min(len(runs), MEASURED_RUNS_PER_GROUP * machine.most_groups)
    while True:
        (batch,) = make_batches(runs[:few], few)
        print(
            f"cfljax: {batch.first.label}: compiling {few} runs, to see how many the "
            "device's memory holds",
            file=sys.stderr,
        )
        try:
            figures = measure_bytes(batch, machine)
            break
        except DataError:
            raise
        except Exception as error:
            # Too many runs for the memory: half of them may fit. Other errors come again, and are
            # recorded, when the runs are carried out.
            if few == 1 or "RESOURCE_EXHAUSTED" not in str(error):
                return groups
            few = math.ceil(few / 2)
    if figures is None:
        return few
    each, shared = figures
    return groups * max(1, min(MAX_WIDTH, int((MEMORY_SHARE * machine.memory - shared) / each)))


def measure_bytes(batch: Batch, machine: Machine) -> tuple[float, int] | None:
    """Return (bytes of a device that each run takes, bytes of what all runs share); None if the
    compiler does not say them."""
    with default_flags():
        parts = assemble_batch(batch, machine)
        whole, federation = make_inputs(parts, batch.seeds, batch.hypers, alike=True)
        programs, _ = compile_programs(parts, split_into_groups(parts, whole)[0], federation)
    shape = machine.shape(batch.width, batch.first.train.plan_options.devices)
    compiled = cast("tuple[jax.stages.Compiled, ...]", (programs.rounds, programs.evaluate))
    rounds, evaluate = (program.memory_analysis() for program in compiled)
    if rounds is None or evaluate is None:
        return None
    shared = count_bytes(parts.federation) // (shape.clients if parts.sharded else 1)
    made = max(
        each.temp_size_in_bytes + each.output_size_in_bytes - each.alias_size_in_bytes
        for each in (rounds, evaluate)
    )
    of_runs = max(rounds.argument_size_in_bytes + made - shared, rounds.output_size_in_bytes)
    return of_runs / math.ceil(batch.width / shape.runs), shared
