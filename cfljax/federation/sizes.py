"""Partitions in which all clients have the same distribution: equal sizes, or unequal ones."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation.common import (
    Partition,
    Rng,
    Sized,
    check_most,
    cut,
    evenly,
    no_group,
    own_or_global,
    proportional,
    test_rows,
    training_rows,
    wrong,
)
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Iid(Sized):
    """Options of `iid`."""

    holdout: float = option(
        0.0, "share of the training samples that becomes the test part; 0: use the test set", low=0, high=0.9, later=True
    )


def iid(options: Iid, source: Source, rng: Rng) -> Parts:
    """Shuffled samples, the same number for every client."""
    if options.holdout:
        rows, held_out = _held_out(options, source, rng)
    else:
        rows, held_out = training_rows(options, source, rng), test_rows(source)
    train = cut(rows, evenly(len(rows), options.clients))
    test: list[np.ndarray] | np.ndarray = held_out
    if options.test == "own":
        test = cut(rng.permutation(held_out), evenly(len(held_out), options.clients))
    return Parts(train, test, no_group(options.clients))


def _held_out(options: Iid, source: Source, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """(Training rows, test rows), both from the training part of the data set. `shards` with the same options has as many."""
    total = len(source.y_train)
    kept = total - int(round(options.holdout * total))
    rows = rng.permutation(total)
    if options.clients * (options.samples_per_client or 1) > kept:
        name = "clients" if options.samples_per_client is None else "samples_per_client"
        why = f"{options.clients} clients share the {kept} training samples that are not held out"
        raise wrong(name, getattr(options, name), why)
    train = rows[:kept] if options.samples_per_client is None else rows[: options.clients * options.samples_per_client]
    return train, rows[kept:]


@dataclasses.dataclass(frozen=True)
class Quantity(Sized):
    """Options of `quantity`."""

    law: str = option("lognormal", "how the sizes are distributed", choices=("lognormal", "dirichlet"))
    sigma: float = option(1.0, "standard deviation of the logarithm of a size", low=0)
    alpha: float = option(0.5, "concentration of the Dirichlet law; small is unequal", above=0)
    min_samples: int = option(2, "smallest number of training samples of a client", low=1)


def quantity(options: Quantity, source: Source, rng: Rng) -> Parts:
    """Shuffled samples, unequal numbers: Dirichlet or log-normal sizes. `samples_per_client` is the mean."""
    rows = training_rows(options, source, rng)
    clients, total = options.clients, len(rows)
    check_most("min_samples", options.min_samples, total // clients, f"{clients} clients share {total} samples")
    spare = total - clients * options.min_samples
    if options.law == "lognormal":
        shares = rng.lognormal(0.0, options.sigma, options.clients)
    else:
        shares = rng.dirichlet(np.full(options.clients, options.alpha))
    train = cut(rows, options.min_samples + proportional(spare, shares))
    return Parts(train, own_or_global(options, train, source, rng), no_group(options.clients))


IID = Entry[Partition](Iid, iid)
QUANTITY = Entry[Partition](Quantity, quantity)
