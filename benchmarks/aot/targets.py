"""The chips that programs are compiled for: what XLA needs to know of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from cfljax.devices.machine import TYPICAL, Machine
from cfljax.devices.mesh import Shape

GIB = 1 << 30
CHIPS = {
    "a100": ("gpu", "NVIDIA A100-SXM4-80GB", 79 * GIB),
    "h100": ("gpu", "NVIDIA H100 80GB HBM3", 79 * GIB),
    "h200": ("gpu", "NVIDIA H200", 140 * GIB),
    "v5e": ("tpu", "TPU v5 lite", 16 * GIB),
    "v5p": ("tpu", "TPU v5", 95 * GIB),
}
"""The chips for which there is a compiler here: (JAX's name of the platform, that of the device, bytes of its memory)."""
FOLDER = Path(__file__).parent / "gpus"
"""A text `NAME.txt` for each GPU: a GpuTargetConfigProto."""


class Target(NamedTuple):
    """One chip or several, as `--targets` names them: "h200", "v5e", "v5e:2x2"."""

    name: str
    machine: Machine
    devices: tuple[Any, ...]
    """The absent devices, as JAX's compiler knows them."""

    @property
    def gpu(self) -> bool:
        return self.machine.backend == "gpu"


def target_of(name: str) -> Target:
    """The target of this name. ValueError where it is unknown, ImportError or RuntimeError where its compiler is not installed."""
    chip, _, grid = name.partition(":")
    if chip not in CHIPS:
        raise ValueError(f"--targets {name}: no such chip; there are {', '.join(CHIPS)}, and TPUs with a grid, as v5e:2x2")
    backend, kind, memory = CHIPS[chip]
    devices = _gpu(chip) if backend == "gpu" else _tpu(chip, grid or ("2x2" if chip == "v5e" else "2x2x1"))
    devices = devices if grid else devices[:1]
    mesh = Shape(2, len(devices) // 2) if grid else None
    return Target(name, Machine(backend, kind, len(devices), memory, 1, TYPICAL, mesh, absent=devices), devices)


def _tpu(chip: str, grid: str) -> tuple[Any, ...]:
    from jax.experimental import topologies

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else libtpu asks the network which machine this is
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # one process at a time has a TPU; compiling needs none
    return tuple(topologies.get_topology_desc(platform="tpu", topology_name=f"{chip}:{grid}").devices)


def _gpu(chip: str) -> tuple[Any, ...]:
    from jax.experimental import topologies

    text = (FOLDER / f"{chip}.txt").read_text(encoding="utf-8")
    return tuple(topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=text).devices)
