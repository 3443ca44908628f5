"""Timing cfljax from within: rounds of a spec, one by one or at a stretch, through `assemble` and
`simulate`."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any, NamedTuple

import numpy as np


class Timed(NamedTuple):
    """What was measured of a run."""

    seconds: list[float]
    """Of each timed round."""
    total: float
    """Of all rounds and evaluations, as the engine's clock has them."""
    output: Any
    federation: Any
    settings: Any


def use_all_cores() -> None:
    """Make each core a device of its own, as the commands would for a single run; before JAX's
    first computation. On an accelerator it changes nothing."""
    import jax

    from benchmarks.machine import cores

    jax.config.update("jax_num_cpu_devices", cores())


def machine() -> Any:
    """The machine that JAX computes on here, measured."""
    from cfljax.devices.machine import describe_machine

    return describe_machine(speed=None)


def carry_out(runs: list[Any], limit: int | None = None, **options: Any) -> tuple[Any, list[Any]]:
    """(the parts, an Output per run) of runs that go through one program, as the launchers do
    it."""
    from cfljax.engine.simulate import simulate
    from cfljax.experiment import assemble
    from cfljax.experiment.batching import make_batches

    (batch,) = make_batches(runs, limit or len(runs))
    parts = assemble.assemble(batch.first, batch.width, machine())._replace(
        program_key=batch.program_key
    )
    return parts, simulate(parts, batch.seeds, batch.hypers, **options)


def time_rounds(table: dict[str, Any], warm_up: int = 1, one_by_one: bool = True) -> Timed:
    """A spec of one run. One by one: the seconds of each round but the first `warm_up` and the
    last, in which the engine evaluates. Else in the engine's own chunks, where only the total is
    known."""
    from cfljax.config import read_spec

    at = [0.0]
    seconds: list[float] = []

    def progress(done: int, _: Any) -> None:
        now = time.perf_counter()
        if done > 0:
            seconds.append(now - at[0])
        at[0] = time.perf_counter()

    chunk = 1 if one_by_one else None
    parts, (output,) = carry_out(read_spec(table).runs(), chunk_rounds=chunk, progress=progress)
    total = output.seconds.train + output.seconds.eval
    return Timed(
        seconds[warm_up:-1] if one_by_one else [], total, output, parts.federation, parts.settings
    )


def schedule(table: dict[str, Any], rounds: int) -> np.ndarray:
    """i32[rounds, S]: who takes part."""
    from benchmarks.shared import drawn
    from cfljax.config import read_spec
    from cfljax.experiment import assemble
    from cfljax.experiment.batching import list_hyper

    run = read_spec(table).runs()[0]
    return drawn(assemble.assemble(run, 1, machine()), run.seed, list_hyper(run), rounds)[0]


def peak_rss_mib(children: bool = False) -> float:
    """Of this process, or of its largest child that has ended."""
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    return resource.getrusage(who).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
