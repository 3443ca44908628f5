"""HOST. Traces of the availability and speed of clients, from CSV files, for the simulated clock.
Reading them needs no JAX.

A trace has a line of names, and then a line for each change:

    client,second,available,speed
    0,0,1,1.0
    0,3600,0,1.0
    1,0,1,0.25

`client` is the number of a client, from 0; `second` (of the simulated clock) or `round` (from 0) is
when the line begins to hold, until the client's next line; `available` is 1 or 0; `speed` is a
factor on the client's speed. One of these two columns may be left out. Before its first line, and
without any, a client is available, and its factor is 1. Lines come in any order.
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

TRACE_COLUMNS = ("client", "second", "round", "available", "speed")


class Trace(NamedTuple):
    """The content of a file, line by line."""

    file: str
    by_seconds: bool
    # i64[E]: the number of each line in the file
    line: np.ndarray
    # i64[E]
    client: np.ndarray
    # f64[E]
    time: np.ndarray
    # bool[E]
    available: np.ndarray
    # f64[E]
    speed: np.ndarray


def read_trace(file: str) -> Trace:
    """Read the trace in a CSV file; a SpecError names the file and the line of an error."""
    path = Path(file).expanduser()
    try:
        stamp = path.stat()
        return _read(str(path), (stamp.st_mtime_ns, stamp.st_size))
    except OSError as error:
        raise SpecError(
            f"train.clock.trace: {file}: cannot be read ({error.strerror or error})"
        ) from None
    except UnicodeDecodeError:
        raise SpecError(
            f"train.clock.trace: {file}: is not a text file in UTF-8; give a CSV file"
        ) from None


@functools.lru_cache(maxsize=4)
def _read(file: str, stamp: tuple[int, int]) -> Trace:  # noqa: ARG001 (the file may have changed)
    with Path(file).open(newline="", encoding="utf-8-sig") as text:
        lines = csv.reader(text)
        names = [name.strip() for name in next(lines, [])]
        _check_names(names, file)
        found = [(lines.line_num, row) for row in lines if any(cell.strip() for cell in row)]
    if not found:
        raise SpecError(f"train.clock.trace: {file}: has no lines after the names of its columns")
    columns = {
        name: _parse_column(name, at, len(names), found, file) for at, name in enumerate(names)
    }
    time = "second" if "second" in columns else "round"
    numbers = np.array([line for line, _ in found])
    ones = np.ones(len(found))
    trace = Trace(
        file,
        time == "second",
        numbers,
        columns["client"].astype(np.int64),
        columns[time],
        columns.get("available", ones) > 0,
        columns.get("speed", ones),
    )
    order = np.lexsort((trace.time, trace.client))
    client = trace.client[order]
    times = trace.time[order]
    twice = np.flatnonzero((client[1:] == client[:-1]) & (times[1:] == times[:-1]))
    if len(twice):
        at = order[twice[0] + 1]
        why = f"client {trace.client[at]} has another line for {time} {trace.time[at]:g}"
        raise SpecError(f"train.clock.trace: {file}:{trace.line[at]}: {why}")
    return trace


def _check_names(names: Sequence[str], file: str) -> None:
    wrong = [name for name in names if name not in TRACE_COLUMNS]
    double = [name for name in names if names.count(name) > 1]
    if wrong or double:
        if wrong:
            why = f'"{wrong[0]}" is no column of a trace'
        else:
            why = f'there are two columns "{double[0]}"'
        raise SpecError(
            f"train.clock.trace: {file}:1: {why}; the first line is client, second or round, "
            "available, speed"
        )
    if (
        "client" not in names
        or ("second" in names) == ("round" in names)
        or not {"available", "speed"} & set(names)
    ):
        why = (
            "the first line must name client, one of second and round, and available or speed or "
            "both"
        )
        raise SpecError(f"train.clock.trace: {file}:1: {why}")


# The range of each column, in words and as a predicate. float32 counts seconds and rounds exactly
# up to 2²⁴
COLUMN_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "client": ("a whole number from 0", lambda v: v >= 0 and v == int(v) and v < 2**31),
    "round": ("a whole number from 0", lambda v: v >= 0 and v == int(v) and v < 2**24),
    "second": (
        "a number from 0 to 16777215, counted from the start of the run",
        lambda v: 0 <= v < 2**24,
    ),
    "available": ("1 or 0", lambda v: v in (0, 1)),
    "speed": ("a number above 0", lambda v: v > 0),
}


def _parse_column(
    name: str, at: int, width: int, found: list[tuple[int, list[str]]], file: str
) -> np.ndarray:
    words, fits = COLUMN_RANGES[name]
    values = np.zeros(len(found))
    for i, (line, row) in enumerate(found):
        if len(row) != width:
            raise SpecError(
                f"train.clock.trace: {file}:{line}: has {len(row)} values for {width} columns"
            )
        try:
            value = float(row[at])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and fits(value)):
            raise SpecError(
                f"train.clock.trace: {file}:{line}: {name} = {row[at].strip()[:40]}: must be "
                f"{words}"
            )
        values[i] = value
    return values


# The largest size (times of change × clients) of a trace on the device, at five bytes each
MAX_TRACE_CELLS = 10**8
# Beside the seed, so that no other draw of a run has the same numbers
_SEED_TAG = 0x636C6F


def make_devices(clients: int, seed: int, same: bool, trace: str | None) -> Devices:
    """Make the devices of clients, whatever the method. `same`: all have speed 1, apart from the
    trace."""
    pace = np.random.default_rng([seed, _SEED_TAG]).standard_normal(clients).astype(np.float32)
    devices = Devices(on_host(np.zeros_like(pace) if same else pace))
    return devices if trace is None else _add_trace(devices, read_trace(trace), clients)


def _add_trace(devices: Devices, trace: Trace, clients: int) -> Devices:
    """Add a table of the trace to the devices, with a row for each time of a change."""
    beyond = np.flatnonzero(trace.client >= clients)
    if len(beyond):
        at = beyond[0]
        why = f"client = {trace.client[at]}: there are {clients} clients, 0 to {clients - 1}"
        raise SpecError(f"train.clock.trace: {trace.file}:{trace.line[at]}: {why}")
    times = np.unique(np.concatenate([[0.0], trace.time]).astype(np.float32))
    if len(times) * clients > MAX_TRACE_CELLS:
        why = (
            f"{len(times)} times of {clients} clients are too many; round the times to minutes "
            "or hours"
        )
        raise SpecError(f"train.clock.trace: {trace.file}: {why}")
    available = np.ones((len(times), clients), bool)
    factor = np.ones((len(times), clients), np.float32)
    order = np.lexsort((trace.time, trace.client))
    # The lines of each client, in the order of time
    for lines in np.split(order, np.flatnonzero(np.diff(trace.client[order])) + 1):
        client = trace.client[lines[0]]
        begin = np.searchsorted(times, trace.time[lines].astype(np.float32))
        until = np.append(begin[1:], len(times))
        available[begin[0] :, client] = np.repeat(trace.available[lines], until - begin)
        factor[begin[0] :, client] = np.repeat(trace.speed[lines], until - begin)
    return Devices(
        devices.pace,
        on_host(times),
        on_host(available),
        on_host(factor),
        by_seconds=trace.by_seconds,
    )
