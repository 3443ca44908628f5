"""HOST. `data.views`: a partition says who holds how much of which label, the views how groups of clients see it. Groups of several
views are crossed."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation import VIEWS
from cfljax.federation.common import Partition, bad_option, group_blocks, proportional_sizes
from cfljax.federation.groups import count_views
from cfljax.types import Parts, Source


class GroupView(Protocol):
    """An entry of `data.views`."""

    @property
    def name(self) -> str:
        """The name of the view."""

    @property
    def copies(self) -> bool:
        """Whether each of its groups divides all samples."""

    @property
    def options(self) -> Any:
        """An instance of the view's Options class."""


class Crossed(NamedTuple):
    """What a spec says about views."""

    views: Sequence[GroupView]
    shares: Sequence[float]
    """The share of the clients in each combination; none: all have as many."""
    true_groups: str | None
    """The name of a view, or "partition"; None: the combinations."""


def divide_with_views(make: Partition, options: Any, crossed: Crossed, source: Source, seed: int) -> Parts:
    """Divide the samples by the partition, then let each client see them as its combination of groups does. Combinations are
    numbered like digits, with the first view as the highest one."""
    sizes = tuple(each.options.groups for each in crossed.views)
    digit = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes)).astype(np.int32)
    parts, combination = _deal(make, options, crossed, source, np.random.default_rng(seed), digit)
    own, mine, step = parts.group, digit[:, combination], np.zeros(len(sizes), np.int32)
    for at, each in enumerate(crossed.views):
        rng, views = np.random.default_rng([seed, zlib.crc32(each.name.encode())]), count_views(parts)
        try:
            parts = VIEWS.entry(each.name).make(each.options, parts.source or source, rng)(parts, mine[at], rng)
        except SpecError as error:  # which names an option of the data table
            key, _, why = str(error).removeprefix("data.").partition(": ")
            shown = "" if key.startswith("partition") else f".{key}"
            raise SpecError(f"data.views.{each.name}{shown}: {why}") from None
        step[at] = views if count_views(parts) > views or sizes[at] == 1 else 0
    return _with_groups(parts, own, crossed, digit, combination, step)


def _deal(
    make: Partition, options: Any, crossed: Crossed, source: Source, rng: np.random.Generator, digit: np.ndarray
) -> tuple[Parts, np.ndarray]:
    """Return the parts, and the combination i[C] of each client. Combinations `digit` i32[views, K] with the same groups of the
    views that copy share one copy of the data set."""
    copying = [at for at, each in enumerate(crossed.views) if each.copies]
    if copying:
        count = _count_clients(options.clients, digit.shape[1], crossed)
        copy = np.unique(digit[copying], axis=1, return_inverse=True)[1].reshape(-1)
        clients = np.bincount(copy, count).astype(int)
        made = [make(dataclasses.replace(options, clients=int(n)), source, rng) for n in clients if n]
    else:
        made = [make(options, source, rng)]
        count = _count_clients(len(made[0].train), digit.shape[1], crossed)
        copy = np.zeros(digit.shape[1], int)
    dealt = [np.flatnonzero(copy == each) for each in np.unique(copy[count > 0])]
    combination = np.concatenate([_take_turns(p.group, which, count[which]) for p, which in zip(made, dealt, strict=True)])
    join = lambda name: np.concatenate([getattr(each, name) for each in made])  # noqa: E731
    parts = dataclasses.replace(
        made[0],
        train=[rows for each in made for rows in each.train],
        test=made[0].test if isinstance(made[0].test, np.ndarray) else [rows for each in made for rows in each.test],
        group=join("group"),
        view=None if made[0].view is None else join("view"),
    )
    return parts, combination


def _count_clients(clients: int, combinations: int, crossed: Crossed) -> np.ndarray:
    """i64[K]: how many clients each combination has."""
    product = " x ".join(f"{each.options.groups} {each.name}" for each in crossed.views)
    if crossed.shares:
        if len(crossed.shares) != combinations:
            raise bad_option("view_shares", list(crossed.shares), f"{len(crossed.shares)} shares for {product}; give {combinations}")
        return proportional_sizes(clients, np.array(crossed.shares))
    if clients < combinations:
        raise SpecError(f"data.views: {product} = {combinations} combinations for {clients} clients; give fewer groups or more clients")
    return np.bincount(group_blocks(clients, combinations), minlength=combinations)


def _take_turns(own: np.ndarray, which: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Give `count` clients each of the combinations `which`. Clients take them in turn, one group of the partition after another,
    so that each of its groups (`own` i32[C]) has its share of every combination."""
    turn = np.concatenate([(np.arange(n) + 0.5) / n for n in count if n])
    combination = np.empty(len(own), np.int64)
    combination[np.argsort(own, kind="stable")] = np.repeat(which, count)[np.argsort(turn, kind="stable")]
    return combination


def _with_groups(
    parts: Parts, own: np.ndarray, crossed: Crossed, digit: np.ndarray, combination: np.ndarray, step: np.ndarray
) -> Parts:
    """Add the true groups, and through which view a client would see its samples in each of them. `own`: the partition's groups.
    `step`: how far apart the views of neighbouring groups are; 0: the samples are copies."""
    names, apart = [each.name for each in crossed.views], len(np.unique(own)) > 1 and own.min() >= 0
    if crossed.true_groups == "partition":
        if not apart:
            raise SpecError('data.true_groups = "partition": the partition has no groups of its own; leave it out, or name a view')
        return dataclasses.replace(parts, group=own, by_group=np.zeros((0, len(own)), np.int32))
    if crossed.true_groups is not None:
        at = [names.index(crossed.true_groups)]
        group, goal = digit[at[0], combination], np.arange(crossed.views[at[0]].options.groups)[None]
        apart = False
    else:
        at, group, goal = list(range(len(names))), combination, digit
    group = (own * digit.shape[1] + group if apart else group).astype(np.int32)
    moved = np.zeros(len(own), np.int32) if parts.view is None else parts.view
    for row, view in zip(goal, at, strict=True):
        moved = moved + step[view] * (row[:, None] - digit[view, combination])
    fixed = apart or not step[at].all()
    return dataclasses.replace(parts, group=group, by_group=moved[: 0 if fixed else None].astype(np.int32))
