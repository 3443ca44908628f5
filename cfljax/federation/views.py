"""HOST. `data.views`: how groups of clients see what a partition deals to them. Groups of several
views are crossed."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation import VIEWS
from cfljax.federation.common import (
    Partition,
    bad_option,
    group_blocks,
    proportional_sizes,
)
from cfljax.federation.groups import count_views, show_by_label
from cfljax.federation.options import Crossed, GroupView
from cfljax.registry.options import Table
from cfljax.types import Parts, Source

# The letters "draw", beside the seed, so that no other draw has the same numbers
_SEED_TAG_DRAW = 0x64726177
# The most combinations from which clients draw
MAX_DRAWN_COMBINATIONS = 100_000


def divide_with_views(
    make: Partition, options: Any, crossed: Crossed, source: Source, seed: int
) -> Parts:
    """Divide the samples; each client sees its own as its combination of groups does (digits, the
    first view the highest)."""
    drawn = np.random.default_rng([seed, _SEED_TAG_DRAW])
    parts, combination = _deal(make, options, crossed, source, np.random.default_rng(seed), drawn)
    digits = _list_digits(crossed.views)
    own = parts.group
    mine = digits[:, combination]
    step = np.zeros(len(digits), np.int32)
    for at, each in enumerate(crossed.views):
        rng = np.random.default_rng([seed, zlib.crc32(each.name.encode())])
        views, before = count_views(parts), parts
        try:
            see = VIEWS.entry(each.name).make(each.options, parts.source or source, rng)
            parts = see(parts, mine[at], rng)
            if each.labels:
                parts = _show_labels(each.labels, before, parts, parts.source or source)
        except SpecError as error:
            # The error names an option of the data table
            key, _, why = str(error).removeprefix("data.").partition(": ")
            raise SpecError(
                f"data.views.{each.name}{'' if key.startswith('partition') else '.' + key}: {why}"
            ) from None
        step[at] = views if count_views(parts) > views else 0
    return _with_groups(parts, own, crossed, mine, step)


def _show_labels(labels: tuple[int, ...], before: Parts, parts: Parts, source: Source) -> Parts:
    """Let the view that has been added to the parts change samples of these labels alone."""
    if source.y_train.ndim == 2:
        why = f"samples of {source.name} have several labels; leave labels out"
        raise bad_option("labels", list(labels), why)
    if max(labels) >= source.classes:
        why = f"{source.name} has the labels 0 to {source.classes - 1}"
        raise bad_option("labels", list(labels), why)
    return show_by_label(before, parts, labels, source.classes)


def _list_digits(views: Sequence[GroupView]) -> np.ndarray:
    """Return i32[views, combinations]: the group of each view in each combination."""
    return np.indices([each.options.groups for each in views], np.int32).reshape(len(views), -1)


def _deal(
    make: Partition,
    options: Any,
    crossed: Crossed,
    source: Source,
    rng: np.random.Generator,
    drawn: np.random.Generator,
) -> tuple[Parts, np.ndarray]:
    """Return the parts, and each client's combination i[C]. Those that agree in the views which
    copy share one copy of the data. `drawn` draws the combinations of `views_draw = "random"`."""
    copying = [at for at, each in enumerate(crossed.views) if each.copies]
    if copying:
        count = _count_clients(options.clients, crossed, drawn)
        digits = _list_digits(crossed.views)
        copy = np.unique(digits[copying], axis=1, return_inverse=True)[1].reshape(-1)
        sizes = [int(n) for n in np.bincount(copy, count) if n]
        made = [make(dataclasses.replace(options, clients=n), source, rng) for n in sizes]
    else:
        made = [make(options, source, rng)]
        count = _count_clients(len(made[0].train), crossed, drawn)
        copy = np.zeros(len(count), np.int64)
    dealt = [np.flatnonzero(copy == each) for each in np.unique(copy[count > 0])]
    if crossed.draw == "random":
        combination = [drawn.permutation(np.repeat(which, count[which])) for which in dealt]
    else:
        combination = [
            _take_turns(each.group, which, count[which])
            for each, which in zip(made, dealt, strict=True)
        ]
    # A test set that all share is the same for each copy
    test = made[0].test
    if not isinstance(test, np.ndarray):
        test = [rows for each in made for rows in each.test]
    view = None
    if made[0].view is not None:
        view = np.concatenate([each.view for each in made if each.view is not None])
    parts = dataclasses.replace(
        made[0],
        train=[rows for each in made for rows in each.train],
        test=test,
        group=np.concatenate([each.group for each in made]),
        view=view,
    )
    return parts, np.concatenate(combination)


def _count_clients(clients: int, crossed: Crossed, drawn: np.random.Generator) -> np.ndarray:
    """Count the clients of each combination, i64[combinations]. Too many combinations are refused
    before any array of their number is made."""
    combinations = math.prod(each.options.groups for each in crossed.views)
    product = " x ".join(f"{each.options.groups} {each.name}" for each in crossed.views)
    if crossed.shares and (given := len(crossed.shares)) != combinations:
        raise bad_option(
            "view_shares",
            list(crossed.shares),
            f"{given} shares for {product}; give {combinations}",
        )
    if crossed.draw == "random":
        if combinations > MAX_DRAWN_COMBINATIONS:
            raise SpecError(
                f"data.views: {product} = {combinations} combinations to draw from; give fewer "
                "groups"
            )
        weights = np.array(crossed.shares or np.ones(combinations))
        return drawn.multinomial(clients, weights / weights.sum())
    if crossed.shares:
        count = proportional_sizes(clients, np.array(crossed.shares))
        for share, number in zip(crossed.shares, count, strict=True):
            if share > 0 and not number:
                raise bad_option(
                    "view_shares",
                    list(crossed.shares),
                    f"the share {share:g} is less than one of {clients} clients; give a larger "
                    "one, or 0",
                )
        return count
    if clients < combinations:
        raise SpecError(
            f"data.views: {product} = {combinations} combinations for {clients} clients; "
            'give fewer groups, or data.views_draw = "random"'
        )
    return np.bincount(group_blocks(clients, combinations), minlength=combinations)


def _take_turns(own: np.ndarray, which: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Give `count` clients each of the combinations `which`, in turn over the partition's groups
    `own` i32[C]."""
    # The j-th of n clients of a combination comes at (j + 1/2) / n of all turns
    turn = np.concatenate([(np.arange(n) + 0.5) / n for n in count if n])
    combination = np.empty(len(own), np.int64)
    combination[np.argsort(own, kind="stable")] = np.repeat(which, count)[
        np.argsort(turn, kind="stable")
    ]
    return combination


def _with_groups(
    parts: Parts, own: np.ndarray, crossed: Crossed, mine: np.ndarray, step: np.ndarray
) -> Parts:
    """Add the true groups, of the partition (`own` i32[C]) and the views (`mine` i32[views, C]),
    and the view of a client in each. `step` i32[views]: how far apart the views of neighbouring
    groups are; 0: the samples are copies."""
    known = len(np.unique(own)) > 1 and own.min() >= 0
    if crossed.true_groups == "partition":
        if not known:
            raise SpecError(
                'data.true_groups = "partition": the partition has no groups of its own; '
                "leave it out, or name a view"
            )
        return dataclasses.replace(parts, by_group=np.zeros((0, len(own)), np.int32))
    at = [n for n, each in enumerate(crossed.views) if crossed.true_groups in (None, each.name)]
    digits = _list_digits([crossed.views[n] for n in at])
    crosses = known and crossed.true_groups is None
    group = np.argmax((digits[:, :, None] == mine[at][:, None]).all(0), axis=0)
    seen = np.tensordot(step[at], digits[:, :, None] - mine[at][:, None], 1) + (
        0 if parts.view is None else parts.view
    )
    return dataclasses.replace(
        parts,
        group=(own * digits.shape[1] * crosses + group).astype(np.int32),
        by_group=seen[: 0 if crosses or not step[at].all() else None].astype(np.int32),
    )


# Name of a paper's partition -> keys of the table `data`
PRESETS: dict[str, Table] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
