"""The chips that programs are compiled for: what XLA needs to know of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from cfljax.devices.chips import CHIPS, Rates, machine_of

from cfljax.devices.machine import Machine
from cfljax.devices.mesh import Shape

CHOSEN = ("a100", "h100", "h200", "v5e", "v5p")
"""The chips for which there is a compiler here."""
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
    def rates(self) -> Rates:
        return CHIPS[self.chip].rates


def target_of(name: str) -> Target:
    """The target of this name. ValueError where it is unknown, ImportError or RuntimeError where its compiler is not installed."""
    chip, _, grid = name.partition(":")
    if chip not in CHOSEN:
        raise ValueError(f"--targets {name}: no such chip; there are {', '.join(CHOSEN)}, and TPUs with a grid, as v5e:2x2")
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
