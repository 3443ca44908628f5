"""HOST. The sizes of a run. A dry run needs the number of parameters of its model, and mostly
nothing else of the model. Counting them traces the model, which takes longer than the rest of a dry
run, so the count is cached."""

from __future__ import annotations

import hashlib

from cfljax import models
from cfljax.config import Run
from cfljax.config.frozen import canonical
from cfljax.experiment.assemble import model_of
from cfljax.experiment.batching import Size, count_size
from cfljax.experiment.features import find_distinct_samples
from cfljax.experiment.federations import sample_shape
from cfljax.files import cache_folder, read_table, write_table
from cfljax.models.features import split_features
from cfljax.models.options import common_options
from cfljax.software import software_hash
from cfljax.types import Federation, Model

# How many counts the file keeps; when there are more, it begins again
MAX_STORED_SIZES = 1000


def model_size(run: Run, federation: Federation) -> int:
    """Return the number of parameters of the run's model for these samples. A user's own model is
    always traced."""
    if models.MODELS.origin(run.model.name) is not None:
        return model_of(run, federation).size
    model = run.model
    samples = (sample_shape(federation), federation.classes)
    words = [
        model.name,
        canonical(model.options),
        canonical(run.train.lora),
        *map(str, samples),
        software_hash(),
    ]
    file = cache_folder() / "model-sizes.json"
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]
    kept = read_table(file, lambda value: type(value) is int and value > 0)
    if key not in kept:
        kept = (kept if len(kept) < MAX_STORED_SIZES else {}) | {
            key: model_of(run, federation).size
        }
        write_table(file, kept)
    return kept[key]


def count_run_size(run: Run, federation: Federation, model: Model | None = None) -> Size:
    """Return the sizes that the run's memory depends on.

    Args:
        run: whose model may have a frozen body.
        federation: its samples; with `model` and a frozen body, the features of its samples.
        model: the run's model, if it has been made."""
    size = count_size(federation, model_size(run, federation) if model is None else model.size)
    if not common_options(run.model.options).frozen:
        return size
    if model is not None:
        return size._replace(features=federation.pool.x.size)
    network = models.build(
        run.model.name, run.model.options, sample_shape(federation), federation.classes
    )
    numbers = len(find_distinct_samples(federation).row) * split_features(network)[1]
    return size._replace(pool_bytes=size.pool_bytes + 4 * numbers, features=numbers)
