"""Accelerators by name, as machines that plans and estimates are made for, whether or not this machine has one."""

from __future__ import annotations

import difflib
import math
import re
from typing import NamedTuple

from cfljax.devices.machine import TOO_OLD, Machine
from cfljax.devices.mesh import Shape
from cfljax.errors import SpecError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNKNOWN = {"gpu": 48 * KIB, "tpu": 12 * MIB}
"""`Chip.near` of one that is not in the table."""


OF_XLA = 16 * MIB
"""Bytes of a TPU's memory for vectors that XLA's own kernels compute in."""


class Rates(NamedTuple):
    """What seconds on an accelerator are predicted from: of GPUs three quarters of the makers' peaks and the cost of a kernel, as
    measured on an H200; of TPUs the makers' peaks. What else it costs is typical, and to be measured on such a chip."""

    flops: float
    """Floating-point operations per second of matrix products as cfljax asks for them: precision "highest", so float32 without
    TF32 on a GPU, and six passes of bfloat16 on a TPU."""
    bytes: float
    """Bytes per second to and from the chip's memory."""
    launch: float
    """Seconds from the start of one kernel to the start of the next, if neither has much to do."""
    host: float
    """Seconds that a loop or a branch costs whose condition the host reads."""
    cores: int = 1
    """How many programs of a kernel run at the same time."""


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
    rates: Rates
    no_kernels: str = ""
    """Why no kernel of ours is compiled for it; "": it is."""
    spare: int = 0
    """Bytes of a TPU's memory for vectors that such a kernel leaves to XLA, which keeps arrays there."""


REACHED = 0.75
"""What large matrix products, and copies, reach of a GPU's peaks: 50.5 of 66.9 TFLOP/s and 3.58 of 4.8 TB/s on an H200."""


def _gpu(flops: float, bytes_: float, cores: int) -> Rates:
    """`flops`: of float32."""
    return Rates(REACHED * flops, REACHED * bytes_, 2e-6, 10e-6, cores)


def _tpu(flops: float, bytes_: float) -> Rates:
    """`flops`: of bfloat16."""
    return Rates(flops / 6, bytes_, 0.5e-6, 0.0)


CHIPS = {
    "t4": Chip("gpu", "Tesla T4", 15 * GIB, 64 * KIB, _gpu(8.1e12, 0.32e12, 40), TOO_OLD),
    "l4": Chip("gpu", "NVIDIA L4", 22 * GIB, 99 * KIB, _gpu(30.3e12, 0.3e12, 58)),
    "a100": Chip("gpu", "NVIDIA A100-SXM4-80GB", 79 * GIB, 163 * KIB, _gpu(19.5e12, 2.04e12, 108)),
    "a100-40": Chip("gpu", "NVIDIA A100-SXM4-40GB", 39 * GIB, 163 * KIB, _gpu(19.5e12, 1.56e12, 108)),
    "h100": Chip("gpu", "NVIDIA H100 80GB HBM3", 79 * GIB, 227 * KIB, _gpu(66.9e12, 3.35e12, 132)),
    "h200": Chip("gpu", "NVIDIA H200", 140 * GIB, 227 * KIB, _gpu(66.9e12, 4.8e12, 132)),
    "v4": Chip("tpu", "TPU v4", 32 * GIB, 14 * MIB, _tpu(275e12, 1.23e12), spare=2 * MIB),
    "v5e": Chip("tpu", "TPU v5 lite", 16 * GIB, 100 * MIB, _tpu(197e12, 0.82e12), spare=28 * MIB),
    "v5p": Chip("tpu", "TPU v5", 95 * GIB, 50 * MIB, _tpu(459e12, 2.77e12), spare=14 * MIB),
    "v6e": Chip("tpu", "TPU v6 lite", 32 * GIB, 100 * MIB, _tpu(918e12, 1.64e12), spare=28 * MIB),
}
"""By the names that their makers and clouds use."""


def machine_of(name: str, mesh: Shape | None = None) -> Machine:
    """A machine with the chip of this name, or with several: a grid of TPUs such as "v5e:2x4", or GPUs such as "h100:8". SpecError
    of one line where there is no such thing."""
    chip, count = _split(name)
    grid = [int(side) for side in re.findall("[0-9]+", count)]
    if not re.fullmatch(r"|[1-9][0-9]?(x[1-9][0-9]?){0,2}", count):
        raise SpecError(f'--target {name[:30]}: write a grid as "v5e:2x4", and several GPUs as "h100:8"')
    if chip.backend == "tpu" and len(grid) == 1 and grid != [1]:
        rows = max(n for n in range(1, grid[0] + 1) if grid[0] % n == 0 and n * n <= grid[0])
        raise SpecError(f'--target {name[:30]}: TPUs are in a grid; write "{_named(chip)}:{rows}x{grid[0] // rows}"')
    if chip.backend == "gpu" and len(grid) > 1:
        raise SpecError(f'--target {name[:30]}: GPUs are in no grid; write "{_named(chip)}:{math.prod(grid)}"')
    return Machine(chip.backend, chip.kind, math.prod(grid), chip.memory, 1, mesh=mesh, no_kernels=chip.no_kernels)


def _split(name: str) -> tuple[Chip, str]:
    """(the chip, what stands behind it): of "v5e:2x4", and of the "v5litepod-8" and "a100-80" of clouds. SpecError where there is
    no such chip."""
    low = {"a100-80": "a100"}.get(name.lower(), name.lower())
    word, mark, count = (low, "", "") if low in CHIPS else re.sub("-", ":", low, count=1).partition(":")
    word = {"v5litepod": "v5e"}.get(word, word)
    if (chip := CHIPS.get(word)) is None:
        near = difflib.get_close_matches(word, CHIPS, 1)
        hint = f'the nearest is "{near[0]}", and ' if near else ""
        raise SpecError(f"--target {name[:30]}: no such chip; {hint}there are {', '.join(CHIPS)}")
    return chip, count or mark


def _named(chip: Chip) -> str:
    return next(name for name, each in CHIPS.items() if each == chip)


def _of(machine: Machine) -> Chip | None:
    """The chip of that kind, else one of its family: an "NVIDIA H100 PCIe" is taken for the H100 of the table."""
    same = [chip for chip in CHIPS.values() if chip.kind == machine.kind]
    words = re.split("[ -]", machine.kind.lower())
    family = [chip for name, chip in CHIPS.items() if chip.backend == machine.backend == "gpu" and name in words]
    return next(iter([*same, *family]), None)


def near(machine: Machine) -> int:
    """Bytes on the machine's chip that a kernel may ask for."""
    chip = _of(machine)
    return UNKNOWN.get(machine.backend, CHIPS["v5e"].near) if chip is None else chip.near


def near_xla(machine: Machine, beside_ours: bool = False) -> int:
    """Bytes on the machine's chip in which XLA keeps arrays from one of its kernels to the next, or (`beside_ours`) while one of
    ours runs."""
    chip = _of(machine)
    if chip is None or not chip.spare:
        return 0
    return chip.spare if beside_ours else chip.near + chip.spare - OF_XLA


def rates_of(machine: Machine) -> Rates:
    """What seconds on the machine's chip are predicted from; of one that is not in the table, those of a common one."""
    return (_of(machine) or CHIPS["l4" if machine.backend == "gpu" else "v5e"]).rates


def explain(name: str, machine: Machine) -> str:
    """The machine in words."""
    devices = f"{machine.devices} devices with " if machine.devices > 1 else ""
    return f"{name.lower()} ({machine.kind}): {devices}{machine.memory / GIB:.0f} GiB of memory{' each' if devices else ''}"
