"""The natural partition: each user of the data set is a client that holds the samples of that user."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation.common import Common, Partition, Rng, check_most, no_group, test_rows, wrong
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class User(Common):
    """Options of `user`."""

    clients: int = option(0, "keep this many training users, drawn at random; 0: all", low=0)
    samples_per_client: int | None = option(None, "keep at most this many training samples of a user", low=1)
    min_samples: int = option(1, "leave out training users with fewer samples", low=1)
    test_fraction: float = option(0.2, "test share of the training samples of a user without test samples", low=0, high=0.9)
    test_only: str = option("drop", "users with test samples only: left out, or clients that never train", choices=("drop", "keep"))


def _of_user(users: np.ndarray, first: int, number: int) -> list[np.ndarray]:
    """The rows of each user; row `first` is the first sample in `users`."""
    order = np.argsort(users, kind="stable")
    return np.split(first + order, np.cumsum(np.bincount(users, minlength=number))[:-1])


def user(options: User, source: Source, rng: Rng) -> Parts:
    """Each user of the source is a client; the true group is its population, where the source knows it."""
    if source.user_train is None:
        raise wrong("partition", "user", f"{source.name} does not name the users of its samples; choose another, such as iid")
    number = 1 + int(source.user_train.max())
    if source.user_test is not None and len(source.user_test):
        number = max(number, 1 + int(source.user_test.max()))
    held = _of_user(source.user_train, 0, number)
    tested = [np.zeros(0, np.int64)] * number
    if source.user_test is not None:
        tested = _of_user(source.user_test, len(source.y_train), number)
    large = np.array([u for u in range(number) if len(held[u]) >= options.min_samples], np.int64)
    chosen = _choose(options, large, held, source, rng)
    train, test = [], []
    for u in chosen:
        train_rows, own_test = _cut_test(options, held[u], tested[u], rng)
        train.append(train_rows)
        test.append(own_test)
    if options.test_only == "keep":
        extra = np.array([u for u in range(number) if not len(held[u]) and len(tested[u])], np.int64)
        chosen = np.concatenate([chosen, extra])
        train += [np.zeros(0, np.int64)] * len(extra)
        test += [tested[u] for u in extra]
    group = no_group(len(chosen)) if source.population is None else source.population[chosen].astype(np.int32)
    return Parts(train, test_rows(source) if options.test == "global" else test, group)


def _choose(options: User, large: np.ndarray, held: list[np.ndarray], source: Source, rng: Rng) -> np.ndarray:
    if not len(large):
        most = max(len(rows) for rows in held)
        raise wrong("min_samples", options.min_samples, f"no user of {source.name} has this many samples; at most {most}")
    if not options.clients:
        return large
    check_most("clients", options.clients, len(large), f"{source.name} has {len(large)} such users")
    return np.sort(rng.choice(large, options.clients, replace=False))


def _cut_test(options: User, train: np.ndarray, test: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """(Training rows, test rows) of a user. Without test rows, some training rows become test rows; at least one stays."""
    train = rng.permutation(train)
    if options.test == "own" and not len(test):
        edge = max(1, len(train) - int(round(options.test_fraction * len(train))))
        train, test = train[:edge], train[edge:]
    return train[: options.samples_per_client], test


USER = Entry[Partition](User, user)
