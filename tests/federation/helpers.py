import numpy as np

from cfljax.federation import PARTITIONS
from cfljax.types import Source


def fake(train=1200, test=300, classes=10, shape=(4, 4), seed=0, balanced=True):
    """A source whose labels cycle (balanced) or are drawn, and whose bytes name their row."""
    rng = np.random.default_rng(seed)

    def labels(n):
        y = rng.permutation(np.arange(n) % classes) if balanced else rng.integers(classes, size=n)
        return y.astype(np.int32)

    def x(n):
        return rng.integers(256, size=(n, *shape), dtype=np.uint8)

    return Source("fake", x(train), labels(train), x(test), labels(test), classes)


def parts(name, source, seed=0, **options):
    checked = PARTITIONS.check(name, options, "data")
    return PARTITIONS.entry(name).make(checked, source, np.random.default_rng(seed))
