"""Partitions by label: sorted shards, a few classes per client, Dirichlet mixes."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation import common
from cfljax.federation.common import Partition, Rng, Sized
from cfljax.federation.pachinko import Pachinko, allocate
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Shards(Sized):
    """Options of `shards`."""

    shards: int = option(2, "shards per client", low=1)
    holdout: float = option(
        0.0, "share of the training samples used for testing; 0: use the test set", low=0, high=0.9
    )


def _shards(rows: np.ndarray, source: Source, owner: np.ndarray) -> list[np.ndarray]:
    """Sort the rows by label and divide them into `owner.size` shards; a client gets those at its
    row of `owner` i64[C, shards]."""
    by_label = rows[np.argsort(common.label_of(source, rows), kind="stable")]
    all_shards = common.split_at(by_label, common.even_sizes(len(rows), owner.size))
    return [np.concatenate([all_shards[s] for s in own]) for own in owner]


def shards(options: Shards, source: Source, rng: Rng) -> Parts:
    """Sort samples by label, cut them into shards, and deal these at random (OCFL's non-IID and
    non-IID2).

    The true group is a client's commonest label."""
    kept = len(source.y_train) - int(round(options.holdout * len(source.y_train)))
    rows = rng.permutation(len(source.y_train))
    held_out = rows[kept:] if options.holdout else rng.permutation(common.test_rows(source))
    rows = rows[:kept]
    pieces = options.clients * options.shards
    common.check_most(
        "clients",
        options.clients,
        kept // options.shards,
        f"{pieces} shards of {kept} training samples",
    )
    rows = common.keep_wanted(options, rows)
    owner = rng.permutation(pieces).reshape(options.clients, options.shards)
    train = _shards(rows, source, owner)
    test: list[np.ndarray] | np.ndarray = held_out
    if options.test == "own":
        test = _shards(held_out, source, owner)
    return Parts(train, test, common.most_common_labels(train, source))


@dataclasses.dataclass(frozen=True)
class Classes(Sized):
    """Options of `classes`."""

    classes_per_client: int = option(2, "classes that a client holds, in equal parts", low=1)
    balance: str = option(
        "equal", '"equal" sizes, or "power": log-normal shares', choices=("equal", "power")
    )
    sigma: float = option(2.0, "standard deviation of the logarithm of a share (power)", low=0)
    min_samples: int = option(10, "smallest wanted size (power)", low=1)
    groups: int | None = option(
        None, "clients of a group hold the same classes; default: each client draws its own", low=1
    )


def classes(options: Classes, source: Source, rng: Rng) -> Parts:
    """Give each client a few classes in equal parts, with equal or log-normal sizes; no sample is
    held twice.

    Sizes are cut where a class has too few samples. The true group is the group, or the class of
    one-class clients."""
    k, clients = options.classes_per_client, options.clients
    common.check_most(
        "classes_per_client", k, source.classes, f"{source.name} has {source.classes} classes"
    )
    common.check_most("groups", options.groups or 0, clients, f"there are {clients} clients")
    common.check_single(source)
    rows = rng.permutation(len(source.y_train))
    have = np.bincount(source.y_train, minlength=source.classes)
    total = len(common.training_rows(options, source, rng))
    wanted = np.full(clients, total // clients)
    if options.balance != "equal":
        wanted = common.unequal_sizes(
            total, clients, options.min_samples, rng.lognormal(0.0, options.sigma, clients)
        )
    # Units, which hold the same classes: clients or groups
    if options.groups is None:
        unit = np.arange(clients)
    else:
        unit = common.group_blocks(clients, options.groups)
    picks = _pick_classes(np.bincount(unit, wanted), k, have, rng)[unit]
    train = common.deal(_fit_sizes(options, wanted, picks, have, source), rows, source, rng)
    group = common.no_group(clients)
    if options.groups is not None:
        group = unit.astype(np.int32)
    elif k == 1:
        group = picks[:, 0].astype(np.int32)
    return Parts(train, common.choose_test_part(options, train, source, rng), group)


def _pick_classes(size: np.ndarray, k: int, have: np.ndarray, rng: Rng) -> np.ndarray:
    """Return i64[U, k]: k classes for each unit of `size` samples, the largest first; each takes
    the classes with most samples left."""
    room = have.astype(np.float64)
    picks = np.zeros((len(size), k), np.int64)
    for u in np.lexsort((rng.random(len(size)), -size)):
        picks[u] = np.lexsort((rng.random(len(have)), -np.round(room)))[:k]
        room[picks[u]] -= size[u] / k
    return picks


def _fit_sizes(
    options: Classes, wanted: np.ndarray, picks: np.ndarray, have: np.ndarray, source: Source
) -> np.ndarray:
    """Return i64[C, classes]: each client's size in equal parts over its classes, cut where a class
    is too small."""
    clients, k = picks.shape
    held = np.zeros((clients, len(have)), np.int64)
    demand = np.bincount(picks.ravel(), weights=np.repeat(wanted / k, k), minlength=len(have))
    ratio = have / np.maximum(demand, 1e-9)
    if options.balance == "equal" and options.samples_per_client is not None:
        np.put_along_axis(
            held, picks, wanted[:, None] // k + (np.arange(k) < wanted[:, None] % k), axis=1
        )
        if np.all(held.sum(0) <= have):
            return held
        most = int(ratio.min() * wanted[0]) // k * k
        why = (
            f"the classes of {source.name} are too small for {clients} such clients; at most {most}"
        )
        raise common.bad_option("samples_per_client", options.samples_per_client, why)
    # Whole equal parts of at least one, and no class overdrawn: each client shrinks by the worst of
    # its classes, equal clients by the same; a little more where the clients with one sample of a
    # class need it
    if np.any(np.bincount(picks.ravel(), minlength=len(have)) > have):
        why = (
            f"{clients} clients need a sample of each of their classes; at most "
            f"{int(have.min()) * len(have) // k}"
        )
        raise common.bad_option("clients", clients, why)
    room = np.where(demand > 0, ratio, np.nan)
    ratio = np.minimum(1.0, ratio)
    worst = ratio[picks].min(1) if options.balance == "power" else np.full(clients, ratio.min())
    while True:
        part = np.maximum(np.floor(wanted * worst / k + 1e-9), 1).astype(np.int64)
        np.put_along_axis(held, picks, np.repeat(part[:, None], k, axis=1), axis=1)
        over = held.sum(0) > have
        if not over.any():
            advice = "give samples_per_client, or another partition"
            common.warn_of_lost(
                "training", int(held.sum()), int(wanted.sum()), source, room, advice
            )
            return held
        worst = np.where(over[picks].any(1), 0.99 * worst, worst)


@dataclasses.dataclass(frozen=True)
class Dirichlet(Sized):
    """Options of `dirichlet`."""

    alpha: float = option(
        0.5, "concentration: small is one class per client, large is iid", above=0
    )
    min_samples: int = option(
        2, "smallest training set of a client; shares are drawn again until all are as large", low=0
    )
    of_each_class: int = option(
        0, "samples of every class that each client gets before the shares", low=0
    )
    balance: str = option(
        "shares",
        "shares of each class; or mixes of classes, for clients of equal size",
        choices=("shares", "equal"),
    )


def dirichlet(options: Dirichlet, source: Source, rng: Rng) -> Parts:
    """Divide each class over the clients in Dirichlet shares; `samples_per_client` is the mean.

    With `balance = "equal"` each client draws its own mix of classes, and then its samples one
    after another, as in Pachinko."""
    rows = common.training_rows(options, source, rng)
    clients = options.clients
    common.check_most(
        "min_samples",
        options.min_samples,
        len(rows) // clients,
        f"{clients} clients share {len(rows)} samples",
    )
    if options.balance == "equal":
        each = (clients, len(rows) // clients)
        train = allocate(
            common.label_of(source, rows),
            np.arange(source.classes),
            each,
            Pachinko(alpha=options.alpha),
            rng,
        )
        train = [rows[mine] for mine in train]
    else:
        train = common.deal(
            _dirichlet_counts(options, common.label_of(source, rows), source.classes, rng),
            rows,
            source,
            rng,
        )
    test = common.choose_test_part(options, train, source, rng)
    return Parts(train, test, common.no_group(clients))


def _dirichlet_counts(
    options: Dirichlet, labels: np.ndarray, number: int, rng: Rng, draws: int = 200
) -> np.ndarray:
    """Return i64[C, classes]: numbers of samples of each class, drawn until all clients have
    `min_samples`."""
    have = np.bincount(labels, minlength=number)
    first = options.of_each_class
    best = 0
    common.check_most(
        "of_each_class",
        first,
        have.min() // options.clients,
        f"the smallest class has {have.min()} samples",
    )
    for _ in range(draws):
        shares = rng.dirichlet(np.full(options.clients, options.alpha), number)
        rest = have - first * options.clients
        counts = first + np.stack(
            [common.proportional_sizes(n, p) for n, p in zip(rest, shares, strict=True)], 1
        )
        best = max(best, int(counts.sum(1).min()))
        if counts.sum(1).min() >= options.min_samples:
            return counts
    why = (
        f"in the best of {draws} draws the smallest client has {best}; give at most {best}, "
        "fewer clients or a larger alpha"
    )
    raise common.bad_option("min_samples", options.min_samples, why)


SHARDS = Entry[Partition](Shards, shards)
CLASSES = Entry[Partition](Classes, classes)
DIRICHLET = Entry[Partition](Dirichlet, dirichlet)
