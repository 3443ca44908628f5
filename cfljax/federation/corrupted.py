"""The view in which groups see the images corrupted: blurred, noisy, with little contrast, out of a
JPEG file. Unlike the other views, a corruption mixes pixels or draws noise, so that each group has
its own copy of the samples that its clients hold. It is made when the partition is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError, suggest
from cfljax.federation.common import Rng, bad_option, check_most
from cfljax.federation.corruptions import CORRUPTIONS, corrupt_images
from cfljax.federation.groups import Groups, See, View, image_shape, make_partition
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
    kinds = options.kinds or CORRUPTIONS[: options.groups]
    if len(kinds) != options.groups:
        if options.kinds:
            raise bad_option(
                "kinds",
                list(kinds),
                f"{len(kinds)} kinds for {options.groups} groups; give {options.groups}",
            )
        check_most(
            "groups",
            options.groups,
            len(CORRUPTIONS),
            "there are as many kinds; more with data.kinds, which may say one twice",
        )
    x = source.x_train
    are_images = True
    if x.dtype != np.uint8:
        are_images = all(
            part.min(initial=0) >= 0 and part.max(initial=1) <= 1 for part in (x, source.x_test)
        )
    try:
        image_shape(x.shape[1:])
    except SpecError:
        are_images = False
    if source.table is not None or not are_images:
        why = (
            f"{source.name} has no images of bytes, or of numbers from 0 to 1; choose another "
            "partition, or other data"
        )
        raise bad_option("partition", "corrupted", why)

    def see(parts: Parts, of: np.ndarray, rng: Rng) -> Parts:
        # Noise goes by this key, the side, the group and the row: a sample that several clients of
        # a group hold has one corrupted copy
        key = int(rng.integers(2**63))
        edge = len(source.y_train)

        def damage(x: np.ndarray, side: int, group: int, rows: np.ndarray) -> np.ndarray:
            if kinds[group] == "none":
                return x[rows]
            images = x.reshape(-1, *image_shape(x.shape[1:]))
            how = (kinds[group], options.severity, (key, side, group))
            return corrupt_images(images, *how, rows).reshape(len(rows), *x.shape[1:])

        tests = parts.test
        if isinstance(tests, np.ndarray):
            tests = [tests] * len(parts.train)
        train_side = _Side(source.x_train, source.y_train, 0)
        test_side = _Side(source.x_test, source.y_test, edge)
        # If training samples are tested on, or the reverse, both sides are all samples
        mixed = any((rows >= edge).any() for rows in parts.train)
        mixed = mixed or any((rows < edge).any() for rows in tests)
        if mixed:
            all_x = np.concatenate([source.x_train, source.x_test])
            all_y = np.concatenate([source.y_train, source.y_test])
            train_side = test_side = _Side(all_x, all_y, 0)
        train = _copy_views(
            train_side, parts.train, of, len(kinds), functools.partial(damage, train_side.x, 0)
        )
        test = _copy_views(
            test_side, tests, of, len(kinds), functools.partial(damage, test_side.x, 1)
        )
        new = source._replace(
            x_train=train.x,
            y_train=train.y,
            x_test=test.x,
            y_test=test.y,
            user_train=None,
            user_test=None,
            population=None,
        )
        origin = train.origin if parts.origin is None else parts.origin[train.origin]
        return dataclasses.replace(
            parts,
            train=train.rows,
            test=[rows + len(train.y) for rows in test.rows],
            source=new,
            origin=origin,
        )

    return see


class _Side(NamedTuple):
    """The training or the test samples of a source."""

    x: np.ndarray
    y: np.ndarray
    # The row of the source that is row 0 here
    first: int


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
    damage: Callable[[int, np.ndarray], np.ndarray],
) -> _Copies:
    """Copy the samples of a side for each group that holds them.

    Args:
      side: The samples.
      held: The rows of the source that each client holds.
      of: i32[C] the group of each client.
      groups: The number of groups.
      damage: (group, rows of the side) -> these samples as the group sees them.
    """
    held = [rows - side.first for rows in held]
    used = [
        np.unique(
            np.concatenate([np.zeros(0, np.int64), *(held[c] for c in np.flatnonzero(of == g))])
        )
        for g in range(groups)
    ]
    begin = np.cumsum([0, *map(len, used)])
    origin = np.concatenate(used)
    x = np.concatenate([damage(g, rows) for g, rows in enumerate(used)])
    rows = [begin[g] + np.searchsorted(used[g], own) for g, own in zip(of, held, strict=True)]
    return _Copies(x, side.y[origin], rows, origin)


CORRUPTED_VIEW = Entry[View](Corrupted, corrupted)
CORRUPTED = make_partition(CORRUPTED_VIEW)
