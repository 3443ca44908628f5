"""Partitions in which all clients have the same distribution: equal sizes, or unequal ones."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation.common import Rng, Sized, cut, evenly, no_group, own_or_global, proportional, test_rows, training_rows, wrong
from cfljax.options import option
from cfljax.registry import Entry
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Iid(Sized):
    """Options of `iid`."""


def iid(options: Iid, source: Source, rng: Rng) -> Parts:
    """Shuffled samples, the same number for every client."""
    rows = training_rows(options, source, rng)
    train = cut(rows, evenly(len(rows), options.clients))
    test: list[np.ndarray] | np.ndarray = test_rows(source)
    if options.test == "own":
        test = cut(rng.permutation(test_rows(source)), evenly(len(source.y_test), options.clients))
    return Parts(train, test, no_group(options.clients))


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
    spare = len(rows) - options.clients * options.min_samples
    if spare < 0:
        most = len(rows) // options.clients
        raise wrong("min_samples", options.min_samples, f"{options.clients} clients share {len(rows)} samples; at most {most}")
    if options.law == "lognormal":
        shares = rng.lognormal(0.0, options.sigma, options.clients)
    else:
        shares = rng.dirichlet(np.full(options.clients, options.alpha))
    train = cut(rows, options.min_samples + proportional(spare, shares))
    return Parts(train, own_or_global(options, train, source, rng), no_group(options.clients))


IID = Entry(Iid, iid)
QUANTITY = Entry(Quantity, quantity)
