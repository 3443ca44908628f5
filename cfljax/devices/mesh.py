"""Which devices do what: the runs of a batch are dealt to groups of devices, which need not talk to each other, and the
participants of a round to the devices of a group."""

from __future__ import annotations

import re
from typing import NamedTuple

import jax
import numpy as np

from cfljax.errors import SpecError

RUNS, CLIENTS = "runs", "clients"
"""The axes of a mesh."""


class Shape(NamedTuple):
    """A mesh."""

    runs: int
    """Groups of devices; each has its share of a batch's runs."""
    clients: int
    """Devices of a group; each has its share of a round's participants."""

    def __str__(self) -> str:
        return "auto" if self == AUTO else f"runs={self.runs},clients={self.clients}"


AUTO = Shape(0, 0)
"""All devices there are, in as many groups as there are runs for."""
_asked: list[Shape] = []


def parse(text: str) -> Shape:
    """`auto`, or `runs=2,clients=4` (what is left out is 1)."""
    if text == "auto":
        return AUTO
    found = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(runs|clients)\s*=\s*([1-9][0-9]{0,5})\s*", part)
        if match is None or match[1] in found:
            raise SpecError(f"--mesh {text}: must be auto, or such as runs=2,clients=4")
        found[match[1]] = int(match[2])
    return Shape(found.get(RUNS, 1), found.get(CLIENTS, 1))


def ask(shape: Shape | None) -> None:
    """Let every batch of this process run on such a mesh; None: as the runs themselves say."""
    _asked[:] = [] if shape is None else [shape]


def asked() -> Shape | None:
    """What `ask` was told."""
    return _asked[0] if _asked else None


def check() -> None:
    """SpecError where what `ask` was told does not fit the devices."""
    if (shape := asked()) is not None:
        _fitted(shape, 1)


def groups(width: int) -> int:
    """How many groups of devices a batch of so many runs is dealt to."""
    shape = asked()
    return 1 if shape is None else _fitted(shape, width).runs


def most_groups() -> int:
    """How many runs a batch needs for every device to have one, where that is wanted."""
    shape = asked()
    return 1 if shape is None else shape.runs or jax.device_count()


def for_batch(width: int) -> jax.sharding.Mesh | None:
    """The mesh for a batch of so many runs; None: one device."""
    shape = asked()
    if shape is None:
        return None
    shape = _fitted(shape, width)
    if shape == (1, 1):
        return None
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))[: shape.runs * shape.clients]
    # Neighbours along `clients` are in different processes: so every process has devices of each group, and all of a result.
    grid = np.array(devices).reshape(shape.clients, shape.runs).T
    kinds = (jax.sharding.AxisType.Auto,) * 2
    return jax.sharding.Mesh(grid, (RUNS, CLIENTS), axis_types=kinds)


def _fitted(shape: Shape, width: int) -> Shape:
    """The shape with numbers."""
    there, here = jax.device_count(), jax.local_device_count()
    if shape == AUTO:
        runs = max(n for n in range(1, here + 1) if here % n == 0 and n <= width)
        return Shape(runs, there // runs)
    if shape.runs * shape.clients > there:
        raise SpecError(f"--mesh {shape}: needs {shape.runs * shape.clients} devices, and there are {there}")
    if there > here and (shape.runs * shape.clients != there or here % shape.runs):
        why = f"all {there} devices take part, and each process has {here}; runs must divide {here}"
        raise SpecError(f"--mesh {shape}: {why}")
    return shape
