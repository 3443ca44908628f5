"""The chips that programs are compiled for: what XLA is told about them, and the constants that predictions are made from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from cfljax.devices.chips import machine_of
from cfljax.devices.machine import Machine
from cfljax.devices.mesh import Shape


class Speed(NamedTuple):
    """A chip's constants. Peaks are the makers'; the two costs are typical ones, to be measured on such a chip."""

    flops: float
    """Floating-point operations per second of matrix products as cfljax asks for them: precision "highest", so float32 without
    TF32 on a GPU, and six passes of bfloat16 on a TPU."""
    bytes: float
    """Bytes per second to and from the chip's memory."""
    launch: float
    """Seconds from the start of one kernel to the start of the next, if neither has much to do."""
    host: float
    """Seconds that a loop or a branch costs whose condition the host reads."""


SPEEDS = {
    "a100": Speed(19.5e12, 2.04e12, 2.5e-6, 10e-6),
    "h100": Speed(66.9e12, 3.35e12, 2.5e-6, 10e-6),
    "h200": Speed(66.9e12, 4.8e12, 2.5e-6, 10e-6),
    "v5e": Speed(197e12 / 6, 0.82e12, 0.5e-6, 0.0),
    "v5p": Speed(459e12 / 6, 2.77e12, 0.5e-6, 0.0),
}
"""By the chip's name."""
CORES = {"a100": 108, "h100": 132, "h200": 132}
"""Of a GPU."""
FOLDER = Path(__file__).parent / "gpus"
"""A text `NAME.txt` for each GPU: a GpuTargetConfigProto."""


class Target(NamedTuple):
    """One chip or several, as `--targets` names them: "h200", "v5e", "v5e:2x2"."""

    name: str
    chip: str
    machine: Machine
    devices: tuple[Any, ...]
    """The absent devices, as JAX's compiler knows them."""

    @property
    def gpu(self) -> bool:
        return self.machine.backend == "gpu"

    @property
    def speed(self) -> Speed:
        return SPEEDS[self.chip]


def target_of(name: str) -> Target:
    """The target of this name. ValueError where it is unknown, ImportError or RuntimeError where its compiler is not installed."""
    chip, _, grid = name.partition(":")
    if chip not in SPEEDS:
        raise ValueError(f"--targets {name}: no such chip; there are {', '.join(SPEEDS)}, and TPUs with a grid, as v5e:2x2")
    machine = machine_of(name)
    if machine.backend == "gpu":
        devices = _gpu(chip)
    else:
        devices = _tpu(chip, grid or ("2x2" if chip == "v5e" else "2x2x1"))
    devices = devices[: machine.devices]
    shape = Shape(2, len(devices) // 2) if len(devices) > 1 else None
    return Target(name, chip, machine._replace(mesh=shape, absent=devices), devices)


def _tpu(chip: str, grid: str) -> tuple[Any, ...]:
    from jax.experimental import topologies

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else libtpu asks the network which machine this is
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # one process at a time has a TPU; compiling needs none
    return tuple(topologies.get_topology_desc(platform="tpu", topology_name=f"{chip}:{grid}").devices)


def _gpu(chip: str) -> tuple[Any, ...]:
    from jax.experimental import topologies

    text = (FOLDER / f"{chip}.txt").read_text(encoding="utf-8")
    return tuple(topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=text).devices)
