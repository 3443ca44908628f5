"""HOST. The devices of the clients, for the simulated clock: speeds that are drawn, and traces of availability and speed from CSV files.

A trace has a line of names, and then a line for each change:

    client,second,available,speed
    0,0,1,1.0
    0,3600,0,1.0
    1,0,1,0.25

`client` is the number of a client, from 0; `second` (of the simulated clock) or `round` is when the line begins to hold, until the
client's next line; `available` is 1 or 0; `speed` is a factor on the client's speed. `available` or `speed` may be left out. Before its first
line, and without any, a client is available, and its factor is 1. Lines come in any order.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.types import Devices, on_host

NAMES = ("client", "second", "round", "available", "speed")
MOST_CELLS = 10**8
"""The most places (change times × clients) of a trace on the device, at five bytes each."""
_TAG = 0x636C6F


class Trace(NamedTuple):
    """What a file says, line by line."""

    file: str
    by_seconds: bool
    line: np.ndarray
    """i64[E]: the number of each line in the file."""
    client: np.ndarray
    """i64[E]."""
    time: np.ndarray
    """f64[E]."""
    available: np.ndarray
    """bool[E]."""
    speed: np.ndarray
    """f64[E]."""


def devices_of(clients: int, seed: int, same: bool, trace: str | None) -> Devices:
    """The devices of a federation with this number of clients. Client c has the same device for all methods, and for all seeds that
    share the seed of the data. `same`: all have speed 1, but for the trace."""
    pace = np.random.default_rng([seed, _TAG]).standard_normal(clients).astype(np.float32)
    devices = Devices(on_host(np.zeros_like(pace) if same else pace))
    return devices if trace is None else _with_trace(devices, read_trace(trace), clients)


def read_trace(file: str) -> Trace:
    """The trace in a CSV file; SpecError, with the file and the line, for what is wrong in it."""
    path = Path(file).expanduser()
    try:
        stamp = path.stat()
        return _read(str(path), (stamp.st_mtime_ns, stamp.st_size))
    except OSError as error:
        raise SpecError(f"train.clock.trace: {file}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise SpecError(f"train.clock.trace: {file}: is not a text file in UTF-8; give a CSV file") from None


@functools.lru_cache(maxsize=4)
def _read(file: str, stamp: tuple[int, int]) -> Trace:  # noqa: ARG001 (the file may have changed)
    with open(file, newline="", encoding="utf-8-sig") as text:
        lines = csv.reader(text)
        names = [name.strip() for name in next(lines, [])]
        _check_names(names, file)
        found = [(lines.line_num, row) for row in lines if any(cell.strip() for cell in row)]
    if not found:
        raise SpecError(f"train.clock.trace: {file}: has no lines after the names of its columns")
    columns = {name: _column(name, at, len(names), found, file) for at, name in enumerate(names)}
    time = "second" if "second" in columns else "round"
    numbers, ones = np.array([line for line, _ in found]), np.ones(len(found))
    trace = Trace(
        file, time == "second", numbers, columns["client"].astype(np.int64), columns[time],
        columns.get("available", ones) > 0, columns.get("speed", ones),
    )  # fmt: skip
    _check_once(trace, time)
    return trace


def _check_names(names: Sequence[str], file: str) -> None:
    wrong = [name for name in names if name not in NAMES]
    double = [name for name in names if names.count(name) > 1]
    if wrong or double:
        told = f'"{wrong[0]}" is no column of a trace' if wrong else f'there are two columns "{double[0]}"'
        raise SpecError(f"train.clock.trace: {file}:1: {told}; the first line is client, second or round, available, speed")
    if "client" not in names or ("second" in names) == ("round" in names) or not {"available", "speed"} & set(names):
        told = "the first line must name client, one of second and round, and available or speed or both"
        raise SpecError(f"train.clock.trace: {file}:1: {told}")


KINDS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "client": ("a whole number from 0", lambda v: v >= 0 and v == int(v) and v < 2**31),
    "round": ("a whole number from 0", lambda v: v >= 0 and v == int(v) and v < 2**24),
    "second": ("a number from 0", lambda v: v >= 0),
    "available": ("1 or 0", lambda v: v in (0, 1)),
    "speed": ("a number above 0", lambda v: v > 0),
}
"""What the values of a column are."""


def _column(name: str, at: int, width: int, found: list[tuple[int, list[str]]], file: str) -> np.ndarray:
    """f64[E]: the values of a column."""
    words, fits = KINDS[name]
    values = np.zeros(len(found))
    for i, (line, row) in enumerate(found):
        if len(row) != width:
            raise SpecError(f"train.clock.trace: {file}:{line}: has {len(row)} values, and there are {width} columns")
        try:
            value = float(row[at])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and fits(value)):
            raise SpecError(f"train.clock.trace: {file}:{line}: {name} = {row[at].strip()[:40]}: must be {words}")
        values[i] = value
    return values


def _check_once(trace: Trace, name: str) -> None:
    """SpecError for a client with two lines of one time."""
    order = np.lexsort((trace.time, trace.client))
    client, time = trace.client[order], trace.time[order]
    twice = np.flatnonzero((client[1:] == client[:-1]) & (time[1:] == time[:-1]))
    if len(twice):
        at = order[twice[0] + 1]
        told = f"client {trace.client[at]} has another line for {name} {trace.time[at]:g}"
        raise SpecError(f"train.clock.trace: {trace.file}:{trace.line[at]}: {told}")


def _with_trace(devices: Devices, trace: Trace, clients: int) -> Devices:
    beyond = np.flatnonzero(trace.client >= clients)
    if len(beyond):
        at = beyond[0]
        told = f"client = {trace.client[at]}: there are {clients} clients, 0 to {clients - 1}"
        raise SpecError(f"train.clock.trace: {trace.file}:{trace.line[at]}: {told}")
    times = np.unique(np.concatenate([[0.0], trace.time]).astype(np.float32))
    if len(times) * clients > MOST_CELLS:
        told = f"{len(times)} times of {clients} clients are too many; round the times to minutes or hours"
        raise SpecError(f"train.clock.trace: {trace.file}: {told}")
    available, factor = np.ones((len(times), clients), bool), np.ones((len(times), clients), np.float32)
    row = np.searchsorted(times, trace.time.astype(np.float32))
    for at in np.argsort(trace.time, kind="stable"):
        available[row[at] :, trace.client[at]] = trace.available[at]
        factor[row[at] :, trace.client[at]] = trace.speed[at]
    return Devices(devices.pace, on_host(times), on_host(available), on_host(factor), by_seconds=trace.by_seconds)
