"""The view in which groups see the images corrupted: blurred, noisy, with little contrast, out of a
JPEG file. Unlike the other views, a corruption mixes pixels or draws noise, so that each group has
its own copy of the samples that its clients hold. It is made when the partition is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

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
    x, within = source.x_train, True
    if x.dtype != np.uint8:
        within = all(
            part.min(initial=0) >= 0 and part.max(initial=1) <= 1 for part in (x, source.x_test)
        )
    try:
        image_shape(x.shape[1:])
    except SpecError:
        within = False
    if source.table is not None or not within:
        why = (
            f"{source.name} has no images of bytes, or of numbers from 0 to 1; choose another "
            "partition, or other data"
        )
        raise bad_option("partition", "corrupted", why)

    def see(parts: Parts, of: np.ndarray, rng: Rng) -> Parts:
        key = int(rng.integers(2**63))
        edge = len(source.y_train)

        def damage(x: np.ndarray, side: int, group: int, rows: np.ndarray) -> np.ndarray:
            if kinds[group] == "none":
                return x[rows]
            images = x.reshape(-1, *image_shape(x.shape[1:]))
            how = (kinds[group], options.severity, (key, side, group))
            return corrupt_images(images, *how, rows).reshape(len(rows), *x.shape[1:])

        tests = (
            [parts.test] * len(parts.train) if isinstance(parts.test, np.ndarray) else parts.test
        )
        sides = [(source.x_train, source.y_train, 0), (source.x_test, source.y_test, edge)]
        if any((rows >= edge).any() for rows in parts.train) or any(
            (rows < edge).any() for rows in tests
        ):
            # Some training samples are tested on, or the reverse
            both = zip(*sides, strict=True)
            sides = [(np.concatenate(next(both)), np.concatenate(next(both)), 0)] * 2
        (x, y, train, origin), (x_test, y_test, test, _) = (
            _copy_views(
                y,
                [rows - first for rows in held],
                of,
                len(kinds),
                functools.partial(damage, x, side),
            )
            for side, (held, (x, y, first)) in enumerate(
                zip((parts.train, tests), sides, strict=True)
            )
        )
        new = source._replace(
            x_train=x,
            y_train=y,
            x_test=x_test,
            y_test=y_test,
            user_train=None,
            user_test=None,
            population=None,
        )
        origin = origin if parts.origin is None else parts.origin[origin]
        return dataclasses.replace(
            parts, train=train, test=[rows + len(y) for rows in test], source=new, origin=origin
        )

    return see


def _copy_views(
    y: np.ndarray,
    held: list[np.ndarray],
    of: np.ndarray,
    groups: int,
    damage: Callable[[int, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]:
    """Return samples and labels as groups see them (`damage`), the rows of each client in these,
    and each row's origin."""
    used = [
        np.unique(
            np.concatenate([np.zeros(0, np.int64), *(held[c] for c in np.flatnonzero(of == g))])
        )
        for g in range(groups)
    ]
    begin = np.cumsum([0, *map(len, used)])
    origin = np.concatenate(used)
    x = np.concatenate([damage(g, rows) for g, rows in enumerate(used)])
    return (
        x,
        y[origin],
        [begin[g] + np.searchsorted(used[g], mine) for g, mine in zip(of, held, strict=True)],
        origin,
    )


CORRUPTED_VIEW = Entry[View](Corrupted, corrupted)
CORRUPTED = make_partition(CORRUPTED_VIEW)
