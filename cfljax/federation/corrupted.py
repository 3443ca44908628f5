"""The view in which groups see the images corrupted: blurred, noisy, with little contrast, out of a
JPEG file. Unlike the other views, a corruption mixes pixels or draws noise, so that each group has
its own copy of the samples that its clients hold. It is made when the partition is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError, suggest
from cfljax.federation.common import Rng, bad_option, check_most
from cfljax.federation.corruptions import CORRUPTIONS, corrupt_images
from cfljax.federation.groups import Groups, MakeView, See, image_shape, make_partition
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Corrupted(Groups):
    """Options of `corrupted`."""

    kinds: tuple[str, ...] = option(
        (), f"each group's corruption: {', '.join(CORRUPTIONS)}; default: the first of these"
    )
    severity: int = option(3, "how strong, as in CIFAR-10-C", low=1, high=5)

    def check(self, where: str) -> None:
        """Reject unknown kinds with a SpecError."""
        for kind in self.kinds:
            if kind not in CORRUPTIONS:
                raise SpecError(f'{where}.kinds: "{kind}": unknown' + suggest(kind, CORRUPTIONS))


def corrupted(options: Corrupted, source: Source, _: Rng) -> See:
    """Corrupt the images of each group as in CIFAR-10-C (blur, noise, contrast, …); the first group
    sees them unchanged."""
    kinds = _choose_kinds(options)
    _check_images(source)

    # `of`: the group of each client
    def see(parts: Parts, of: np.ndarray, rng: Rng) -> Parts:
        # One key for all clients: noise goes by it, the side, the group and the row, so a sample
        # that several clients of a group hold has one corrupted copy
        key = int(rng.integers(2**63))
        tests = parts.test
        if isinstance(tests, np.ndarray):
            tests = [tests] * len(parts.train)
        train_side, test_side = _split_sides(source, parts.train, tests)

        def copy(side: _Side, side_number: int, held: list[np.ndarray]) -> _Copies:
            def corrupt(group: int, rows: np.ndarray) -> np.ndarray:
                if kinds[group] == "none":
                    return side.x[rows]
                shape = side.x.shape[1:]
                images = side.x.reshape(-1, *image_shape(shape))
                keys = (key, side_number, group)
                made = corrupt_images(images, kinds[group], options.severity, keys, rows)
                return made.reshape(len(rows), *shape)

            return _copy_views(side, held, of, len(kinds), corrupt)

        train = copy(train_side, 0, parts.train)
        test = copy(test_side, 1, tests)
        # The source's users and population do not fit the copies
        copies = source._replace(
            x_train=train.x,
            y_train=train.y,
            x_test=test.x,
            y_test=test.y,
            user_train=None,
            user_test=None,
            population=None,
        )
        return dataclasses.replace(
            parts,
            train=train.rows,
            # Rows of a source count its training samples first
            test=[rows + len(train.y) for rows in test.rows],
            source=copies,
            origin=train.origin if parts.origin is None else parts.origin[train.origin],
        )

    return see


def _choose_kinds(options: Corrupted) -> tuple[str, ...]:
    """Return the corruption of each group. SpecError: there are not as many kinds as groups."""
    kinds = options.kinds or CORRUPTIONS[: options.groups]
    if len(kinds) == options.groups:
        return kinds
    if not options.kinds:
        check_most(
            "groups",
            options.groups,
            len(CORRUPTIONS),
            "there are as many kinds; more with data.kinds, which may say one twice",
        )
    why = f"{len(kinds)} kinds for {options.groups} groups; give {options.groups}"
    raise bad_option("kinds", list(kinds), why)


def _check_images(source: Source) -> None:
    """Raise SpecError if the samples are not images of bytes, or of numbers from 0 to 1."""
    x = source.x_train
    are_images = source.table is None
    if x.dtype != np.uint8:
        are_images = are_images and all(
            part.min(initial=0) >= 0 and part.max(initial=1) <= 1 for part in (x, source.x_test)
        )
    try:
        image_shape(x.shape[1:])
    except SpecError:
        are_images = False
    if not are_images:
        why = (
            f"{source.name} has no images of bytes, or of numbers from 0 to 1; choose another "
            "partition, or other data"
        )
        raise bad_option("partition", "corrupted", why)


class _Side(NamedTuple):
    """The training or the test samples of a source, or both."""

    x: np.ndarray
    y: np.ndarray
    # The row of the source that is row 0 here
    first: int


def _split_sides(
    source: Source, train: list[np.ndarray], test: list[np.ndarray]
) -> tuple[_Side, _Side]:
    """Return the samples from which clients train, and those on which they are tested.

    Args:
      source: The samples.
      train: The rows of the source on which each client trains.
      test: The rows on which it is tested.
    """
    edge = len(source.y_train)
    are_mixed = any((rows >= edge).any() for rows in train)
    are_mixed = are_mixed or any((rows < edge).any() for rows in test)
    if are_mixed:
        # Training samples are tested on, or the reverse: both sides are all samples
        x = np.concatenate([source.x_train, source.x_test])
        y = np.concatenate([source.y_train, source.y_test])
        return _Side(x, y, 0), _Side(x, y, 0)
    return _Side(source.x_train, source.y_train, 0), _Side(source.x_test, source.y_test, edge)


class _Copies(NamedTuple):
    """Samples as groups see them, of each the samples that some client of the group holds."""

    x: np.ndarray
    y: np.ndarray
    # The rows of each client
    rows: list[np.ndarray]
    # Of which row of the side each is a copy
    origin: np.ndarray


def _copy_views(
    side: _Side,
    held: list[np.ndarray],
    of: np.ndarray,
    groups: int,
    corrupt: Callable[[int, np.ndarray], np.ndarray],
) -> _Copies:
    """Copy the samples of a side for each group that holds them.

    Args:
      side: The samples.
      held: The rows of the source that each client holds.
      of: i32[C] the group of each client.
      groups: The number of groups.
      corrupt: (group, rows of the side) -> these samples as the group sees them.
    """
    held = [rows - side.first for rows in held]
    nothing = np.zeros(0, np.int64)
    # The rows of the side that each group holds, in ascending order; the copies are in this order,
    # group after group
    of_group = [
        np.unique(np.concatenate([nothing, *(held[c] for c in np.flatnonzero(of == group))]))
        for group in range(groups)
    ]
    first = np.cumsum([0, *map(len, of_group)])
    origin = np.concatenate(of_group)
    x = np.concatenate([corrupt(group, rows) for group, rows in enumerate(of_group)])
    rows = [
        first[group] + np.searchsorted(of_group[group], own)
        for group, own in zip(of, held, strict=True)
    ]
    return _Copies(x, side.y[origin], rows, origin)


CORRUPTED_VIEW = Entry[MakeView](Corrupted, corrupted)
CORRUPTED = make_partition(CORRUPTED_VIEW)
