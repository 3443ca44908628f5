"""The programs of a batch of runs, lowered for devices that are not there. All that `benchmarks.aot` knows of cfljax's engine."""

from __future__ import annotations

import math
import os
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from cfljax.local.fitting import Form
from cfljax.local.predict_chip import in_kernel

from benchmarks.aot.predict import Turns
from benchmarks.aot.targets import Target
from cfljax.config import Run
from cfljax.devices.compiled import Source
from cfljax.devices.mesh import CLIENTS
from cfljax.engine import simulate
from cfljax.engine.groups import Group, part, width
from cfljax.engine.settings import Assembled
from cfljax.engine.traced import sources_of
from cfljax.experiment import assemble, batching, needs
from cfljax.experiment.execution import choose
from cfljax.local.lanes import packed
from cfljax.local.stream import block_size
from cfljax.types import Split

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
    predicted_bytes: int
    """What `--dry-run` says that the batch takes on a device."""
    turns: dict[str, Turns]
    """How often the loops of each program turn that the data decide."""
    in_kernel: float
    """Predicted seconds of a round inside of the kernel that trains clients; 0: there is none."""


def prepare(runs: list[Run], target: Target) -> Prepared:
    """The programs of runs that go through one program together."""
    (batch,) = batching.batches(runs, len(runs))
    with jax.enable_x64(False), jax.threefry_partitionable(True):  # as the launcher has them
        parts = assemble.assemble(batch.first, batch.width, target.machine)
        parts = parts._replace(federation=jax.tree.map(np.asarray, parts.federation))
        group = simulate.group_of(parts, batch.seeds, batch.hypers)
        size = width(parts, group.keys.shape[0])
        made = sources_of(parts, Group(*part(tuple(group), 0, size)), parts.federation)
        runs_here = math.ceil(batch.width / target.machine.shape(batch.width).runs)
        choice = choose(batch.first, parts.model, parts.federation, target.machine, runs_here)
        trained = choice.participants / max(int(np.sum(parts.federation.trains)), 1)
        steps = packed(choice.steps, parts.plan.lanes, parts.plan.stream).in_a_row
        kept = batch.first.options.models_kept
        turns = {
            "rounds": Turns(steps, _blocks(parts, parts.federation.train, kept, trained)),
            "evaluate": Turns(0, _blocks(parts, parts.federation.test, made.models, 1.0)),
        }
        steps, form = choice.steps.tolist() * runs_here, choice.form
        seconds = in_kernel(form, steps, target.rates) if isinstance(form, Form) else 0.0
    predicted = needs.bytes_of(batch, parts.federation, parts.model, target.machine)
    return Prepared({name: getattr(made, name) for name in NAMES}, target.devices[0], predicted, turns, seconds)


def _blocks(parts: Assembled, split: Split, models: int, share: float) -> int:
    """How many blocks a device goes through when that share of all clients' samples pass `models` models."""
    devices = 1 if parts.mesh is None else int(parts.mesh.shape[CLIENTS])
    total = share * float(np.sum(split.rows.shape[0] if split.shared else split.count))
    block = block_size(parts.model, parts.federation, models, math.ceil(total), parts.settings.sequential)
    return math.ceil(total / block / devices)


def compile_for(prepared: Prepared, name: str) -> Compiled:
    """A program of the batch, compiled."""
    source = prepared.sources[name]
    forms = source.forms
    if source.mesh is None:
        alone = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array([prepared.device]), ("alone",)), jax.P())
        forms = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=alone), forms)
    with jax.enable_x64(False), jax.threefry_partitionable(True), jax.sharding.use_abstract_mesh(_of_kind(prepared.device)):
        lowered = jax.jit(source.f, donate_argnums=source.donate).lower(*forms)
        begin = _clocks()
        compiled = lowered.compile()
    seconds = min(after - before for before, after in zip(begin, _clocks(), strict=True))
    return Compiled(seconds, compiled.as_text(), compiled.memory_analysis())


def _of_kind(device: Any) -> jax.sharding.AbstractMesh:
    """A mesh of no axes: what tells Pallas, from JAX 0.11 on, which GPU it compiles for."""
    kind = jax.sharding.AbstractDevice(device.device_kind, getattr(device, "core_count", None), device.platform)
    return jax.sharding.AbstractMesh((), (), abstract_device=kind)


def _clocks() -> tuple[float, float]:
    """(seconds on the clock, seconds of the processors, those of programs that this one started included)."""
    used = os.times()
    return time.perf_counter(), used.user + used.system + used.children_user + used.children_system
