"""Blobs whose classes have coarse labels, for the small size of `cifar100_pachinko.toml`: the
centres of a coarse label's classes lie together."""

import dataclasses

import numpy as np

import cfljax


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the blobs with coarse labels."""

    samples: int = cfljax.option(5000, "training and test samples together", low=100)
    coarse: int = cfljax.option(5, "coarse labels", low=1)
    classes: int = cfljax.option(4, "classes of each", low=1)
    features: int = cfljax.option(16, "dimensions", low=1)


@cfljax.register_data("coarse_blobs", Options)
def coarse_blobs(options, rng):
    """Gaussian blobs, one per class, near the centre of their coarse label; a fifth is the test
    set."""
    number = options.coarse * options.classes
    of = np.arange(number) // options.classes
    centres = rng.standard_normal((options.coarse, options.features))[
        of
    ] + 0.5 * rng.standard_normal((number, options.features))
    y = rng.permutation(np.arange(options.samples) % number)
    x = (centres[y] + 0.5 * rng.standard_normal((options.samples, options.features))).astype(
        np.float32
    )
    test = np.arange(options.samples) % 5 == 0
    parts = {"train": ~test, "test": test}
    values = {"x": x, "y": y, "y_coarse": of[y]}
    return {
        f"{key}_{part}": value[rows]
        for key, value in values.items()
        for part, rows in parts.items()
    }
