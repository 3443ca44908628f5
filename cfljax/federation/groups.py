"""Partitions with a known truth: every group sees the same source in its own way."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from cfljax.federation.common import Rng, Sized, cut, evenly, group_blocks, test_rows, wrong
from cfljax.federation.views import even_angles, rotations
from cfljax.options import option
from cfljax.registry import Entry
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Grouped(Sized):
    """Options of partitions whose groups see the data differently."""

    groups: int = option(4, "number of groups", low=1)
    test_clients: int = option(0, "clients of their own for testing, which never train (IFCA's layout)", low=0)
    copies: bool = option(True, "every sample appears once in each group's view; false: each sample belongs to one group only")


def _take(rows: np.ndarray, clients: int, wanted: int | None, name: str, what: str) -> list[np.ndarray]:
    """The same number of rows for every client: `wanted`, or all that there are."""
    if clients > len(rows):
        raise wrong(name, clients, f"a group has more clients than there are {what} samples ({len(rows)})")
    if wanted is None:
        return cut(rows, evenly(len(rows), clients))
    most = len(rows) // max(clients, 1)
    if wanted > most:
        raise wrong("samples_per_client", wanted, f"{clients} clients of a group share {len(rows)} {what} samples; at most {most}")
    return cut(rows, np.full(clients, wanted))


def _portions(rows: np.ndarray, groups: int, copies: bool, rng: Rng) -> list[np.ndarray]:
    """What each group divides among its clients: all rows in an order of its own, or its part of them."""
    if copies:
        return [rng.permutation(rows) for _ in range(groups)]
    return cut(rng.permutation(rows), evenly(len(rows), groups))


def grouped(options: Grouped, source: Source, rng: Rng, **views: Any) -> Parts:
    """The clients in equal blocks, one per group; test clients, where there are any, come behind all others."""
    groups, clients = options.groups, options.clients
    if groups > clients:
        raise wrong("groups", groups, f"there are {clients} clients; at most {clients}")
    if 0 < options.test_clients < groups:
        raise wrong("test_clients", options.test_clients, f"every group needs one; at least {groups}, or 0 for none")
    of, of_test = group_blocks(clients, groups), group_blocks(options.test_clients, groups)
    train, test, only_test = [], [], []
    in_train = _portions(np.arange(len(source.y_train)), groups, options.copies, rng)
    in_test = _portions(test_rows(source), groups, options.copies, rng)
    for g in range(groups):
        size, size_test = int(np.sum(of == g)), int(np.sum(of_test == g))
        train += _take(in_train[g], size, options.samples_per_client, "clients", "training")
        # A training client is scored on a share of the test set in its own view, beside the test clients.
        test += cut(in_test[g], evenly(len(in_test[g]), size))
        if size_test:
            only_test += _take(in_test[g], size_test, options.samples_per_client, "test_clients", "test")
    train += [np.zeros(0, np.int64)] * len(only_test)
    group = np.concatenate([of, of_test])
    shared = options.test == "global"
    return Parts(train, test_rows(source) if shared else test + only_test, group, view=group, **views)


@dataclasses.dataclass(frozen=True)
class Rotated(Grouped):
    """Options of `rotated`."""

    angles: tuple[float, ...] = option((), "a group's angle in degrees, counter-clockwise; left out: evenly around the circle")


def rotated(options: Rotated, source: Source, rng: Rng) -> Parts:
    """Groups see the images rotated, by 0, 90, 180 and 270 degrees unless `angles` says otherwise (IFCA's layout)."""
    angles = options.angles or even_angles(options.groups)
    if len(angles) != options.groups:
        raise wrong("angles", list(angles), f"{len(angles)} angles for {options.groups} groups; give {options.groups}")
    return grouped(options, source, rng, pixels=rotations(source.x_train.shape[1:], angles))


ROTATED = Entry(Rotated, rotated)
