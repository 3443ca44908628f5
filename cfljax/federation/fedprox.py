"""The partition of FedProx's MNIST, which many papers share, reconstructed from the authors'
program."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation.common import Common, Partition, Rng, bad_option, label_of
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class FedProx(Common):
    """Options of `fedprox`."""

    clients: int = option(1000, "number of clients", low=1)
    minimum: int = option(5, "samples of each of its two classes that every client has", low=1)
    sigma: float = option(2.0, "standard deviation of the logarithm of the shares", low=0)
    total: int | None = option(
        None, "total number of samples, reached by drawing again (FedProx: 69035)", low=1
    )


def _fedprox_sizes(
    options: FedProx, have: np.ndarray, rng: np.random.Generator | np.random.RandomState
) -> np.ndarray:
    """Return i64[C, 2]: how many samples of its first and second class each client takes beyond the
    minimum."""
    classes = len(have)
    minimum = options.minimum
    user = np.arange(options.clients)
    of = np.stack([user % classes, (user + 1) % classes], 1)
    used = minimum * np.bincount(of.ravel(), minlength=classes)
    if np.any(used > have):
        scarce = int(np.argmin(have - used))
        fits = int(have.min()) // (2 * minimum) * classes
        why = (
            f"class {scarce} has {have[scarce]} samples, {used[scarce]} are needed; at most {fits}"
        )
        raise bad_option("clients", options.clients, why)
    shares = rng.lognormal(0.0, options.sigma, (classes, -(-options.clients // classes), 2))
    shares = (have - used)[:, None, None] * shares / shares.sum((1, 2), keepdims=True)
    wanted = shares[of, (user // classes)[:, None], np.arange(2)].astype(np.int64)
    taken = np.zeros_like(wanted)
    for u in range(options.clients):
        for j in range(2):
            c = of[u, j]
            # A share that no longer fits is skipped
            if used[c] + wanted[u, j] < have[c]:
                taken[u, j] = wanted[u, j]
                used[c] += wanted[u, j]
    return taken


def _draw_until_total(
    options: FedProx, have: np.ndarray, rng: Rng, draws: int = 2000
) -> np.ndarray:
    totals = []
    for _ in range(draws):
        taken = _fedprox_sizes(options, have, rng)
        totals.append(int(taken.sum()) + 2 * options.minimum * options.clients)
        if options.total in (None, totals[-1]):
            return taken
    nearest = min(totals, key=lambda n: abs(n - (options.total or 0)))
    raise bad_option(
        "total",
        options.total,
        f"none of {draws} draws has this many samples; the nearest has {nearest}",
    )


def split_train_test(
    held: list[np.ndarray], test: str, rng: Rng
) -> tuple[list[np.ndarray], list[np.ndarray] | np.ndarray]:
    """Return each client's training rows, int(0.9 n) of its n, shuffled; and its other rows, or for
    `global` all clients' other rows."""
    pairs = [np.split(rng.permutation(rows), [int(0.9 * len(rows))]) for rows in held]
    train_rows = [train for train, _ in pairs]
    test_rows = [rest for _, rest in pairs]
    return train_rows, test_rows if test == "own" else np.unique(np.concatenate(test_rows))


def fedprox(options: FedProx, source: Source, rng: Rng) -> Parts:
    """FedProx's MNIST: classes u and u + 1 for client u, five of each, then log-normal shares;
    1,000 clients.

    Takes the source's training and test samples together; a client's test part is a tenth of what
    it holds, and the global test set is all of these. The true group is the pair of classes.
    """
    if source.classes < 2:
        raise bad_option(
            "partition", "fedprox", f"{source.name} has {source.classes} class; needs at least 2"
        )
    classes = source.classes
    labels = label_of(source, np.arange(len(source.y_train) + len(source.y_test)))
    of_class = [np.flatnonzero(labels == c) for c in range(classes)]
    more = _draw_until_total(options, np.array([len(r) for r in of_class]), rng)
    held: list[list[np.ndarray]] = [[] for _ in range(options.clients)]
    used = np.zeros(classes, np.int64)
    # First the minimum for all, then the shares
    minimum = np.full_like(more, options.minimum)
    for sizes in (minimum, more):
        for u in range(options.clients):
            for j in range(2):
                c = (u + j) % classes
                held[u].append(of_class[c][used[c] : used[c] + sizes[u, j]])
                used[c] += sizes[u, j]
    train, test = split_train_test([np.concatenate(h) for h in held], options.test, rng)
    return Parts(train, test, (np.arange(options.clients) % classes).astype(np.int32))


FEDPROX = Entry[Partition](FedProx, fedprox)
