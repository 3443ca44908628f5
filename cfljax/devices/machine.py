"""The machine of a process: its devices, memory and speed. Plans follow from this value alone, even
for absent machines."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.devices import cores
from cfljax.devices.mesh import AUTO, CLIENTS, RUNS, Shape
from cfljax.errors import SpecError
from cfljax.files import cache_folder, read_table, write_table
from cfljax.lazy import jax, jnp

# Steps per timed loop
TIMED_STEPS = 200
# The assumed memory of an accelerator that does not report it
UNKNOWN_MEMORY = 8 << 30


class Speed(NamedTuple):
    """Seconds that a device takes for the parts of a training step."""

    # Per training step, for everything but its matrix products (some fifteen small operations)
    step: float
    # Per multiplication and addition in the matrix products of a mini-batch
    small: float
    # Per multiplication and addition in the matrix products of some hundred samples
    large: float
    value: float
    """Per number that is fetched for a mini-batch: a pixel gathered, made a float and normalised,
    or a number of a Gram matrix."""


TYPICAL = Speed(3e-6, 1.5e-11, 9e-12, 2.3e-10)
"""Roughly a core of a server. Clients are dealt to devices by this: a measurement would compile
another program on each machine."""


class Machine(NamedTuple):
    """What a process computes on."""

    # JAX's name of the platform: "cpu", "gpu" or "tpu"
    backend: str
    # JAX's name of the device, such as "NVIDIA H100"
    kind: str
    # Devices of this process
    devices: int
    # Bytes of one device; on a CPU of the whole machine, whose devices share it
    memory: int
    # Threads that a CPU computes with
    threads: int
    known_speed: Speed | None = TYPICAL
    """As an earlier process has measured it for a results folder; None: it is measured when it is
    first asked for."""
    # The mesh that was asked for with `--mesh`; None: each run says how many devices it takes
    mesh: Shape | None = None
    # Processes that compute together; each has equally many devices
    processes: int = 1
    absent: tuple[jax.Device, ...] | None = None
    """Devices that programs are only compiled for; None: the devices of this process, on which they
    run."""

    @property
    def speed(self) -> Speed:
        """How fast a device is."""
        return (
            read_or_measure(speed_file(self.kind)) if self.known_speed is None else self.known_speed
        )

    @property
    def sequential(self) -> bool:
        """Whether clients and runs are computed one after another: batched small products are slow
        on a CPU and fast elsewhere."""
        return self.backend == "cpu"

    @property
    def copies(self) -> int:
        """How many devices share one memory."""
        return self.devices if self.sequential else 1

    @property
    def most_groups(self) -> int:
        """How many runs a batch needs so that each group of devices of the mesh has one."""
        return 1 if self.mesh is None else self.mesh.runs or self.devices * self.processes

    def shape(self, width: int = 1, wanted: int | None = None) -> Shape:
        """Choose the groups of devices, and the devices of each, for a batch of `width` runs.
        Without a mesh there is one group of the `wanted` devices, or of all devices of this
        process. Raises a SpecError if the machine has too few."""
        if self.mesh is not None:
            return self._fitted(self.mesh, width)
        if wanted is not None and wanted > self.devices:
            how = (
                "; XLA_FLAGS=--xla_force_host_platform_device_count=N simulates N on a CPU"
                if self.sequential
                else ""
            )
            raise SpecError(f"train.plan.devices = {wanted}: this process has {self.devices}{how}")
        return Shape(1, wanted or self.devices)

    def _fitted(self, mesh: Shape, width: int) -> Shape:
        total = self.devices * self.processes
        if mesh == AUTO:
            runs = max(
                n for n in range(1, self.devices + 1) if self.devices % n == 0 and n <= width
            )
            return Shape(runs, total // runs)
        if mesh.runs * mesh.clients > total:
            raise SpecError(
                f"--mesh {mesh}: needs {mesh.runs * mesh.clients} devices, but there are {total}"
            )
        if self.processes > 1 and (mesh.runs * mesh.clients != total or self.devices % mesh.runs):
            why = (
                f"all {total} devices take part, and each process has {self.devices}; runs must "
                f"divide {self.devices}"
            )
            raise SpecError(f"--mesh {mesh}: {why}")
        return mesh


def describe_machine(mesh: Shape | None = None, speed: Speed | None = TYPICAL) -> Machine:
    """Describe this process's machine; starts JAX's backend if necessary. `speed` None: a plan that
    needs it measures it."""
    if cores.has_only_cpu():
        return Machine("cpu", "cpu", 1, _memory(), cores.count_threads(), speed, mesh)
    device = jax.local_devices()[0]
    on_cpu = device.platform == "cpu"
    limit = (device.memory_stats() or {}).get("bytes_limit")
    memory = limit or (_memory() if on_cpu else UNKNOWN_MEMORY)
    return Machine(
        backend=device.platform,
        kind=device.device_kind,
        devices=jax.local_device_count(),
        memory=int(memory),
        threads=cores.count_threads(),
        known_speed=speed,
        mesh=mesh,
        processes=jax.process_count(),
    )


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def list_messages(machine: Machine, dev: Path = Path("/dev")) -> list[str]:
    """Return the user's messages about the machine: its accelerator, or that there is one which is
    not used."""
    if not machine.sequential:
        return [
            f"computing on {machine.kind}"
            + (f", {machine.devices} devices" if machine.devices > 1 else "")
        ]
    found = cores.find_accelerator(dev)
    if found is None or "cpu" in os.environ.get("JAX_PLATFORMS", ""):
        return []
    why = (
        "another process uses it (restart the notebook's kernel), or JAX lacks what it needs: "
        f'pip install "jax[{found}]"'
    )
    return [f"computing on the CPU, although there is an accelerator: {why}"]


def make_mesh(machine: Machine, shape: Shape) -> jax.sharding.Mesh | None:
    """Return the devices of this process (with a requested mesh: of all processes) in that shape;
    None: one device."""
    if shape == (1, 1):
        return None
    if machine.mesh is None:
        return jax.sharding.Mesh(
            np.array((machine.absent or jax.local_devices())[: shape.clients]), (CLIENTS,)
        )
    devices = sorted(
        machine.absent or jax.devices(), key=lambda device: (device.process_index, device.id)
    )[: shape.runs * shape.clients]
    # Neighbours along `clients` are in different processes: so every process has devices of each
    # group, and all of a result.
    grid = np.array(devices).reshape(shape.clients, shape.runs).T
    return jax.sharding.Mesh(grid, (RUNS, CLIENTS), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def speed_file(kind: str) -> Path:
    """Return the file of this machine's speed, named for machine, versions, backend and threads."""
    words = (
        f"{platform.node()}-{kind}-{len(cores.list_cores())}-{importlib.metadata.version('jax')}"
    )
    return cache_folder() / (
        "speed-" + "".join(c if c.isalnum() else "-" for c in words).lower() + ".json"
    )


@functools.cache
def read_or_measure(file: Path) -> Speed:
    """Return the speed that an earlier process has stored in the file, otherwise measure it for
    about a second and store it. If another process has stored its own meanwhile, that one counts,
    so that all use the same."""
    if (speed := _read_speed(file)) is None:
        mine = measure()
        if (speed := _read_speed(file)) is None:
            write_table(file, (speed := mine)._asdict())
    return speed


def measure() -> Speed:
    """Time the parts of a training step on the device that JAX computes on, for about a second,
    whatever flags the user has set."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return _measure()


def _measure() -> Speed:
    shapes = ((10, 784), (784, 128), (256, 256), (10, 10))
    x, w, a, thin = (jnp.asarray(np.full(shape, 1 / shape[0], np.float32)) for shape in shapes)
    small, large = 2 * 10 * 784 * 128, 256**3
    step = _time_call(_small_operations, thin)
    both = _time_call(lambda v: v - 1e-3 * (x.T @ jnp.tanh(x @ v)), w)
    big = _time_call(lambda v: a @ v, a)
    pool = jnp.asarray(np.ones((4096, 784), np.uint8))
    rows = jnp.asarray(401 * np.arange(10, dtype=np.int32))
    fetch = _time_call(
        lambda at: (
            (at + jnp.sum((pool[at].astype(jnp.float32) - 0.1) * 0.3).astype(jnp.int32)) % 4096
        ),
        rows,
    )
    return Speed(step, max(both - step / 3, both / 2) / small, big / large, fetch / (10 * 784))


def _small_operations(v: jax.Array) -> jax.Array:
    """Do about as many small operations as a step of logistic regression."""
    for _ in range(3):
        row = jax.nn.softmax(v)
        v = v - 0.1 * (row - row.T @ row)
    return v


def _time_call(f: Callable[[jax.Array], jax.Array], v: jax.Array) -> float:
    with jax.default_matmul_precision("highest"):
        loop = jax.jit(lambda v: jax.lax.fori_loop(0, TIMED_STEPS, lambda _, v: f(v), v))
        jax.block_until_ready(loop(v))
        best = float("inf")
        for _ in range(5):
            begin = time.perf_counter()
            jax.block_until_ready(loop(v))
            best = min(best, time.perf_counter() - begin)
    return best / TIMED_STEPS


def _read_speed(file: Path) -> Speed | None:
    """Read the speed in the file; None if there is no such file or it is damaged."""
    kept = read_table(file, lambda value: isinstance(value, float) and 0 < value < 1)
    return Speed(**kept) if set(kept) == set(Speed._fields) else None
