"""What a device did while it was traced: its dearest kernels, how many it started, and the gaps
between them. Read from the traces of `jax.profiler` with JAX alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DEAREST = 20
"""Kernels that are named."""
CONTROL = re.compile(r"(while|cond|call|tuple|end:|ThreadpoolListener)")
"""Beginnings of names of events that contain others, or that no device computes."""
PRODUCT = re.compile(
    r"gemm|dot|conv(?!ert)|cutlass|cudnn|nvjet|wgrad|dgrad|fprop|xmma|ynn|matmul", re.IGNORECASE
)
"""What names of matrix products and convolutions contain."""
Row = dict[str, Any]


class Event(NamedTuple):
    """A kernel that the device was asked for."""

    name: str
    begin: float  # Nanoseconds
    length: float  # Nanoseconds


def newest(folder: Path) -> Path:
    """Return the trace that was written last into a folder of traces."""
    return max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)


def events(data: Any) -> list[Event]:
    """Return the kernels of a `jax.profiler.ProfileData`: of a GPU its streams, of a TPU its
    operations; of a CPU what its threads say that they compute."""
    planes = [plane for plane in data.planes if plane.name.startswith("/device:")]
    if planes:
        return [each for plane in planes for each in _of_device(plane)]
    return [
        Event(event.name, event.start_ns, event.duration_ns)
        for plane in data.planes
        for line in plane.lines
        for event in line.events
        if not CONTROL.match(event.name) and any(key == "hlo_op" for key, _ in event.stats)
    ]


def _of_device(plane: Any) -> Iterator[Event]:
    lines = list(plane.lines)
    streams = [each for each in lines if each.name.startswith("Stream")]
    operations = [each for each in lines if each.name == "XLA Ops"]
    for line in streams or operations or lines:
        for event in line.events:
            if not CONTROL.match(event.name):
                yield Event(event.name, event.start_ns, event.duration_ns)


def is_product(name: str) -> bool:
    """Return whether a kernel of this name computes products."""
    return bool(PRODUCT.search(name))


def count_steps(launches: dict[str, int]) -> int:
    """Return how often the loop over local steps went round, from how often each kernel was
    started: the kernels of its body were started equally often, and most launches are theirs."""
    total: Counter[int] = Counter()
    for number in launches.values():
        total[number] += number
    return max(total, key=lambda number: (total[number], number), default=0)


def summarise(found: list[Event]) -> Row:
    """Return what a trace says. `gaps`: the times in which no kernel ran, between the first and the
    last."""
    if not found:
        return {"launches": 0, "kernels": []}
    times: dict[str, list[float]] = defaultdict(list)
    for each in found:
        times[each.name].append(each.length)
    launches = {name: len(each) for name, each in times.items()}
    steps, busy = count_steps(launches), sum(sum(each) for each in times.values())
    begin = np.array(sorted((each.begin, each.begin + each.length) for each in found))
    end = np.maximum.accumulate(begin[:, 1])
    between = begin[1:, 0] - end[:-1]
    gaps = between[between > 0]
    span = float(end[-1] - begin[0, 0])
    dearest = sorted(times, key=lambda name: -sum(times[name]))[:DEAREST]
    return {
        "launches": len(found),
        "local_steps": steps,
        "launches_per_step": len(found) / steps,
        "span_ms": span / 1e6,
        "share_in_products": sum(sum(times[n]) for n in times if is_product(n)) / busy,
        "gaps": {
            "number": len(gaps),
            "share_of_span": float(gaps.sum()) / span if span else 0.0,
            "median_us": float(np.median(gaps)) / 1e3 if len(gaps) else 0.0,
            "longest_us": float(gaps.max()) / 1e3 if len(gaps) else 0.0,
        },
        "kernels": [
            {
                "name": name[:120],
                "launches": launches[name],
                "ms": sum(times[name]) / 1e6,
                "share": sum(times[name]) / busy,
            }
            for name in dearest
        ],
    }


def read(folder: Path) -> Row:
    """Return what the newest trace of a folder says."""
    from jax.profiler import ProfileData

    return summarise(events(ProfileData.from_file(str(newest(folder)))))
