"""HOST. From parts to the Federation pytree: a pool that holds every sample once, and the rows of
each client in it."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import DataError
from cfljax.federation.scaling import find_scaling
from cfljax.types import Drift, Federation, Parts, Pool, Source, Split, View, on_host
from cfljax.types.federation import NEVER

# Share of unused rows above which they are left out of the pool
MIN_UNUSED_SHARE = 0.1


def pack(
    parts: Parts,
    source: Source,
    normalise: str = "unit",
    arrive: np.ndarray | None = None,
    valid: list[np.ndarray] | None = None,
    drift: Drift | None = None,
) -> Federation:
    """Pack the federation as numpy arrays; the engine puts them on the device.

    Args:
        normalise: "unit" divides bytes by 255; "pixel" standardises each pixel by the samples that
            clients train on, as they see them; "pixel_all" by all samples of the source, or, where
            views move pixels, by all that clients hold, as they see them; "none" leaves the values
            unchanged.
        valid: the rows of each client that are set aside for validation; `parts.train` is without
            them.
        drift: how groups and views change."""
    source = parts.source or source
    parts = dataclasses.replace(parts, test=_interleave_tests(parts))
    clients = len(parts.train)
    rows, pool = _compact(
        parts, source, normalise, valid or [], np.zeros(clients) if arrive is None else arrive
    )
    shared = isinstance(parts.test, np.ndarray)
    tables = (parts.pixels, parts.labels, parts.gain, parts.offset, parts.by_label)
    seen = (None if table is None else on_host(table) for table in tables)
    edge = sum(map(len, parts.train))
    end = len(rows) - sum(map(len, valid or []))
    tested = np.full(clients, len(parts.test)) if shared else np.array([len(r) for r in parts.test])
    return Federation(
        pool=pool,
        train=_split(rows[:edge], np.array([len(r) for r in parts.train])),
        test=_split(rows[edge:end], tested, shared),
        uid=on_host(np.arange(clients, dtype=np.int32)),
        group=on_host(np.asarray(parts.group, np.int32)),
        arrive=on_host(
            np.zeros(clients, np.int32) if arrive is None else np.asarray(arrive, np.int32)
        ),
        view=None if parts.view is None else View(on_host(np.asarray(parts.view, np.int32)), *seen),
        valid=None if valid is None else _split(rows[end:], np.array([len(r) for r in valid])),
        drift=drift,
        classes=source.classes,
        groups=int(np.max(parts.group if drift is None else drift.group, initial=-1)) + 1,
    )


def _interleave_tests(parts: Parts) -> list[np.ndarray] | np.ndarray:
    """Reorder the test rows of clients that never train: every other row first. They choose their
    model on the first half of their test samples, which must not be the first classes of a sorted
    file."""
    alone = [not len(rows) for rows in parts.train]

    def halves(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows[::2], rows[1::2]])

    if isinstance(parts.test, np.ndarray):
        return halves(parts.test) if any(alone) else parts.test
    return [
        halves(np.asarray(rows)) if each else rows
        for rows, each in zip(parts.test, alone, strict=True)
    ]


def _split(rows: np.ndarray, count: np.ndarray, shared: bool = False) -> Split:
    """Build the split in which each client has `count` i64[C] of these rows, at least one for all;
    `shared`: all have the same."""
    rows = rows.astype(np.int32) if len(rows) else np.zeros(1, np.int32)
    start = np.zeros_like(count) if shared else np.cumsum(count) - count
    longest = max(1, int(count.max(initial=0)))
    return Split(
        on_host(rows),
        on_host(start.astype(np.int32)),
        on_host(count.astype(np.int32)),
        longest,
        shared,
    )


def _compact(
    parts: Parts, source: Source, normalise: str, valid: list[np.ndarray], arrive: np.ndarray
) -> tuple[np.ndarray, Pool]:
    """Return the positions in the pool of all training, test and validation rows; and the pool,
    without rows of nobody if many."""
    x = np.concatenate([source.x_train, source.x_test])
    y = np.concatenate([source.y_train, source.y_test])
    tests = [parts.test] if isinstance(parts.test, np.ndarray) else parts.test
    rows = np.concatenate([*parts.train, *tests, *valid]).astype(np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= len(y)):
        raise DataError(
            f"{source.name}: the partition names row "
            f"{rows.max() if rows.max() >= len(y) else rows.min()} of {len(y)}"
        )
    trains = np.array([len(each) > 0 for each in parts.train]) & (np.asarray(arrive) < NEVER)
    mean, scale = find_scaling(x, normalise, parts, trains, valid, y)
    order, used = _order_by_client(rows, len(y))
    index = np.empty_like(order)
    index[order] = np.arange(len(order))
    if 0 < used < (1 - MIN_UNUSED_SHARE) * len(y):
        order = order[:used]
    table = None if source.table is None else on_host(source.table)
    if y.dtype.kind != "f":
        y = y.astype(np.int32)
    pool = Pool(on_host(x[order]), on_host(y[order]), on_host(mean), on_host(scale), table)
    return index[rows], pool


def _order_by_client(rows: np.ndarray, number: int) -> tuple[np.ndarray, int]:
    """Order all rows i64[number]: those of clients first, one client after another, to be read
    faster; and how many these are."""
    held, first = np.unique(rows, return_index=True)
    others = np.ones(number, bool)
    others[held] = False
    return np.concatenate([held[np.argsort(first)], np.flatnonzero(others)]), len(held)


def count_bytes(part: object) -> int:
    """Count the bytes in all arrays of a federation, or of a part of it."""
    if isinstance(part, tuple):
        return sum(map(count_bytes, part))
    if dataclasses.is_dataclass(part):
        return sum(count_bytes(getattr(part, field.name)) for field in dataclasses.fields(part))
    return int(getattr(part, "nbytes", 0))
