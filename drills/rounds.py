"""Rounds in this process, on the CPU, with compiled programs that later drills find again: batches of runs on nine clients, and
random federations of one shape."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import numpy as np  # noqa: E402

from cfljax.types import Federation, Split  # noqa: E402
from drills.common import CACHE, FRESH  # noqa: E402
from tests import play  # noqa: E402
from tests.padding import pad  # noqa: E402

if not os.environ.get(FRESH):
    jax.config.update("jax_compilation_cache_dir", str(CACHE / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
CLIENTS, LONGEST, TEST = 9, 24, 10
ten_rounds = functools.partial(play.on_nine, rounds=10)


def random_federation(rng: np.random.Generator, clients: int = CLIENTS, **changes: Any) -> Federation:
    """Nine places with arrays of fixed shapes, so that all share a program; the first `clients` of them hold real data of
    random sizes. Rows that nobody holds are NaN."""
    classes, features = 4, 6
    y = rng.integers(0, classes, 264).astype(np.int32)
    x = (rng.normal(size=(classes, features))[y] + 0.5 * rng.normal(size=(264, features))).astype(np.float32)
    x[260:] = np.nan
    real = np.arange(CLIENTS) < clients
    train = np.where(real, rng.integers(1, LONGEST + 1, CLIENTS), 0).astype(np.int32)
    test = np.where(real, rng.integers(1, TEST + 1, CLIENTS), 0).astype(np.int32)
    base = play.nine_clients()

    def split(old: Split, count: np.ndarray, longest: int) -> Split:
        rows = np.where(np.arange(CLIENTS * longest) < count.sum(), rng.integers(0, 260, CLIENTS * longest), 260).astype(np.int32)
        return dataclasses.replace(old, rows=rows, start=(np.cumsum(count) - count).astype(np.int32), count=count, longest=longest)

    drawn = dataclasses.replace(
        base,
        pool=base.pool._replace(x=x, y=y),
        train=split(base.train, train, LONGEST),
        test=split(base.test, test, TEST),
        uid=np.where(real, np.arange(CLIENTS), -1).astype(np.int32),
        group=np.where(real, rng.integers(0, 2, CLIENTS), -1).astype(np.int32),
        arrive=np.zeros(CLIENTS, np.int32),
        view=None,
        groups=2,
    )
    return dataclasses.replace(drawn, **changes)


def padded_with_nan(federation: Federation, samples: int, clients: int, rng: np.random.Generator) -> Federation:
    """Padded with rows that are NaN, and with dummy clients."""
    padded = pad(federation, clients=clients, samples=samples, rng=rng)
    if samples:
        for part, old in (("train", federation.train), ("test", federation.test)):
            split = getattr(padded, part)
            rows, held = np.array(split.rows), np.zeros(len(split.rows), bool)
            for start, count in zip(split.start, split.count, strict=True):
                held[start : start + count] = True
            rows[~held] = len(federation.pool.y) - 1
            room = np.full(CLIENTS * split.longest - len(rows), len(federation.pool.y) - 1, np.int32)
            rows = np.concatenate([rows, room])  # one shape, whatever the clients hold
            padded = dataclasses.replace(padded, **{part: dataclasses.replace(split, rows=rows)})
            assert old.longest + samples == split.longest
    return padded
