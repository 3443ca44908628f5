"""The partitions of FedGroup's and FedProx's experiments, reconstructed from the authors' programs."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation.common import Common, Partition, Rng, label_of, wrong
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class FedProx(Common):
    """Options of `fedprox`."""

    clients: int = option(1000, "number of clients", low=1)
    minimum: int = option(5, "samples of each of its two classes that every client has", low=1)
    sigma: float = option(2.0, "standard deviation of the logarithm of the shares", low=0)
    total: int | None = option(None, "draw again until the clients hold this many samples in all (FedProx: 69035)", low=1)


def _fedprox_sizes(options: FedProx, have: np.ndarray, rng: np.random.Generator | np.random.RandomState) -> np.ndarray:
    """i64[C, 2]: how many samples of its first and second class each client takes beyond the minimum."""
    classes, minimum = len(have), options.minimum
    user = np.arange(options.clients)
    of = np.stack([user % classes, (user + 1) % classes], 1)
    used = minimum * np.bincount(of.ravel(), minlength=classes)
    if np.any(used > have):
        scarce = int(np.argmin(have - used))
        fits = int(have.min()) // (2 * minimum) * classes
        why = f"class {scarce} has {have[scarce]} samples, {used[scarce]} are needed; at most {fits}"
        raise wrong("clients", options.clients, why)
    shares = rng.lognormal(0.0, options.sigma, (classes, -(-options.clients // classes), 2))
    shares = (have - used)[:, None, None] * shares / shares.sum((1, 2), keepdims=True)
    wanted = shares[of, (user // classes)[:, None], np.arange(2)].astype(np.int64)
    taken = np.zeros_like(wanted)
    for u in range(options.clients):
        for j in range(2):
            c = of[u, j]
            if used[c] + wanted[u, j] < have[c]:  # a share that no longer fits is skipped
                taken[u, j] = wanted[u, j]
                used[c] += wanted[u, j]
    return taken


def _with_total(options: FedProx, have: np.ndarray, rng: Rng, draws: int = 2000) -> np.ndarray:
    """The same, drawn again until the number of all samples is `total`."""
    totals = []
    for _ in range(draws):
        taken = _fedprox_sizes(options, have, rng)
        totals.append(int(taken.sum()) + 2 * options.minimum * options.clients)
        if options.total in (None, totals[-1]):
            return taken
    nearest = min(totals, key=lambda n: abs(n - (options.total or 0)))
    raise wrong("total", options.total, f"none of {draws} draws has this many samples; the nearest has {nearest}")


def _train_and_test(held: list[np.ndarray], test: str, rng: Rng) -> tuple[list[np.ndarray], list[np.ndarray] | np.ndarray]:
    """(Each client's training rows: int(0.9 n) of its n, shuffled; its other rows, or for `global` those of all clients)."""
    pairs = [np.split(rng.permutation(rows), [int(0.9 * len(rows))]) for rows in held]
    own = [b for _, b in pairs]
    return [a for a, _ in pairs], own if test == "own" else np.unique(np.concatenate(own))


def fedprox(options: FedProx, source: Source, rng: Rng) -> Parts:
    """FedProx's MNIST: classes u and u + 1 for client u, five of each, then log-normal shares; 1,000 clients.

    Takes the source's training and test samples together; a client's test part is a tenth of what it holds, and the global
    test set is all of these. The true group is the pair of classes.
    """
    if source.classes < 2:
        raise wrong("partition", "fedprox", f"{source.name} has {source.classes} class; needs at least 2")
    classes = source.classes
    labels = label_of(source, np.arange(len(source.y_train) + len(source.y_test)))
    of_class = [np.flatnonzero(labels == c) for c in range(classes)]
    more = _with_total(options, np.array([len(r) for r in of_class]), rng)
    held: list[list[np.ndarray]] = [[] for _ in range(options.clients)]
    used = np.zeros(classes, np.int64)
    for sizes in (np.full_like(more, options.minimum), more):  # first the minimum for all, then the shares
        for u in range(options.clients):
            for j in range(2):
                c = (u + j) % classes
                held[u].append(of_class[c][used[c] : used[c] + sizes[u, j]])
                used[c] += sizes[u, j]
    train, test = _train_and_test([np.concatenate(h) for h in held], options.test, rng)
    return Parts(train, test, (np.arange(options.clients) % classes).astype(np.int32))


FEDPROX = Entry[Partition](FedProx, fedprox)


@dataclasses.dataclass(frozen=True)
class Femnist(Common):
    """Options of `femnist_fedgroup`."""

    clients: int = option(200, "number of clients", low=1)
    leak: bool = option(False, "true: the published recipe, in which test images of a client are training images of others")
    per_letter: int = option(4000, "images of a letter that are used, at most", low=10)


def _letters(source: Source) -> int:
    """The label of the letter a: 26 labels are letters of either case, 62 are EMNIST's 0–9, A–Z, a–z."""
    if source.classes not in (26, 62):
        why = f"{source.name} has {source.classes} classes; needs EMNIST by class (62) or its letters (26)"
        raise wrong("partition", "femnist_fedgroup", why)
    return 36 if source.classes == 62 else 0


def femnist_fedgroup(options: Femnist, source: Source, rng: Rng) -> Parts:
    """FedGroup's FEMNIST: letters u, u + 1, u + 2 of a to j for client u, log-normal sizes, white paper, 26 outputs.

    `leak = true` is the published recipe: it starts again at a letter's first image for almost every client, so that most
    test images are somebody's training images. `leak = false` first cuts each letter's images 90/10 into training and
    test images; clients take them in turn, starting again only when a letter is used up. True group: the three letters.
    """
    first = _letters(source)
    labels = label_of(source, np.arange(len(source.y_train) + len(source.y_test)))
    of_letter = [rng.permutation(np.flatnonzero(labels == first + c))[: options.per_letter] for c in range(10)]
    fewest = min(len(rows) for rows in of_letter)
    if fewest < 20:
        raise wrong("partition", "femnist_fedgroup", f"a letter of {source.name} has {fewest} images; needs 20 of each, a to j")
    sizes = np.maximum(((rng.lognormal(4.0, 1.0, options.clients) + 5) / 3).astype(np.int64), 2)
    if options.leak:
        held = _leaking(sizes, of_letter)
        train, test = _train_and_test(held, "own", rng)
    else:
        train, test = _separate(sizes, of_letter, rng)
    kept = np.unique(np.concatenate([*train, *test]))
    small = _white_letters(source, kept, labels[kept] - first)
    train, test = [np.searchsorted(kept, rows) for rows in train], [np.searchsorted(kept, rows) for rows in test]
    group = (np.arange(options.clients) % 10).astype(np.int32)
    return Parts(train, test if options.test == "own" else np.unique(np.concatenate(test)), group, source=small)


def _leaking(sizes: np.ndarray, of_letter: list[np.ndarray]) -> list[np.ndarray]:
    """The published order: back to the first image whenever there are images left. (When a request reaches beyond the last
    image the authors' slice would run dry; with their 4,000 images a letter it never does. Here it starts again, too.)"""
    at, held = [0] * 10, []
    for u, size in enumerate(sizes):
        mine = []
        for j in range(3):
            c = (u + j) % 10
            if at[c] + size != len(of_letter[c]):
                at[c] = 0
            mine.append(of_letter[c][at[c] : at[c] + size])
            at[c] += int(size)
        held.append(np.concatenate(mine))
    return held


def _separate(sizes: np.ndarray, of_letter: list[np.ndarray], rng: Rng) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Training and test rows with the same sizes and no image in both."""
    pieces = [np.split(rows, [int(0.9 * len(rows))]) for rows in of_letter]
    parts = [[p[side] for p in pieces] for side in (0, 1)]
    at = np.zeros((2, 10), np.int64)
    held: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for u, size in enumerate(sizes):
        slots = rng.permutation(np.repeat(np.arange(3), size))
        edge_of = int(0.9 * len(slots))
        for side, chosen in enumerate((slots[:edge_of], slots[edge_of:])):
            mine = []
            for j, wanted in enumerate(np.bincount(chosen, minlength=3)):
                c = (u + j) % 10
                if at[side, c] + wanted > len(parts[side][c]):
                    at[side, c] = 0
                mine.append(parts[side][c][at[side, c] : at[side, c] + wanted])
                at[side, c] += wanted
            held[side].append(rng.permutation(np.concatenate(mine)))
    return held


def _white_letters(source: Source, rows: np.ndarray, labels: np.ndarray) -> Source:
    """A source of these images alone, black on white, with 26 classes; all are training rows of it."""
    edge = len(source.y_train)
    x = np.concatenate([source.x_train[rows[rows < edge]], source.x_test[rows[rows >= edge] - edge]])
    x = np.subtract(255 if x.dtype == np.uint8 else 1, x, dtype=x.dtype)
    return Source(f"{source.name}, letters a to j", x, labels.astype(np.int32), x[:0], labels[:0].astype(np.int32), 26)


FEMNIST_FEDGROUP = Entry[Partition](Femnist, femnist_fedgroup)
