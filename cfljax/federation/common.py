"""What partitions share: their protocol, the common options, and dealing rows to clients by numbers
of samples per class."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from cfljax.errors import DataWarning, SpecError
from cfljax.registry.options import Value, option, show
from cfljax.types import Federation, Parts, Source

Rng = np.random.Generator
# The share of a data set's samples of which less is used only with a warning
MAX_LOST_SHARE = 0.5
TEST_HELP = (
    '"own": test samples distributed as the training samples; "global": the whole test set, as '
    "each client sees it"
)


Partition = Callable[[Any, Source, Rng], Parts]
"""A partition: a function that decides, by an instance of its Options class, which client holds
which samples of a data set. All randomness comes from the generator (`data.seed`)."""


@dataclasses.dataclass(frozen=True)
class Common:
    """Options of every partition."""

    clients: int = option(100, "number of clients", low=1)
    test: str = option("own", TEST_HELP, choices=("own", "global"))


@dataclasses.dataclass(frozen=True)
class Sized(Common):
    """Options of partitions whose clients can be kept small."""

    samples_per_client: int | None = option(
        None, "training samples per client; default: all samples are divided", low=1
    )


@dataclasses.dataclass(frozen=True)
class Merged(Sized):
    """Options of partitions that can deal the test samples, too; each of them has a `holdout`."""

    merged: bool = option(
        False, "deal training and test samples together, as PFLlib and FL-bench do; needs holdout"
    )

    def check(self, where: str) -> None:
        """Reject dealing all samples without keeping some for testing."""
        if self.merged and not getattr(self, "holdout", 0):
            raise SpecError(
                f"{where}.merged = true: leaves no samples for testing; give {where}.holdout, as "
                "in 0.25"
            )


@dataclasses.dataclass(frozen=True)
class HeldOut(Merged):
    """Options of partitions whose clients can hold out a share of what they have been dealt."""

    holdout: float = option(
        0.0,
        "share of each client's samples for testing, after dealing; 0: use the test set",
        low=0,
        high=0.9,
    )


def bad_option(name: str, value: Value, why: str) -> SpecError:
    """Build the one-line error about an option of the `data` table."""
    return SpecError(f"data.{name} = {show(value)}: {why}")


def check_most(name: str, value: int, most: int, why: str) -> None:
    """Reject an option of the `data` table that is larger than `most`; `why` is the reason for the
    limit."""
    if value > most:
        raise bad_option(name, value, f"{why}; at most {most}")


def training_rows(options: Sized, source: Source, rng: Rng) -> np.ndarray:
    """Return i64[n]: the training rows to divide among all clients, shuffled, `samples_per_client`
    each on average."""
    total = len(source.y_train)
    rows = rng.permutation(total)
    check_most("clients", options.clients, total, f"{source.name} has {total} training samples")
    return keep_wanted(options, rows)


def keep_wanted(options: Sized, rows: np.ndarray) -> np.ndarray:
    """Return the first of these rows, as many as `samples_per_client` wants, or all of them."""
    if options.samples_per_client is None:
        return rows
    why = f"{options.clients} clients share the {len(rows)} training samples"
    check_most("samples_per_client", options.samples_per_client, len(rows) // options.clients, why)
    return rows[: options.clients * options.samples_per_client]


def test_rows(source: Source) -> np.ndarray:
    """Return i64[n_test]: the rows of the source's test samples, which come after the training
    samples."""
    return len(source.y_train) + np.arange(len(source.y_test))


def list_dealt(options: Merged, source: Source) -> Source:
    """Return the data set with the samples that are dealt as its training samples: the test
    samples, too, if they are merged. Rows keep their numbers."""
    if not options.merged:
        return source
    y = np.concatenate([source.y_train, source.y_test])
    return source._replace(y_train=y, y_test=source.y_test[:0])


def check_single(source: Source) -> None:
    """Reject samples with several labels, for partitions that divide or change labels."""
    if source.y_train.ndim == 2:
        raise SpecError(
            f"data.partition: needs one label per sample, but samples of {source.name} have "
            "several; use iid, quantity, user, "
            "domains, rotated, feature_shift or corrupted"
        )


def label_of(source: Source, rows: np.ndarray) -> np.ndarray:
    """Return the labels of these rows; each has one."""
    check_single(source)
    return np.concatenate([source.y_train, source.y_test])[rows]


def split_at(rows: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Split rows into consecutive pieces of these sizes. Rows behind the last piece are dropped."""
    edges = np.concatenate([[0], np.cumsum(sizes)])
    return [rows[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]


def even_sizes(total: int, parts: int) -> np.ndarray:
    """Return i64[parts] sizes that differ by at most one and sum to `total`."""
    return np.diff(np.arange(parts + 1) * total // parts)


def proportional_sizes(total: int, shares: np.ndarray) -> np.ndarray:
    """Return i64[...] sizes in these proportions (each rounded up or down) that sum to `total`."""
    edges = np.rint(np.cumsum(shares) / np.sum(shares) * total).astype(np.int64)
    return np.diff(edges, prepend=0)


def share_out(
    rows: np.ndarray, clients: int, wanted: int | None, why: str, name: str = "clients"
) -> list[np.ndarray]:
    """Divide the rows evenly among clients, `wanted` to each or all of them. `why`: which rows they
    share, for an error."""
    if clients > len(rows):
        raise SpecError(f"data.{name}: {clients} clients {why}; give fewer clients")
    if wanted is None:
        return split_at(rows, even_sizes(len(rows), clients))
    check_most(
        "samples_per_client", wanted, len(rows) // max(clients, 1), f"{clients} clients {why}"
    )
    return split_at(rows, np.full(clients, wanted))


def unequal_sizes(total: int, clients: int, least: int, shares: np.ndarray) -> np.ndarray:
    """Return i64[clients] sizes that sum to `total`: the least for each, and of the rest these
    shares."""
    check_most("min_samples", least, total // clients, f"{clients} clients share {total} samples")
    return least + proportional_sizes(total - clients * least, shares)


def exact_sizes(options: Sized, sizes: tuple[int, ...], total: int) -> np.ndarray:
    """Return the sizes i64[C] that a spec gives, which must be one for each client, and no more
    than there are samples."""
    if len(sizes) != options.clients:
        raise bad_option(
            "sizes",
            list(sizes),
            f"{len(sizes)} sizes for {options.clients} clients; give data.clients = {len(sizes)}",
        )
    if sum(sizes) > total:
        why = f"are {sum(sizes)} samples, and there are {total}; give smaller ones"
        raise bad_option("sizes", list(sizes), why)
    return np.array(sizes, np.int64)


def group_blocks(clients: int, groups: int) -> np.ndarray:
    """Return i32[C]: the block of each client, in `groups` consecutive blocks whose sizes differ by
    at most one."""
    return (np.arange(clients) * groups // max(clients, 1)).astype(np.int32)


def class_counts(
    rows: list[np.ndarray], source: Source, seen: np.ndarray | None = None
) -> np.ndarray:
    """Return i64[C, classes]: samples of each class that every client holds; with `seen` i32[C,
    classes], as the client sees labels."""
    owner = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    if source.y_train.ndim == 2:
        # Samples with several labels count for each of them
        counts = np.zeros((len(rows), source.classes), np.int64)
        labels = np.concatenate([source.y_train, source.y_test])
        np.add.at(counts, owner, labels[np.concatenate(rows)] if rows else 0)
        return counts
    labels = label_of(source, np.concatenate(rows)) if rows else np.zeros(0, np.int64)
    if seen is not None:
        labels = seen[owner, labels]
    return count_labels(owner, labels, len(rows), source.classes)


def count_labels(owner: np.ndarray, labels: np.ndarray, clients: int, classes: int) -> np.ndarray:
    """Return i64[clients, classes]: samples by owner i64[n] and label i64[n]."""
    return np.bincount(owner * classes + labels, minlength=clients * classes).reshape(
        clients, classes
    )


def labels_seen(federation: Federation) -> np.ndarray:
    """HOST. Return f32[C, M]: training samples of each class, as each client sees its labels."""
    split, view = federation.train, federation.view
    rows = np.asarray(split.rows)
    start = np.asarray(split.start)
    count = np.asarray(split.count)
    owner = np.repeat(np.arange(federation.clients), count)
    # Position i of all clients' lists, one behind the other, is row index[i] of `rows`
    index = start[owner] + np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    labels = np.asarray(federation.pool.y)[rows[index]]
    if view is not None and view.labels is not None:
        labels = np.asarray(view.labels)[np.asarray(view.of)[owner], labels]
    return count_labels(owner, labels, federation.clients, federation.classes).astype(np.float32)


def most_common_labels(rows: list[np.ndarray], source: Source) -> np.ndarray:
    """Return each client's most common label i32[C], the lowest in a tie; −1 for a client without
    samples."""
    counts = class_counts(rows, source)
    return np.where(counts.sum(1) > 0, counts.argmax(1), -1).astype(np.int32)


def deal(counts: np.ndarray, rows: np.ndarray, source: Source, rng: Rng) -> list[np.ndarray]:
    """Deal the rows to clients, shuffled: `counts[c, m]` of `rows` with label m go to client c,
    each row at most once."""
    labels = label_of(source, rows)
    clients = np.arange(len(counts))
    owner = []
    taken = []
    for m in range(counts.shape[1]):
        of_class = rows[labels == m]
        wanted = np.repeat(clients, counts[:, m])[: len(of_class)]
        owner.append(wanted)
        taken.append(of_class[: len(wanted)])
    owners = np.concatenate(owner)
    flat = np.concatenate(taken)
    order = np.lexsort((rng.random(len(flat)), owners))
    return split_at(flat[order], np.bincount(owners, minlength=len(counts)))


def mirror(train: np.ndarray, rows: np.ndarray, source: Source, rng: Rng) -> list[np.ndarray]:
    """Choose test rows for clients with training counts `train` i64[C, classes]: each client gets
    its own class mix, each row goes to one client at most, and as many rows as possible are used. A
    client whose share is below one sample gets one of its most common class that is left."""
    have = np.bincount(label_of(source, rows), minlength=source.classes)
    held = train.sum(0)
    usable = (held > 0) & (have > 0)
    if not usable.any():
        return [np.zeros(0, np.int64) for _ in train]
    scale = np.min(have[usable] / held[usable])
    # Cumulative sums rounded with one random offset per class: a client gets its exact share,
    # rounded up or down
    wanted = np.cumsum(train, axis=0) * scale + rng.random(source.classes)
    edges = np.minimum(np.floor(wanted + 1e-9).astype(np.int64), have)
    counts = np.diff(edges, axis=0, prepend=0)
    dealt = counts.sum(0)
    for c in np.flatnonzero((counts.sum(1) == 0) & (train.sum(1) > 0)):
        left = train[c] * (dealt < have)
        counts[c, left.argmax()] += left.any()
        dealt[left.argmax()] += left.any()
    warn_of_lost(
        "test",
        int(dealt.sum()),
        len(rows),
        source,
        have / np.where(usable, held, np.nan),
        'give data.test = "global"',
    )
    return deal(counts, rng.permutation(rows), source, rng)


def warn_of_lost(
    part: str, used: int, total: int, source: Source, room: np.ndarray, advice: str
) -> None:
    """Warn if less than MAX_LOST_SHARE of the samples of a part of the data are used, because one
    class is too small for the shares that clients have of it.

    Args:
      part: Which part of the data, for the message.
      used: How many samples are used.
      total: How many there are.
      source: The data.
      room: f64[classes] how many samples a class has for each that is wanted; NaN where none is.
      advice: What to do.
    """
    if used < MAX_LOST_SHARE * total:
        why = f"class {int(np.nanargmin(room))} has too few samples for the clients' shares of it"
        warnings.warn(
            f"{source.name}: {used} of {total} {part} samples are used, because {why}; {advice}",
            DataWarning,
            stacklevel=2,
        )


def choose_test_part(
    options: Common, train: list[np.ndarray], source: Source, rng: Rng
) -> list[np.ndarray] | np.ndarray:
    """Choose the test part of a partition without views: test samples in each client's class mix,
    or the whole test set for all."""
    if options.test == "global":
        return test_rows(source)
    # In proportion to the training samples
    if source.y_train.ndim == 2:
        sizes = np.array([len(rows) for rows in train])
        return split_at(
            rng.permutation(test_rows(source)), proportional_sizes(len(source.y_test), sizes)
        )
    return mirror(class_counts(train, source), test_rows(source), source, rng)


def hold_out_each(
    held: list[np.ndarray], share: float, rng: Rng
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Split each client's rows at random: what it trains on, the first (1 − share) n of its n rows
    rounded down, as PFLlib does; and the others, on which it is tested."""
    # 0.7 is a little less than seven tenths
    edges = [int((1 - share) * len(rows) + 1e-9) for rows in held]
    pairs = [
        np.split(rng.permutation(rows), [edge]) for rows, edge in zip(held, edges, strict=True)
    ]
    return [train for train, _ in pairs], [rest for _, rest in pairs]


def join_test(rest: list[np.ndarray], test: str) -> list[np.ndarray] | np.ndarray:
    """Return the test part of clients that hold rows out: its own for each, or with `test =
    "global"` those of all."""
    return rest if test == "own" else np.unique(np.concatenate(rest))


def split_test(
    options: HeldOut, held: list[np.ndarray], source: Source, rng: Rng
) -> tuple[list[np.ndarray], list[np.ndarray] | np.ndarray]:
    """Return the training and the test part of clients that have been dealt these rows: a share of
    them is held out for testing, or else the test samples are chosen."""
    if not options.holdout:
        return held, choose_test_part(options, held, source, rng)
    train, rest = hold_out_each(held, options.holdout, rng)
    return train, join_test(rest, options.test)


def no_group(clients: int) -> np.ndarray:
    """Return i32[C] of −1: the true groups of a partition that has none."""
    return np.full(clients, -1, np.int32)
