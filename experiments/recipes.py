"""Partitions of one paper each, as a plug-in: groups that lack classes (joint gradient and loss clustering), imbalanced classes
(CCS), and FedGroup's FEMNIST and clients of k classes."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax import register_partition
from cfljax.extend import Parts, Source, option
from cfljax.federation import common
from cfljax.federation.common import Common, Rng, Sized, bad_option, label_of
from cfljax.federation.fedprox import split_train_test

LACKED = ((7, 9), (5, 8), (0, 1), (2, 3))
"""The classes that each of the four groups lacks in the experiments with ten classes."""
LOWER_CASE = {"a": 36, "b": 37, "d": 38, "e": 39, "f": 40, "g": 41, "h": 42, "n": 43, "q": 44, "r": 45, "t": 46}
"""Lower-case letters that have a class of their own among EMNIST's 47 merged classes, and that class."""


@dataclasses.dataclass(frozen=True)
class Overlap(Sized):
    """Options of `overlap`."""

    clients: int = option(80, "number of clients (EMNIST: 200)", low=1)
    groups: int = option(4, "number of groups (EMNIST: 8)", low=1)
    lacking: int | None = option(None, "classes that a group lacks; left out: 2 of ten, 7 of 47", low=0)


@register_partition("overlap", Overlap)
def overlap(options: Overlap, source: Source, rng: Rng) -> Parts:
    """Groups that each lack a few classes and share the others; EMNIST's 62 classes are merged to 47 first."""
    common.check_single(source)
    source = merged(source)
    common.check_most("groups", options.groups, options.clients, f"there are {options.clients} clients")
    holds = ~_lacked(options, source.classes)
    of = common.group_blocks(options.clients, options.groups)
    train = _by_group(np.arange(len(source.y_train)), holds, of, source, rng)
    if options.samples_per_client is not None:
        most = min(len(rows) for rows in train)
        common.check_most("samples_per_client", options.samples_per_client, most, f"the smallest client's share is {most}")
        train = [rows[: options.samples_per_client] for rows in train]
    test = common.test_rows(source) if options.test == "global" else _by_group(common.test_rows(source), holds, of, source, rng)
    return Parts(train, test, of, source=source)


def _lacked(options: Overlap, classes: int) -> np.ndarray:
    """bool[groups, classes]: the classes that each group lacks."""
    lacking = max(1, round(0.15 * classes)) if options.lacking is None else options.lacking
    common.check_most("lacking", lacking, classes - 1, f"there are {classes} classes")
    out = np.zeros((options.groups, classes), bool)
    if (classes, options.groups, lacking) == (10, 4, 2):
        of = np.array(LACKED)
    else:
        of = (lacking * np.arange(options.groups)[:, None] + np.arange(lacking)) % classes
    np.put_along_axis(out, of, True, axis=1)
    return out


def _by_group(rows: np.ndarray, holds: np.ndarray, of: np.ndarray, source: Source, rng: Rng) -> list[np.ndarray]:
    """A class's rows evenly over the groups that hold it, a group's rows evenly over its clients."""
    have = np.bincount(common.label_of(source, rows), minlength=source.classes)
    counts = np.zeros(holds.shape, np.int64)
    for m in np.flatnonzero(holds.any(0)):
        counts[holds[:, m], m] = common.even_sizes(have[m], holds[:, m].sum())
    of_group = common.deal(counts, rng.permutation(rows), source, rng)
    return [
        piece
        for g, held in enumerate(of_group)
        for piece in common.split_at(held, common.even_sizes(len(held), int(np.sum(of == g))))
    ]


def merged(source: Source) -> Source:
    """EMNIST by class (0–9, A–Z, a–z) with its 47 merged classes; any other source as it is."""
    if source.classes != 62:
        return source
    letters = np.array([LOWER_CASE.get(chr(97 + i), 10 + i) for i in range(26)])
    to = np.concatenate([np.arange(36), letters]).astype(np.int32)
    return source._replace(y_train=to[source.y_train], y_test=to[source.y_test], classes=47)


@dataclasses.dataclass(frozen=True)
class Imbalance(Common):
    """Options of `imbalance`."""

    test: str = option("global", "the source's test set for all, or test samples in each client's mix", choices=("own", "global"))
    classes_per_client: int = option(10, "B: classes of a client", low=1)
    most: int = option(100, "samples of a class are drawn from 0 to this", low=1)
    spread: float = option(1.0, "scales the spread of the majority classes; below the paper's 1: sharper imbalance", low=0.0)


@register_partition("imbalance", Imbalance)
def imbalance(options: Imbalance, source: Source, rng: Rng) -> Parts:
    """CCS's devices: B classes with uniform counts, the largest for a normally distributed majority class.

    The true group is the majority class.
    """
    number, clients, b = source.classes, options.clients, options.classes_per_client
    common.check_most("classes_per_client", b, number, f"{source.name} has {number} classes")
    common.check_single(source)
    have = np.bincount(source.y_train, minlength=number)
    for _ in range(200):  # at B = 10 one draw in eight wants more of some digit than MNIST has: such a draw is repeated
        majority, counts = _device_counts(options, number, rng)
        needed = counts.sum(0)
        if np.all(needed <= have):
            break
    else:
        fits = max(1, int(clients * np.min(have / np.maximum(needed, 1))))
        why = f"class {int(np.argmax(needed - have))} of {source.name} has too few samples in each of 200 draws; about {fits} fit"
        raise common.bad_option("clients", clients, why)
    train = common.deal(counts, rng.permutation(len(source.y_train)), source, rng)
    return Parts(train, common.choose_test_part(options, train, source, rng), majority.astype(np.int32))


def _device_counts(options: Imbalance, number: int, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """(The majority class of each client i64[C], its numbers of samples i64[C, classes])."""
    clients, b = options.clients, options.classes_per_client
    # round(N(5, var 10)) clipped to 1..10 for ten classes; the same shape for any other number.
    majority = np.clip(np.rint(rng.normal(number / 2, options.spread * np.sqrt(number), clients)), 1, number).astype(np.int64) - 1
    drawn = -np.sort(-rng.integers(0, options.most + 1, (clients, b)), axis=1)
    drawn[:, 0] = np.maximum(drawn[:, 0], 1)
    drawn[:, 1:] = rng.permuted(drawn[:, 1:], axis=1)
    keys = rng.random((clients, number))
    keys[np.arange(clients), majority] = -1.0  # the majority class sorts first, the others are a random choice
    counts = np.zeros((clients, number), np.int64)
    np.put_along_axis(counts, np.argsort(keys, axis=1)[:, :b], drawn, axis=1)
    return majority, counts


@dataclasses.dataclass(frozen=True)
class Femnist(Common):
    """Options of `femnist_fedgroup`."""

    clients: int = option(200, "number of clients", low=1)
    leak: bool = option(False, "true: the published recipe, in which test images of a client are training images of others")
    per_letter: int = option(4000, "images of a letter that are used, at most", low=10)
    letter: float = option(1.0, "shrinks the images inside their frame; NIST's letters take about 0.4 of it", low=0.1, high=1.0)


def _letters(source: Source) -> int:
    """The label of the letter a: 26 labels are letters of either case, 62 are EMNIST's 0–9, A–Z, a–z."""
    if source.classes not in (26, 62):
        why = f"{source.name} has {source.classes} classes; needs EMNIST by class (62) or its letters (26)"
        raise bad_option("partition", "femnist_fedgroup", why)
    return 36 if source.classes == 62 else 0


@register_partition("femnist_fedgroup", Femnist)
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
        raise bad_option(
            "partition", "femnist_fedgroup", f"a letter of {source.name} has {fewest} images; needs 20 of each, a to j"
        )
    sizes = np.maximum(((rng.lognormal(4.0, 1.0, options.clients) + 5) / 3).astype(np.int64), 2)
    if options.leak:
        held = _leaking(sizes, of_letter)
        train, test = split_train_test(held, "own", rng)
    else:
        train, test = _separate(sizes, of_letter, rng)
    kept = np.unique(np.concatenate([*train, *test]))
    small = _white_letters(source, kept, labels[kept] - first, options.letter)
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


def _white_letters(source: Source, rows: np.ndarray, labels: np.ndarray, letter: float) -> Source:
    """A source of these images alone, black on white, with 26 classes; all are training rows of it."""
    edge = len(source.y_train)
    x = np.concatenate([source.x_train[rows[rows < edge]], source.x_test[rows[rows >= edge] - edge]])
    x = np.subtract(255 if x.dtype == np.uint8 else 1, shrunk(x, letter), dtype=x.dtype)
    return Source(f"{source.name}, letters a to j", x, labels.astype(np.int32), x[:0], labels[:0].astype(np.int32), 26)


def shrunk(x: np.ndarray, share: float) -> np.ndarray:
    """Images [n, height, width, …] of black paper, shrunk to that share of their height and width, in the middle of a frame of the
    old size. A pixel is the mean of the area that it now covers."""
    for axis in (1, 2):
        old = x.shape[axis]
        new = max(1, round(share * old))
        if new == old:
            continue
        ends = np.linspace(0, old, new + 1)
        covers = np.clip(np.minimum(ends[1:, None], np.arange(1, old + 1)) - np.maximum(ends[:-1, None], np.arange(old)), 0, None)
        frame = np.zeros((old, old), np.float32)
        frame[(old - new) // 2 :][:new] = covers * (new / old)
        moved = np.moveaxis(np.tensordot(x.astype(np.float32), frame, (axis, 1)), -1, axis)
        x = np.rint(moved).astype(x.dtype) if np.issubdtype(x.dtype, np.integer) else moved.astype(x.dtype)
    return x


@dataclasses.dataclass(frozen=True)
class Shares(Common):
    """Options of `shares`."""

    clients: int = option(1000, "number of clients", low=10)
    classes_per_client: int = option(2, "k: classes of a client", low=1)
    minimum: int = option(10, "samples that each client has at least, of all its classes together", low=1)
    sigma: float = option(2.0, "standard deviation of the logarithm of the shares", low=0.0)


@register_partition("shares", Shares)
def shares(options: Shares, source: Source, rng: Rng) -> Parts:
    """FedProx's recipe for k classes in place of two: client u has classes u to u + k − 1, and a log-normal share of each.

    So its size is a sum of k shares, and sizes become more even as k grows. True group: its classes.
    """
    k, number = options.classes_per_client, source.classes
    common.check_most("classes_per_client", k, number, f"{source.name} has {number} classes")
    labels = label_of(source, np.arange(len(source.y_train) + len(source.y_test)))
    of_class = [rng.permutation(np.flatnonzero(labels == c)) for c in range(number)]
    have = np.array([len(rows) for rows in of_class])
    user = np.arange(options.clients)
    of = (user[:, None] + np.arange(k)) % number
    least = max(1, options.minimum // k)
    spare = have - least * np.bincount(of.ravel(), minlength=number)
    if np.any(spare < 0):
        fits = int(have.min()) // (least * k) * number
        raise bad_option("clients", options.clients, f"each has {least} samples of each of {k} classes at least; about {fits} fit")
    share = rng.lognormal(0.0, options.sigma, (number, -(-options.clients // number), k))
    share *= spare[:, None, None] / share.sum((1, 2), keepdims=True)
    counts = np.zeros((options.clients, number), np.int64)
    np.put_along_axis(counts, of, least + share[of, (user // number)[:, None], np.arange(k)].astype(np.int64), axis=1)
    ends = np.cumsum(counts, axis=0)
    held = [np.concatenate([of_class[c][ends[u, c] - counts[u, c] : ends[u, c]] for c in of[u]]) for u in user]
    train, test = split_train_test(held, options.test, rng)
    return Parts(train, test, (user % number).astype(np.int32))
