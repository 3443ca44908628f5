import os
from pathlib import Path

import numpy as np
import pytest

from cfljax.federation import PARTITIONS
from cfljax.types import Source


def fake(train=1200, test=300, classes=10, shape=(4, 4), seed=0, balanced=True):
    """A source of random bytes whose labels occur equally often (balanced) or are drawn."""
    rng = np.random.default_rng(seed)

    def labels(n):
        y = rng.permutation(np.arange(n) % classes) if balanced else rng.integers(classes, size=n)
        return y.astype(np.int32)

    def x(n):
        return rng.integers(256, size=(n, *shape), dtype=np.uint8)

    return Source("fake", x(train), labels(train), x(test), labels(test), classes)


def with_users(source, users=30, test_users=20, test_only=3):
    """The same source with authors: all train, the first `test_users` have test samples, and so
    have some who never train."""
    n, m = len(source.y_train), len(source.y_test)
    testers = np.concatenate([np.arange(test_users), users + np.arange(test_only)])
    population = np.arange(users + test_only, dtype=np.int32) % 2
    by, by_test = (
        (np.arange(n) % users).astype(np.int32),
        testers[np.arange(m) % len(testers)].astype(np.int32),
    )
    return source._replace(user_train=by, user_test=by_test, population=population)


def parts(name, source, seed=0, **options):
    """A partition made as a spec would make it."""
    checked = PARTITIONS.check(name, options, "data")
    return PARTITIONS.entry(name).make(checked, source, np.random.default_rng(seed))


def real(name):
    """A real data set from the folder of data files; skips where there is none."""
    path = Path(os.environ.get("CFLJAX_DATA", "")) / f"{name}.npz"
    if not os.environ.get("CFLJAX_DATA") or not path.exists():
        pytest.skip(f"{name}.npz is not in CFLJAX_DATA")
    with np.load(path, allow_pickle=False) as file:
        x_train, x_test = file["x_train"], file["x_test"]
        y_train, y_test = file["y_train"].astype(np.int32), file["y_test"].astype(np.int32)
    return Source(name, x_train, y_train, x_test, y_test, 1 + int(y_train.max()))
