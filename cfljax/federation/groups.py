"""Views: how the groups of clients see the data differently. Each is an entry of `data.views`, and
a partition of its own in which every group divides the whole data set. A view is an index map, so
that no group needs a copy of the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation.common import (
    Partition,
    Rng,
    Sized,
    bad_option,
    check_most,
    check_single,
    even_sizes,
    group_blocks,
    share_out,
    split_at,
    test_rows,
)
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source

# The fields of Parts that say what a view changes
VIEW_FIELDS = ("pixels", "labels", "gain", "offset")
# Let each client c of the parts see its samples as group `of[c]` i32[C] does
See = Callable[[Parts, np.ndarray, Rng], Parts]
MakeView = Callable[[Any, Source, Rng], See]
"""A view: a function that decides, by an instance of its Options class (which inherits from
Groups), how groups see a data set."""


@dataclasses.dataclass(frozen=True)
class Groups:
    """Options of every view."""

    groups: int = option(4, "number of groups", low=1)


@dataclasses.dataclass(frozen=True)
class Grouped(Groups, Sized):
    """Options of partitions whose groups see the data differently."""

    test_clients: int = option(
        0, "additional clients that never train and are only tested (IFCA's layout)", low=0
    )
    copies: bool = option(
        True, "each group has a copy of every sample; false: each sample belongs to one group"
    )


def _choose_portions(rows: np.ndarray, groups: int, copies: bool, rng: Rng) -> list[np.ndarray]:
    """Choose the rows that each group divides among its clients: all, in a different order for each
    group, or a part of them."""
    if copies:
        return [rng.permutation(rows) for _ in range(groups)]
    return split_at(rng.permutation(rows), even_sizes(len(rows), groups))


def _make_groups(options: Grouped, source: Source, rng: Rng) -> Parts:
    groups, clients = options.groups, options.clients
    check_most("groups", groups, clients, f"there are {clients} clients")
    if 0 < options.test_clients < groups:
        raise bad_option(
            "test_clients",
            options.test_clients,
            f"every group needs one; at least {groups}, or 0 for none",
        )
    of = group_blocks(clients, groups)
    of_test = group_blocks(options.test_clients, groups)
    train = []
    test = []
    only_test = []
    in_train = _choose_portions(np.arange(len(source.y_train)), groups, options.copies, rng)
    in_test = _choose_portions(test_rows(source), groups, options.copies, rng)
    for g in range(groups):
        size = int(np.sum(of == g))
        size_test = int(np.sum(of_test == g))
        why = f"of a group share {len(in_train[g])} training samples"
        train += share_out(in_train[g], size, options.samples_per_client, why)
        # A training client is scored on a share of the test set in its own view, beside the test
        # clients.
        test += split_at(in_test[g], even_sizes(len(in_test[g]), size))
        if size_test:
            why = f"of a group share {len(in_test[g])} test samples"
            only_test += share_out(
                in_test[g], size_test, options.samples_per_client, why, "test_clients"
            )
    train += [np.zeros(0, np.int64)] * len(only_test)
    group = np.concatenate([of, of_test])
    shared = options.test == "global"
    return Parts(train, test_rows(source) if shared else test + only_test, group)


def make_partition(view: Entry[MakeView]) -> Entry[Partition]:
    """Make the partition whose groups see the data through this view alone."""

    def partition(options: Grouped, source: Source, rng: Rng) -> Parts:
        see = view.make(options, source, rng)
        parts = _make_groups(options, source, rng)
        return see(parts, parts.group, rng)

    partition.__doc__ = view.make.__doc__
    named = {"__doc__": view.options.__doc__, "__module__": view.options.__module__}
    made = dataclasses.make_dataclass(
        view.options.__name__, [], bases=(view.options, Grouped), frozen=True, namespace=named
    )
    # Pickle finds the class under this name
    made.__qualname__ = f"{view.make.__name__.upper()}.options"
    return Entry(made, partition)


def _through(**tables: np.ndarray) -> See:
    """Return the view of these tables, the fields `pixels`, `labels`, `gain` and `offset` of Parts,
    by group."""
    return lambda parts, of, _: add_view(parts, of, **tables)


def count_views(parts: Parts) -> int:
    """Return how many views the parts have; 1 if all clients see the data unchanged."""
    return max(
        (len(table) for name in VIEW_FIELDS if (table := getattr(parts, name)) is not None),
        default=1,
    )


def add_view(parts: Parts, of: np.ndarray, **tables: np.ndarray) -> Parts:
    """Let client c see all through row `of[c]` i32[C] of the tables, too: view v becomes v + V k
    for V views and their rows k."""
    before = count_views(parts)
    number = len(next(iter(tables.values())))
    # Both as tables of all combinations: views v in the inner loop, rows k in the outer one
    new = {name: np.repeat(table, before, axis=0) for name, table in tables.items()}
    old = {
        name: np.concatenate([table] * number)
        for name in VIEW_FIELDS
        if (table := getattr(parts, name)) is not None
    }
    view = np.asarray(of if parts.view is None else parts.view + before * of, np.int32)
    found: dict[str, Any] = {"view": view} | old | new
    if parts.by_label is not None:
        steps = [parts.by_label + before * k for k in range(number)]
        found["by_label"] = np.concatenate(steps).astype(np.int32)
    # gain · (x + offset): a new gain multiplies the old offset, too
    if "offset" in old and "gain" in new:
        found["offset"] = old["offset"] = old["offset"] * new["gain"]
    for name in old.keys() & new.keys():
        if name == "pixels":
            # The new view looks at pixels of the old one
            through = np.take_along_axis(old[name], new[name], axis=1)
            found[name] = np.where(new[name] < 0, -1, through).astype(np.int32)
        elif name == "labels":
            found[name] = np.take_along_axis(new[name], old[name], axis=1)
        elif name == "gain":
            found[name] = old[name] * new[name]
        else:
            found[name] = old[name] + new[name]
    return dataclasses.replace(parts, **found)


def show_by_label(parts: Parts, seen: Parts, labels: tuple[int, ...], classes: int) -> Parts:
    """Let clients see samples of these labels alone through a view that has been added.

    Args:
        parts: The parts before the view was added.
        seen: The parts with it. The label of a sample is that of the source, whatever the view.
        labels: The labels whose samples the view shows.
        classes: How many labels there are.
    """
    before, views = count_views(parts), count_views(seen)
    own = parts.by_label
    if own is None:
        own = np.repeat(np.arange(before, dtype=np.int32)[:, None], classes, axis=1)
    # Behind the views stand those from before, through which samples of other labels are shown
    found: dict[str, Any] = {}
    for name in VIEW_FIELDS:
        if (table := getattr(seen, name)) is None:
            continue
        old = getattr(parts, name)
        if old is None:
            old = np.repeat(_plain_row(name, table)[None], before, axis=0)
        found[name] = np.concatenate([table, old]).astype(table.dtype)
    chosen = np.isin(np.arange(classes), labels)
    groups = [np.where(chosen, own + before * k, own + views) for k in range(views // before)]
    by_label = np.concatenate([*groups, own + views]).astype(np.int32)
    return dataclasses.replace(seen, by_label=by_label, **found)


def _plain_row(name: str, table: np.ndarray) -> np.ndarray:
    """Return the row of a table of views (a field of VIEW_FIELDS) that changes nothing."""
    if name in ("pixels", "labels"):
        return np.arange(table.shape[1], dtype=table.dtype)
    return np.asarray(1 if name == "gain" else 0, table.dtype)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (height, width, channels) of a sample; a flat sample whose length is a square is a
    square image."""
    if len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return math.isqrt(shape[0]), math.isqrt(shape[0]), 1
    if len(shape) in (2, 3):
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
    raise SpecError(
        f"data.partition: samples of shape {shape} are not images and cannot be rotated; "
        "choose a data set of images"
    )


def rotation(shape: tuple[int, ...], angle: float) -> np.ndarray:
    """Return i32[F]: where each value of the flattened sample comes from when the image is turned
    counter-clockwise by `angle` degrees: exactly for quarter turns, else to the nearest pixel; −1
    comes from outside the image."""
    height, width, channels = image_shape(shape)
    grid = np.arange(height * width * channels, dtype=np.int32).reshape(height, width, channels)
    turns, rest = divmod(angle % 360, 90)
    if rest == 0 and (height == width or turns % 2 == 0):
        return np.rot90(grid, int(turns)).ravel()
    radians = math.radians(angle)
    down, right = np.mgrid[0:height, 0:width].astype(np.float64)
    down = down - (height - 1) / 2
    right = right - (width - 1) / 2
    # Halves go up, also where rounding left a little less
    row = math.cos(radians) * down + math.sin(radians) * right + (height - 1) / 2
    row = np.floor(row + 0.5 + 1e-9).astype(np.int64)
    column = -math.sin(radians) * down + math.cos(radians) * right + (width - 1) / 2
    column = np.floor(column + 0.5 + 1e-9).astype(np.int64)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    found = grid[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
    return np.where(inside[..., None], found, -1).astype(np.int32).ravel()


def rotations(shape: tuple[int, ...], angles: tuple[float, ...]) -> np.ndarray:
    """Return i32[V, F]: one rotation per view."""
    return np.stack([rotation(shape, a) for a in angles])


def even_angles(groups: int) -> tuple[float, ...]:
    """Divide the circle evenly (0 and 180 degrees for two groups); quarter turns for three."""
    step = 90.0 if groups == 3 else 360.0 / groups
    return tuple(g * step for g in range(groups))


@dataclasses.dataclass(frozen=True)
class Rotated(Groups):
    """Options of `rotated`."""

    angles: tuple[float, ...] = option(
        (), "each group's angle in degrees, counter-clockwise; default: evenly spaced"
    )


def rotated(options: Rotated, source: Source, _: Rng) -> See:
    """Rotate the images of each group, by 0, 90, 180 and 270 degrees unless `angles` says otherwise
    (IFCA's layout)."""
    angles = options.angles or even_angles(options.groups)
    if len(angles) != options.groups:
        raise bad_option(
            "angles",
            list(angles),
            f"{len(angles)} angles for {options.groups} groups; give {options.groups}",
        )
    return _through(pixels=rotations(source.x_train.shape[1:], angles))


@dataclasses.dataclass(frozen=True)
class LabelSwap(Groups):
    """Options of `label_swap`."""

    pairs: int = option(1, "pairs of labels that a group swaps", low=1)


def label_swap(options: LabelSwap, source: Source, rng: Rng) -> See:
    """Swap pairs of labels in each group, different pairs in different groups; the first group
    swaps none."""
    check_single(source)
    classes = source.classes
    plain = np.arange(source.classes)
    check_most("pairs", options.pairs, classes // 2, f"{source.name} has {classes} classes")

    def draw() -> np.ndarray:
        chosen = rng.permutation(classes)[: 2 * options.pairs]
        swapped = plain.copy()
        swapped[chosen] = np.roll(chosen.reshape(2, -1), 1, axis=0).ravel()
        return swapped

    matchings = math.prod(
        math.comb(classes - 2 * i, 2) for i in range(options.pairs)
    ) // math.factorial(options.pairs)
    return _through(
        labels=_draw_distinct(options.groups, plain, draw, 1 + matchings, "ways to swap")
    )


@dataclasses.dataclass(frozen=True)
class LabelPermutation(Groups):
    """Options of `label_permutation`."""

    labels: tuple[tuple[int, ...], ...] = option(
        (), "for each group the labels that replace 0, 1, 2, …; left out: drawn", low=0
    )


def label_permutation(options: LabelPermutation, source: Source, rng: Rng) -> See:
    """Permute all labels in each group, differently in each; the first group's labels are unchanged
    unless `labels` are given."""
    check_single(source)
    classes = source.classes
    if options.labels:
        given = [list(each) for each in options.labels]
        if len(given) != options.groups or any(
            sorted(each) != list(range(classes)) for each in given
        ):
            raise bad_option(
                "labels",
                given,
                f"give each of {options.groups} groups the labels 0 to {classes - 1} in some order",
            )
        return _through(labels=np.array(given, np.int32))
    # 20! is more than any number of groups
    ways = math.factorial(min(classes, 20))

    def draw() -> np.ndarray:
        return rng.permutation(classes)

    return _through(
        labels=_draw_distinct(options.groups, np.arange(classes), draw, ways, "ways to permute")
    )


def _draw_distinct(
    groups: int, first: np.ndarray, draw: Callable[[], np.ndarray], ways: int, what: str
) -> np.ndarray:
    """Return i32[V, classes]: `first`, then draws that are all different."""
    check_most("groups", groups, ways, f"there are {ways} {what} {len(first)} labels")
    found = {tuple(first.tolist()): None}
    while len(found) < groups:
        found[tuple(draw().tolist())] = None
    return np.array(list(found), np.int32)


@dataclasses.dataclass(frozen=True)
class FeatureShift(Groups):
    """Options of `feature_shift`."""

    kind: str = option(
        "invert", "what differs between groups", choices=("invert", "gain", "offset")
    )
    strength: float = option(
        0.5, "how far the last group is from the first (gain, offset)", above=0
    )
    groups: int = option(2, "number of groups", low=1)


def feature_shift(options: FeatureShift, _: Source, __: Rng) -> See:
    """Shift the intensities of each group: inverted (x becomes 1 − x), or a gain or an offset that
    falls or grows from group to group."""
    steps = np.linspace(0.0, 1.0, options.groups)
    if options.kind == "invert":
        check_most("groups", options.groups, 2, 'kind = "invert" has two: plain and inverted')
        return _through(gain=(1 - 2 * steps).astype(np.float32), offset=steps.astype(np.float32))
    if options.kind == "gain":
        return _through(gain=(1 - options.strength * steps).astype(np.float32))
    return _through(offset=(options.strength * steps).astype(np.float32))


ROTATED_VIEW = Entry[MakeView](Rotated, rotated)
LABEL_SWAP_VIEW = Entry[MakeView](LabelSwap, label_swap)
LABEL_PERMUTATION_VIEW = Entry[MakeView](LabelPermutation, label_permutation)
FEATURE_SHIFT_VIEW = Entry[MakeView](FeatureShift, feature_shift)
ROTATED = make_partition(ROTATED_VIEW)
LABEL_SWAP = make_partition(LABEL_SWAP_VIEW)
LABEL_PERMUTATION = make_partition(LABEL_PERMUTATION_VIEW)
FEATURE_SHIFT = make_partition(FEATURE_SHIFT_VIEW)
