"""Partitions with known true groups: all groups have the same data set, and each sees it in a different view.
A view is an index map, so that no group needs a copy of the data."""

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
    split_at,
    test_rows,
)
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Grouped(Sized):
    """Options of partitions whose groups see the data differently."""

    groups: int = option(4, "number of groups", low=1)
    test_clients: int = option(0, "additional clients that never train and are only tested (IFCA's layout)", low=0)
    copies: bool = option(True, "each group has a copy of every sample; false: each sample belongs to one group")


def _take(rows: np.ndarray, clients: int, wanted: int | None, name: str, what: str) -> list[np.ndarray]:
    if clients > len(rows):
        raise SpecError(f"data.{name}: the {clients} clients of a group share {len(rows)} {what} samples; give fewer clients")
    if wanted is None:
        return split_at(rows, even_sizes(len(rows), clients))
    why = f"{clients} clients of a group share {len(rows)} {what} samples"
    check_most("samples_per_client", wanted, len(rows) // max(clients, 1), why)
    return split_at(rows, np.full(clients, wanted))


def _choose_portions(rows: np.ndarray, groups: int, copies: bool, rng: Rng) -> list[np.ndarray]:
    """Choose the rows that each group divides among its clients: all rows, in a different order for each group, or a part of
    them."""
    if copies:
        return [rng.permutation(rows) for _ in range(groups)]
    return split_at(rng.permutation(rows), even_sizes(len(rows), groups))


def make_groups(options: Grouped, source: Source, rng: Rng, **views: Any) -> Parts:
    """Build the parts of clients in equal blocks, one block per group. Test clients come after all others. `views`: the fields
    `pixels`, `labels`, `gain` and `offset` of Parts, by group."""
    groups, clients = options.groups, options.clients
    check_most("groups", groups, clients, f"there are {clients} clients")
    if 0 < options.test_clients < groups:
        raise bad_option("test_clients", options.test_clients, f"every group needs one; at least {groups}, or 0 for none")
    of, of_test = group_blocks(clients, groups), group_blocks(options.test_clients, groups)
    train, test, only_test = [], [], []
    in_train = _choose_portions(np.arange(len(source.y_train)), groups, options.copies, rng)
    in_test = _choose_portions(test_rows(source), groups, options.copies, rng)
    for g in range(groups):
        size, size_test = int(np.sum(of == g)), int(np.sum(of_test == g))
        train += _take(in_train[g], size, options.samples_per_client, "clients", "training")
        # A training client is scored on a share of the test set in its own view, beside the test clients.
        test += split_at(in_test[g], even_sizes(len(in_test[g]), size))
        if size_test:
            only_test += _take(in_test[g], size_test, options.samples_per_client, "test_clients", "test")
    train += [np.zeros(0, np.int64)] * len(only_test)
    group = np.concatenate([of, of_test])
    shared = options.test == "global"
    return Parts(train, test_rows(source) if shared else test + only_test, group, view=group, **views)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (height, width, channels) of a sample; a flat sample whose length is a square is a square image."""
    if len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return math.isqrt(shape[0]), math.isqrt(shape[0]), 1
    if len(shape) in (2, 3):
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
    raise SpecError(f"data.partition: samples of shape {shape} are not images and cannot be rotated; choose a data set of images")


def rotation(shape: tuple[int, ...], angle: float) -> np.ndarray:
    """i32[F]: where each value of the flattened sample comes from when the image is turned counter-clockwise by `angle`
    degrees: exactly for quarter turns, else to the nearest pixel; −1 comes from outside the image."""
    height, width, channels = image_shape(shape)
    places = np.arange(height * width * channels, dtype=np.int32).reshape(height, width, channels)
    turns, rest = divmod(angle % 360, 90)
    if rest == 0 and (height == width or turns % 2 == 0):
        return np.rot90(places, int(turns)).ravel()
    radians = math.radians(angle)
    down, right = np.mgrid[0:height, 0:width].astype(np.float64)
    down, right = down - (height - 1) / 2, right - (width - 1) / 2
    row = math.cos(radians) * down + math.sin(radians) * right + (height - 1) / 2
    column = -math.sin(radians) * down + math.cos(radians) * right + (width - 1) / 2
    row, column = (np.floor(a + 0.5 + 1e-9).astype(np.int64) for a in (row, column))
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    found = places[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
    return np.where(inside[..., None], found, -1).astype(np.int32).ravel()


def rotations(shape: tuple[int, ...], angles: tuple[float, ...]) -> np.ndarray:
    """i32[V, F]: one rotation per view."""
    return np.stack([rotation(shape, a) for a in angles])


def even_angles(groups: int) -> tuple[float, ...]:
    """Divide the circle evenly (0 and 180 degrees for two groups); quarter turns for three."""
    step = 90.0 if groups == 3 else 360.0 / groups
    return tuple(g * step for g in range(groups))


@dataclasses.dataclass(frozen=True)
class Rotated(Grouped):
    """Options of `rotated`."""

    angles: tuple[float, ...] = option((), "each group's angle in degrees, counter-clockwise; default: evenly spaced")


def rotated(options: Rotated, source: Source, rng: Rng) -> Parts:
    """Rotate the images of each group, by 0, 90, 180 and 270 degrees unless `angles` says otherwise (IFCA's layout)."""
    angles = options.angles or even_angles(options.groups)
    if len(angles) != options.groups:
        raise bad_option("angles", list(angles), f"{len(angles)} angles for {options.groups} groups; give {options.groups}")
    return make_groups(options, source, rng, pixels=rotations(source.x_train.shape[1:], angles))


@dataclasses.dataclass(frozen=True)
class LabelSwap(Grouped):
    """Options of `label_swap`."""

    pairs: int = option(1, "pairs of labels that a group swaps", low=1)


def label_swap(options: LabelSwap, source: Source, rng: Rng) -> Parts:
    """Swap pairs of labels in each group, different pairs in different groups; the first group swaps none."""
    check_single(source)
    classes, plain = source.classes, np.arange(source.classes)
    check_most("pairs", options.pairs, classes // 2, f"{source.name} has {classes} classes")

    def draw() -> np.ndarray:
        chosen, swapped = rng.permutation(classes)[: 2 * options.pairs], plain.copy()
        swapped[chosen] = np.roll(chosen.reshape(2, -1), 1, axis=0).ravel()
        return swapped

    matchings = math.prod(math.comb(classes - 2 * i, 2) for i in range(options.pairs)) // math.factorial(options.pairs)
    labels = _draw_distinct(options.groups, plain, draw, 1 + matchings, "ways to swap")
    return make_groups(options, source, rng, labels=labels)


def label_permutation(options: Grouped, source: Source, rng: Rng) -> Parts:
    """Permute all labels in each group, differently in each; the first group's labels are unchanged."""
    check_single(source)
    classes = source.classes
    ways = math.factorial(min(classes, 20))
    labels = _draw_distinct(options.groups, np.arange(classes), lambda: rng.permutation(classes), ways, "ways to permute")
    return make_groups(options, source, rng, labels=labels)


def _draw_distinct(groups: int, first: np.ndarray, draw: Callable[[], np.ndarray], ways: int, what: str) -> np.ndarray:
    """i32[V, classes]: `first`, then draws that are all different."""
    check_most("groups", groups, ways, f"there are {ways} {what} {len(first)} labels")
    found = {tuple(first.tolist()): None}
    while len(found) < groups:
        found[tuple(draw().tolist())] = None
    return np.array(list(found), np.int32)


@dataclasses.dataclass(frozen=True)
class FeatureShift(Grouped):
    """Options of `feature_shift`."""

    kind: str = option("invert", "what differs between groups", choices=("invert", "gain", "offset"))
    strength: float = option(0.5, "how far the last group is from the first (gain, offset)", above=0)
    groups: int = option(2, "number of groups", low=1)


def feature_shift(options: FeatureShift, source: Source, rng: Rng) -> Parts:
    """Shift the intensities of each group: inverted (x becomes 1 − x), or with another gain or offset."""
    steps = np.linspace(0.0, 1.0, options.groups)
    if options.kind == "invert":
        check_most("groups", options.groups, 2, 'kind = "invert" has two: plain and inverted')
        return make_groups(options, source, rng, gain=(1 - 2 * steps).astype(np.float32), offset=steps.astype(np.float32))
    if options.kind == "gain":
        return make_groups(options, source, rng, gain=(1 - options.strength * steps).astype(np.float32))
    return make_groups(options, source, rng, offset=(options.strength * steps).astype(np.float32))


LABEL_SWAP = Entry[Partition](LabelSwap, label_swap)
LABEL_PERMUTATION = Entry[Partition](Grouped, label_permutation)
FEATURE_SHIFT = Entry[Partition](FeatureShift, feature_shift)
ROTATED = Entry[Partition](Rotated, rotated)
