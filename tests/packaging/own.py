"""Forgetting what a test has registered."""

import contextlib

from cfljax.config import plugins
from cfljax.data import SOURCES
from cfljax.engine.metrics import METRICS
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS

REGISTRIES = (METHODS, MODELS, PARTITIONS, SOURCES, METRICS)


@contextlib.contextmanager
def forgotten():
    """Whatever is registered inside is gone afterwards: other tests look at everything that is
    registered."""
    before = [(dict(r._lines), dict(r._origins), r._installed) for r in REGISTRIES]
    loaded = dict(plugins._loaded)
    try:
        yield
    finally:
        for registry, (lines, own, offered) in zip(REGISTRIES, before, strict=True):
            registry._lines, registry._origins, registry._installed = lines, own, offered
        plugins._loaded.clear()
        plugins._loaded.update(loaded)
