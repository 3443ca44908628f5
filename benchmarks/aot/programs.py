"""The programs of a batch of runs, lowered for devices that are not there. All that `benchmarks.aot` knows of cfljax's engine."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.aot.targets import Target
from cfljax.config import Run
from cfljax.devices.compiled import Source
from cfljax.engine.groups import Group, part, width
from cfljax.engine.simulate import default_flags, group_of
from cfljax.engine.traced import sources_of
from cfljax.experiment import assemble, batching

NAMES = ("rounds", "evaluate")
"""The programs that a run spends its time in."""


class Compiled(NamedTuple):
    """A program for a target."""

    seconds: float
    """Of XLA; tracing and lowering come before. On the clock or of the processors, whichever are fewer, as others may use these."""
    text: str
    """The optimised HLO."""
    memory: Any
    """`memory_analysis()`."""


class Prepared(NamedTuple):
    """A batch of runs on a target."""

    sources: dict[str, Source]
    device: Any
    """The device of a single-device program."""


def prepare(runs: list[Run], target: Target) -> Prepared:
    """The programs of runs that go through one program together."""
    (batch,) = batching.batches(runs, len(runs))
    with default_flags():
        parts = assemble.assemble(batch.first, batch.width, target.machine)
        parts = parts._replace(federation=jax.tree.map(np.asarray, parts.federation))
        group = group_of(parts, batch.seeds, batch.hypers)
        size = width(parts, group.keys.shape[0])
        made = sources_of(parts, Group(*part(tuple(group), 0, size)), parts.federation)
    return Prepared({name: getattr(made, name) for name in NAMES}, target.devices[0])


def compile_for(prepared: Prepared, name: str) -> Compiled:
    """A program of the batch, compiled."""
    source = prepared.sources[name]
    forms = source.forms
    if source.mesh is None:
        alone = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array([prepared.device]), ("alone",)), jax.P())
        forms = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=alone), forms)
    with default_flags():
        lowered = jax.jit(source.f, donate_argnums=source.donate).lower(*forms)
        begin = _clocks()
        compiled = lowered.compile()
    seconds = min(after - before for before, after in zip(begin, _clocks(), strict=True))
    return Compiled(seconds, compiled.as_text(), compiled.memory_analysis())


def _clocks() -> tuple[float, float]:
    """(seconds on the clock, seconds of the processors, those of programs that this one started included)."""
    used = os.times()
    return time.perf_counter(), used.user + used.system + used.children_user + used.children_system
