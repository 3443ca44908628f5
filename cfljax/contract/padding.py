"""Federations with dummies and garbage in them, which must change no result."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.types import Array, Federation, Split, on_host


def pad(
    federation: Federation,
    clients: int = 0,
    samples: int = 0,
    rng: np.random.Generator | None = None,
) -> Federation:
    """Return the federation with `clients` dummies at the end (uid −1, nothing in their splits) and
    `samples` garbage rows behind every client's rows, with `longest` raised by as many. Changes no
    result beyond rounding."""
    rng = rng or np.random.default_rng(0)
    rows = len(federation.pool.y)
    view, drift, devices = federation.view, federation.drift, federation.devices
    return dataclasses.replace(
        federation,
        train=_pad_split(federation.train, clients, samples, rows, rng),
        test=_pad_split(federation.test, clients, samples, rows, rng),
        valid=None
        if federation.valid is None
        else _pad_split(federation.valid, clients, samples, rows, rng),
        uid=_append(federation.uid, clients, -1),
        group=_append(federation.group, clients, -1),
        arrive=_append(federation.arrive, clients, 0),
        view=None if view is None else view._replace(of=_append(view.of, clients, 0)),
        drift=None
        if drift is None
        else drift._replace(
            group=_append_columns(drift.group, clients, -1),
            view=_append_columns(drift.view, clients, 0),
        ),
        devices=None
        if devices is None or devices.times is not None
        else dataclasses.replace(devices, pace=_append(devices.pace, clients, 0)),
    )


def _append(values: Array, number: int, value: int) -> Array:
    known = np.asarray(values)
    return on_host(np.concatenate([known, np.full(number, value, known.dtype)]))


def _append_columns(values: Array, number: int, value: int) -> Array:
    known = np.asarray(values)
    return on_host(np.pad(known, ((0, 0), (0, number)), constant_values=value))


def _pad_split(
    split: Split, clients: int, samples: int, pool: int, rng: np.random.Generator
) -> Split:
    rows, start, count = np.asarray(split.rows), np.asarray(split.start), np.asarray(split.count)
    if split.shared:
        rows = np.concatenate([rows, rng.integers(pool, size=samples, dtype=np.int32)])
    elif samples:
        garbage = rng.integers(pool, size=(len(start), samples), dtype=np.int32)
        pieces = [
            p
            for a, n, more in zip(start, count, garbage, strict=True)
            for p in (rows[a : a + n], more)
        ]
        rows, start = (
            np.concatenate(pieces),
            (np.cumsum(count + samples) - count - samples).astype(np.int32),
        )
    start, count = (np.concatenate([each, np.zeros(clients, np.int32)]) for each in (start, count))
    return Split(
        on_host(rows), on_host(start), on_host(count), split.longest + samples, split.shared
    )
