"""Partitions by label: sorted shards, a few classes per client, Dirichlet mixes."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation import common
from cfljax.federation.common import HeldOut, Merged, Partition, Rng
from cfljax.federation.pachinko import Pachinko, allocate
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Shards(Merged):
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
    source = common.list_dealt(options, source)
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
class Classes(HeldOut):
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
    source = common.list_dealt(options, source)
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
    return Parts(*common.split_test(options, train, source, rng), group)


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
class Dirichlet(HeldOut):
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
        "shares of each class; capped: no more for a client that has its even part of all samples; "
        "equal: mixes of classes, for clients of equal size",
        choices=("shares", "capped", "equal"),
    )
    classes_first: int | None = option(
        None, "each client draws this many classes, and has shares of these alone", low=1
    )
    sizes: tuple[int, ...] = option((), 'exact size of each client (balance = "equal")', low=1)

    def check(self, where: str) -> None:
        """Reject options that another value of `balance` has."""
        super().check(where)
        if self.sizes and self.balance != "equal":
            raise SpecError(
                f'{where}.sizes: dirichlet has exact sizes with balance = "equal" alone; give it, '
                "or leave sizes out"
            )
        if self.classes_first is None:
            return
        given = f"{where}.classes_first = {self.classes_first}"
        if self.balance == "equal":
            raise SpecError(f'{given}: is for balance = "shares" or "capped"; give one of them')
        if self.of_each_class:
            raise SpecError(
                f"{given}: clients have no samples of other classes; leave of_each_class out"
            )


def dirichlet(options: Dirichlet, source: Source, rng: Rng) -> Parts:
    """Divide each class over the clients in Dirichlet shares; `samples_per_client` is the mean.

    With `balance = "equal"` each client draws its own mix of classes, and then its samples one
    after another, as in Pachinko."""
    source = common.list_dealt(options, source)
    rows = common.training_rows(options, source, rng)
    clients = options.clients
    common.check_most(
        "min_samples",
        options.min_samples,
        len(rows) // clients,
        f"{clients} clients share {len(rows)} samples",
    )
    labels = common.label_of(source, rows)
    if options.balance == "equal":
        sizes = np.full(clients, len(rows) // clients)
        if options.sizes:
            sizes = common.exact_sizes(options, options.sizes, len(rows))
        mixes = Pachinko(alpha=options.alpha)
        dealt = allocate(labels, np.arange(source.classes), sizes, mixes, rng)
        held = [rows[mine] for mine in dealt]
    else:
        counts = _dirichlet_counts(options, labels, source.classes, rng)
        held = common.deal(counts, rows, source, rng)
    return Parts(*common.split_test(options, held, source, rng), common.no_group(clients))


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
    rest = have - first * options.clients
    holders = None
    if options.classes_first is not None:
        holders = _draw_holders(options, number, rng)
    for _ in range(draws):
        if options.balance == "capped" or holders is not None:
            counts = first + _draw_in_turn(options, rest, holders, rng)
        else:
            shares = rng.dirichlet(np.full(options.clients, options.alpha), number)
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


def _draw_in_turn(
    options: Dirichlet, rest: np.ndarray, holders: np.ndarray | None, rng: Rng
) -> np.ndarray:
    """Return i64[C, classes]: shares of the `rest` i64[classes] of each class, one class after
    another, for its `holders` bool[C, classes] (None: all clients). With `balance = "capped"` only
    those get more who have less than their even part of all samples, as in PFLlib, NIID-Bench and
    Flower. If all holders of a class have as much, they share it all the same."""
    clients = options.clients
    counts = np.zeros((clients, len(rest)), np.int64)
    even = rest.sum() / clients
    for m, number in enumerate(rest):
        takes = np.ones(clients, bool) if holders is None else holders[:, m]
        below = takes & (counts.sum(1) < even)
        if options.balance == "capped" and below.any():
            takes = below
        # Dirichlet shares of some clients, scaled up to 1, are Dirichlet shares of these clients
        shares = rng.dirichlet(np.full(takes.sum(), options.alpha))
        counts[takes, m] = common.proportional_sizes(number, shares)
    return counts


def _draw_holders(options: Dirichlet, number: int, rng: Rng, draws: int = 2000) -> np.ndarray:
    """Draw `classes_first` classes for each client, bool[C, classes], until each class has half of
    its even number of clients, at least one, as PFLlib does."""
    first = options.classes_first or number
    common.check_most("classes_first", first, number, f"there are {number} classes")
    least = max(first * options.clients // number // 2, 1)
    for _ in range(draws):
        order = rng.random((options.clients, number)).argsort(axis=1)
        holders = order.argsort(axis=1) < first
        if holders.sum(0).min() >= least:
            return holders
    why = (
        f"in none of {draws} draws each of {number} classes has {least} of {options.clients} "
        "clients; give more classes, or more clients"
    )
    raise common.bad_option("classes_first", first, why)


SHARDS = Entry[Partition](Shards, shards)
CLASSES = Entry[Partition](Classes, classes)
DIRICHLET = Entry[Partition](Dirichlet, dirichlet)
