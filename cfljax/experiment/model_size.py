"""HOST. The sizes of a run. A dry run needs the number of parameters of its model, and mostly nothing else of the model. Counting
them traces the model, which takes longer than the rest of a dry run, so the count is cached."""

from __future__ import annotations

import hashlib

from cfljax import models
from cfljax.config import Run
from cfljax.config.frozen import canonical
from cfljax.experiment.assemble import model_of
from cfljax.experiment.batching import Size, count_size
from cfljax.experiment.features import find_samples
from cfljax.experiment.federations import sample_shape
from cfljax.files import cache_folder, read_table, write_table
from cfljax.models.options import common_options
from cfljax.models.started import split_features
from cfljax.software import software_hash
from cfljax.types import Federation, Model

MOST = 1000
"""Counts that are kept; beyond, all are made again."""


def model_size(run: Run, federation: Federation) -> int:
    """Return the number of parameters of the run's model for these samples. A user's own model is always traced."""
    if models.MODELS.origin(run.model.name) is not None:
        return model_of(run, federation).size
    file, key = cache_folder() / "model-sizes.json", _key(run, federation)
    kept = read_table(file, _is_size)
    if key not in kept:
        kept = (kept if len(kept) < MOST else {}) | {key: model_of(run, federation).size}
        write_table(file, kept)
    return kept[key]


def count_run_size(run: Run, federation: Federation, model: Model | None = None) -> Size:
    """Return the sizes that the run's memory depends on. `model`: the run's model, if it has been made."""
    size = count_size(federation, model_size(run, federation) if model is None else model.size)
    return _with_features(size, run, federation, made=model is not None) if common_options(run.model.options).frozen else size


def _with_features(size: Size, run: Run, federation: Federation, made: bool) -> Size:
    if made:
        return size._replace(features=federation.pool.x.size)
    network = models.build(run.model.name, run.model.options, sample_shape(federation), federation.classes)
    numbers = len(find_samples(federation).row) * split_features(network)[1]
    return size._replace(pool_bytes=size.pool_bytes + 4 * numbers, features=numbers)


def _key(run: Run, federation: Federation) -> str:
    """Return the hash of all that the count depends on: the model's options, its samples, and the code that makes it."""
    words = [
        run.model.name,
        canonical(run.model.options),
        canonical(run.train.lora),
        str(sample_shape(federation)),
        str(federation.classes),
        software_hash(),
    ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0
