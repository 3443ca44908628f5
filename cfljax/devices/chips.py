"""Accelerators by name, as machines that plans and estimates are made for, whether or not this machine has one."""

from __future__ import annotations

import difflib
import math
import re
from typing import NamedTuple

from cfljax.devices.machine import Machine
from cfljax.devices.mesh import Shape
from cfljax.errors import SpecError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNKNOWN = {"gpu": 48 * KIB, "tpu": 12 * MIB}
"""`Chip.near` of one that is not in the table."""


class Chip(NamedTuple):
    """An accelerator."""

    backend: str
    """JAX's name of its platform."""
    kind: str
    """JAX's name of the device."""
    memory: int
    """Bytes of its memory."""
    near: int
    """Bytes on the chip itself that a kernel may ask for: a TPU's memory for vectors, or what a block of a GPU's threads shares."""


CHIPS = {
    "t4": Chip("gpu", "Tesla T4", 15 * GIB, 64 * KIB),
    "l4": Chip("gpu", "NVIDIA L4", 22 * GIB, 99 * KIB),
    "a100": Chip("gpu", "NVIDIA A100-SXM4-80GB", 79 * GIB, 163 * KIB),
    "h100": Chip("gpu", "NVIDIA H100 80GB HBM3", 79 * GIB, 227 * KIB),
    "h200": Chip("gpu", "NVIDIA H200", 140 * GIB, 227 * KIB),
    "v4": Chip("tpu", "TPU v4", 32 * GIB, 14 * MIB),
    "v5e": Chip("tpu", "TPU v5 lite", 16 * GIB, 100 * MIB),
    "v5p": Chip("tpu", "TPU v5", 95 * GIB, 50 * MIB),
    "v6e": Chip("tpu", "TPU v6 lite", 32 * GIB, 100 * MIB),
}
"""By the names that their makers and clouds use."""


def machine_of(name: str, mesh: Shape | None = None) -> Machine:
    """A machine with the chip of this name, or with a grid of them, such as "v5e:2x4". SpecError where there is no such chip."""
    found = re.fullmatch(r"([a-z0-9]{1,12})(?::([1-9][0-9]?(?:x[1-9][0-9]?){1,2}))?", name.lower())
    chip = None if found is None else CHIPS.get(found[1])
    if found is None or chip is None:
        near = difflib.get_close_matches(name.lower().partition(":")[0], CHIPS, 1, 0.0)[0]
        raise SpecError(f'--target {name[:30]}: no such chip; the nearest is "{near}", and there are {", ".join(CHIPS)}')
    devices = 1 if found[2] is None else math.prod(int(side) for side in found[2].split("x"))
    return Machine(chip.backend, chip.kind, devices, chip.memory, 1, mesh=mesh)


def near(machine: Machine) -> int:
    """Bytes on the machine's chip that a kernel may ask for."""
    found = [chip.near for chip in CHIPS.values() if chip.kind == machine.kind]
    return found[0] if found else UNKNOWN.get(machine.backend, CHIPS["v5e"].near)


def explain(name: str, machine: Machine) -> str:
    """The machine in words."""
    devices = f"{machine.devices} devices with " if machine.devices > 1 else ""
    return f"{name.lower()} ({machine.kind}): {devices}{machine.memory / GIB:.0f} GiB of memory{' each' if devices else ''}"
