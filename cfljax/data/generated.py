"""The data sets that need no files: Gaussian blobs, scikit-learn's digits, and Synthetic(α, β)."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
from pathlib import Path

import numpy as np

from cfljax.data import arrays
from cfljax.data.sources import DrawSource
from cfljax.errors import DataError
from cfljax.registry import Entry
from cfljax.registry.options import NoOptions, option
from cfljax.types import Source

# How many draws of sizes are tried until their sum is near the one that is wanted
_MAX_DRAWS = 200_000
# Seed of the division of the digits into training and test samples
_DIVISION_SEED = 0


@dataclasses.dataclass(frozen=True)
class Blobs:
    """Options of the blobs."""

    samples: int = option(1000, "training and test samples together", low=2, high=10_000_000)
    classes: int = option(4, "number of blobs", low=1, high=10_000)
    features: int = option(8, "dimensions", low=1, high=100_000)
    spread: float = option(0.3, "standard deviation of a blob; the centres have 1", low=0.0)


def blobs(options: Blobs, rng: np.random.Generator) -> Source:
    """Gaussian blobs around normally distributed centres, one per class; a fifth is the test
    set."""
    y = np.arange(options.samples, dtype=np.int32) % options.classes
    centres = rng.standard_normal((options.classes, options.features), dtype=np.float32)
    noise = rng.standard_normal((options.samples, options.features), dtype=np.float32)
    x = centres[y] + np.float32(options.spread) * noise
    test = sample_stratified(y, 0.2, rng)
    return arrays.source("blobs", "blobs", arrays.split_parts(test, x=x, y=y), options.classes)


# No random numbers: the division is the same for every seed
def digits(options: NoOptions, rng: np.random.Generator) -> Source:  # noqa: ARG001
    """scikit-learn's 1,797 handwritten digits, 8 × 8 pixels, ten classes; no download."""
    table = _read_digits()
    images = table[:, :-1].reshape(-1, 8, 8)
    # Stored 0 … 16; as bytes, white is 255 as in other image sets
    x = np.round(images * (255 / 16)).astype(np.uint8)
    y = table[:, -1].astype(np.int32)
    test = sample_stratified(y, 0.2, np.random.default_rng(_DIVISION_SEED))
    return arrays.source("digits", "digits", arrays.split_parts(test, x=x, y=y), 10)


def _read_digits() -> np.ndarray:
    """Return f64[1797, 65]: pixels and digit, read without importing scikit-learn, which takes a
    second."""
    found = importlib.util.find_spec("sklearn")
    paths = [] if found is None else [Path(path) for path in found.submodule_search_locations or ()]
    files = [
        file for path in paths if (file := path / "datasets" / "data" / "digits.csv.gz").is_file()
    ]
    if not files:
        raise DataError(
            'data "digits": scikit-learn, which the file comes with, has no '
            "datasets/data/digits.csv.gz; reinstall it"
        )
    with gzip.open(files[0], "rt", encoding="ascii") as lines:
        return np.loadtxt(lines, delimiter=",")


def sample_stratified(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Mark a random `share` of each class, rounded: bool[n]."""
    test = np.zeros(len(y), bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        test[rng.permutation(rows)[: round(share * len(rows))]] = True
    return test


@dataclasses.dataclass(frozen=True)
class Synthetic:
    """Options of Synthetic(α, β)."""

    default_partition = "user"

    model_spread: float = option(
        1.0, "spread of the clients' models (standard deviation of their means)", low=0.0
    )
    feature_spread: float = option(
        1.0, "spread of the clients' features (standard deviation of their means)", low=0.0
    )
    users: int = option(100, "users, each with a model of its own", low=1, high=1_000_000)
    features: int = option(60, "features", low=1, high=100_000)
    classes: int = option(10, "classes", low=2, high=10_000)
    size: int | None = option(
        None,
        "total number of samples, reached within `near` by drawing again (the paper: 75349)",
        low=1,
    )
    near: float = option(0.01, "tolerance of `size`, as a fraction of it", above=0.0, high=1.0)


def synthetic(options: Synthetic, rng: np.random.Generator) -> Source:
    """Synthetic(alpha, beta): one linear model per client, 60 features, 10 classes; one user per
    client, 90/10 split.

    Client u has W ~ N(a, 1), b ~ N(a, 1), a ~ N(0, α); features N(v, diag(j^−1.2)), v ~ N(B, 1), B
    ~ N(0, β); α and β are standard deviations, as in the authors' generator; label argmax(xW + b);
    size = lognormal(4, 2) + 50."""
    size = _draw_sizes(options, rng)
    clients = options.users
    features = options.features
    classes = options.classes
    mean_model = rng.normal(0, options.model_spread, clients)
    mean_feature = rng.normal(0, options.feature_spread, clients)
    weight = rng.normal(mean_model[:, None, None], 1, (clients, features, classes)).astype(
        np.float32
    )
    bias = rng.normal(mean_model[:, None], 1, (clients, classes)).astype(np.float32)
    centre = rng.normal(mean_feature[:, None], 1, (clients, features)).astype(np.float32)
    user = np.repeat(np.arange(clients, dtype=np.int32), size)
    x = rng.standard_normal((len(user), features), dtype=np.float32)
    # The root of Σ's diagonal
    x *= (np.arange(1, features + 1) ** -0.6).astype(np.float32)
    x += centre[user]
    start = np.concatenate([[0], np.cumsum(size)])
    y = np.empty(len(user), np.int32)
    # One product per client: gathering W for each sample would take features × classes floats each
    for u in range(clients):
        rows = slice(start[u], start[u + 1])
        y[rows] = np.argmax(x[rows] @ weight[u] + bias[u], axis=1)
    test = np.arange(len(user)) - start[user] >= (0.9 * size).astype(int)[user]
    return arrays.source(
        "synthetic", "synthetic", arrays.split_parts(test, x=x, y=y, user=user), classes
    )


def _draw_sizes(options: Synthetic, rng: np.random.Generator) -> np.ndarray:
    """Draw the samples of each client, i64[clients], until the sum is near `size`."""
    if options.size is None:
        return rng.lognormal(4, 2, options.users).astype(np.int64) + 50
    # Drawn again as a whole: redrawing single sizes would change the distribution
    batch = max(1, 1_000_000 // options.users)
    least = np.inf
    for _ in range(0, _MAX_DRAWS, batch):
        sizes = rng.lognormal(4, 2, (batch, options.users)).astype(np.int64) + 50
        off = np.abs(sizes.sum(axis=1) - options.size)
        hits = np.flatnonzero(off <= options.near * options.size)
        if len(hits):
            return sizes[hits[0]]
        least = min(least, off.min())
    raise DataError(
        f"data.size = {options.size}: no draw of {options.users} clients' sizes came "
        f"nearer than {int(least)}; "
        f"a client has 50 samples or more, 400 on average"
    )


BLOBS = Entry[DrawSource](Blobs, blobs)
DIGITS = Entry[DrawSource](NoOptions, digits)
SYNTHETIC = Entry[DrawSource](Synthetic, synthetic)
