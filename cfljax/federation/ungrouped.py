"""Partitions without groups: equal or unequal shares of the shuffled samples, and the users of the
data set."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation import common
from cfljax.federation.common import Common, HeldOut, Merged, Partition, Rng
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Iid(Merged):
    """Options of `iid`."""

    holdout: float = option(
        0.0, "share of the training samples used for testing; 0: use the test set", low=0, high=0.9
    )


def iid(options: Iid, source: Source, rng: Rng) -> Parts:
    """Shuffle the samples and give every client the same number."""
    source = common.list_dealt(options, source)
    if options.holdout:
        # Both from the training part; `shards` with the same options has as many
        total = len(source.y_train)
        kept = total - int(round(options.holdout * total))
        rows = rng.permutation(total)
        common.check_most(
            "clients", options.clients, kept, f"{kept} training samples are not held out"
        )
        held_out = rows[kept:]
        rows = common.keep_wanted(options, rows[:kept])
    else:
        rows = common.training_rows(options, source, rng)
        held_out = common.test_rows(source)
    train = common.split_at(rows, common.even_sizes(len(rows), options.clients))
    test: list[np.ndarray] | np.ndarray = held_out
    if options.test == "own":
        test = common.split_at(
            rng.permutation(held_out), common.even_sizes(len(held_out), options.clients)
        )
    return Parts(train, test, common.no_group(options.clients))


@dataclasses.dataclass(frozen=True)
class Quantity(HeldOut):
    """Options of `quantity`."""

    law: str = option(
        "lognormal", "how the sizes are distributed", choices=("lognormal", "dirichlet")
    )
    sigma: float = option(1.0, "standard deviation of the logarithm of a size", low=0)
    alpha: float = option(0.5, "concentration of the Dirichlet law; small is unequal", above=0)
    min_samples: int = option(2, "smallest number of training samples of a client", low=1)
    sizes: tuple[int, ...] = option((), "exact size of each client, instead of a law", low=1)


def quantity(options: Quantity, source: Source, rng: Rng) -> Parts:
    """Shuffle the samples and give clients unequal numbers: Dirichlet or log-normal sizes, whose
    mean is `samples_per_client`, or exact `sizes`."""
    source = common.list_dealt(options, source)
    rows = common.training_rows(options, source, rng)
    clients = options.clients
    if options.sizes:
        sizes = common.exact_sizes(options, options.sizes, len(rows))
    else:
        if options.law == "lognormal":
            shares = rng.lognormal(0.0, options.sigma, clients)
        else:
            shares = rng.dirichlet(np.full(clients, options.alpha))
        sizes = common.unequal_sizes(len(rows), clients, options.min_samples, shares)
    held = common.split_at(rows, sizes)
    return Parts(*common.split_test(options, held, source, rng), common.no_group(clients))


@dataclasses.dataclass(frozen=True)
class User(Common):
    """Options of `user`."""

    clients: int = option(0, "keep this many training users, drawn at random; 0: all", low=0)
    samples_per_client: int | None = option(
        None, "keep at most this many training samples of a user", low=1
    )
    min_samples: int = option(1, "leave out training users with fewer samples", low=1)
    test_fraction: float = option(
        0.2, "share for testing, if a user has no test samples", low=0, high=0.9
    )
    test_only: str = option(
        "drop",
        "users with test samples only: left out, or clients that never train",
        choices=("drop", "keep"),
    )


def _group_by_user(users: np.ndarray, first: int, number: int) -> list[np.ndarray]:
    """Group the rows by user; row `first` is the first sample in `users`."""
    order = np.argsort(users, kind="stable")
    return np.split(first + order, np.cumsum(np.bincount(users, minlength=number))[:-1])


def user(options: User, source: Source, rng: Rng) -> Parts:
    """Make each user of the source a client; the true group is its population, if the source knows
    it."""
    if source.user_train is None:
        raise common.bad_option(
            "partition",
            "user",
            f"{source.name} does not name the users of its samples; choose another, such as iid",
        )
    number = 1 + int(source.user_train.max())
    if source.user_test is not None and len(source.user_test):
        number = max(number, 1 + int(source.user_test.max()))
    held = _group_by_user(source.user_train, 0, number)
    tested = [np.zeros(0, np.int64)] * number
    if source.user_test is not None:
        tested = _group_by_user(source.user_test, len(source.y_train), number)
    large = np.array([u for u in range(number) if len(held[u]) >= options.min_samples], np.int64)
    if not len(large):
        most = f"no user of {source.name} has this many samples; at most {max(map(len, held))}"
        raise common.bad_option("min_samples", options.min_samples, most)
    chosen = large
    if options.clients:
        common.check_most(
            "clients", options.clients, len(large), f"{source.name} has {len(large)} such users"
        )
        chosen = np.sort(rng.choice(large, options.clients, replace=False))
    pairs = [_cut_test(options, held[u], tested[u], rng) for u in chosen]
    train = [a for a, _ in pairs]
    test = [b for _, b in pairs]
    if options.test_only == "keep":
        extra = np.array(
            [u for u in range(number) if not len(held[u]) and len(tested[u])], np.int64
        )
        chosen = np.concatenate([chosen, extra])
        train += [np.zeros(0, np.int64)] * len(extra)
        test += [tested[u] for u in extra]
    if source.population is None:
        group = common.no_group(len(chosen))
    else:
        group = source.population[chosen].astype(np.int32)
    return Parts(train, common.test_rows(source) if options.test == "global" else test, group)


def _cut_test(
    options: User, train: np.ndarray, test: np.ndarray, rng: Rng
) -> tuple[np.ndarray, np.ndarray]:
    """Return the training rows and the test rows of a user. Without test rows, some training rows
    become test rows; at least one stays."""
    train = rng.permutation(train)
    if options.test == "own" and not len(test):
        edge = max(1, len(train) - int(round(options.test_fraction * len(train))))
        test = train[edge:]
        train = train[:edge]
    return train[: options.samples_per_client], test


IID = Entry[Partition](Iid, iid)
QUANTITY = Entry[Partition](Quantity, quantity)
USER = Entry[Partition](User, user)
