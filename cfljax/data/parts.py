"""The flags of an import, the form of its samples, and what readers share: a test part, numbers for
classes and users."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from cfljax.data import arrays
from cfljax.data.names import as_integers, number_names
from cfljax.errors import DataError

_SEED = 0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The flags of the command `data import`, whose help says what each means."""

    label: str | None = None
    user: str | None = None
    coarse: str | None = None
    x: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    grey: bool = False
    by_user: bool = False
    by_domain: bool = False
    user_in_name: str | None = None
    seconds: float | None = None
    log_mel: int = 0
    text: str | None = None
    tokens: str = ""
    length: int | None = None
    vocabulary: int | None = None
    vectors: int = 0
    next_token: bool = False
    continuous: bool = False
    test: str | None = None
    test_fraction: float = 0.2


class Part(NamedTuple):
    """Training or test samples as they were read: labels and users are still names."""

    x: np.ndarray
    y: np.ndarray
    user: np.ndarray | None = None
    # The names of the classes, if the file has them; then y holds positions in this list
    class_names: list[str] | None = None
    # The coarse label of each sample, a name as well
    coarse: np.ndarray | None = None
    # Whether y is a target f32[n] instead of labels
    continuous: bool = False

    def as_numbers(self, where: str) -> Part:
        """Return the part whose label is a continuous target; a DataError if it is no number."""
        try:
            y = np.asarray(self.y, np.float32)
        except ValueError as error:
            raise DataError(f"{where}: the target is to be a number ({error})") from None
        return self._replace(y=y, continuous=True)


def number_users(
    where: str, train: np.ndarray | None, test: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return the users of the training and the test samples as numbers, by the names of arrays;
    empty if there are none."""
    if train is not None and test is not None:
        _, (of_train, of_test) = number_names(where, [train, test])
        return {"user_train": of_train, "user_test": of_test}
    if train is not None or test is not None:
        sides = ("training", "test") if test is None else ("test", "training")
        raise DataError(
            f"{where}: the {sides[0]} samples have users and the {sides[1]} samples have "
            "none; give both or none"
        )
    return {}


def number_coarse(where: str, train: Part, test: Part) -> dict[str, np.ndarray]:
    """Return the coarse labels of training and test samples as numbers, by the names of arrays;
    empty if there are none."""
    held = {
        name: part.coarse
        for name, part in (("y_coarse_train", train), ("y_coarse_test", test))
        if part.coarse is not None
    }
    if not held:
        return {}
    _, numbers = number_names(where, list(held.values()))
    return dict(zip(held, numbers, strict=True))


def split_test(part: Part, share: float) -> tuple[Part, Part]:
    """Split off a test part: `share` of the samples of every user (without users: class), but not
    all."""
    if part.user is not None:
        by = part.user
    elif part.y.ndim == 1 and not part.continuous:
        by = part.y
    else:
        by = np.zeros(len(part.y), int)
    rng = np.random.default_rng(_SEED)
    test = np.zeros(len(part.y), bool)
    _, group = np.unique(by.astype(str), return_inverse=True)
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(group))[:-1]):
        test[rng.permutation(rows)[: min(len(rows) - 1, round(share * len(rows)))]] = True
    held: dict[str, Any] = {
        name: each for name, each in part._asdict().items() if isinstance(each, np.ndarray)
    }

    def select(rows: np.ndarray) -> Part:
        return part._replace(**{name: each[rows] for name, each in held.items()})

    return select(~test), select(test)


def number_classes(
    where: str, train: Part, test: Part
) -> tuple[list[str], tuple[np.ndarray, np.ndarray]]:
    """Return the names of the classes, and the labels 0 … classes − 1 of the training and of the
    test part."""
    if train.continuous:
        return [], (train.y, test.y)
    if train.class_names is not None and test.class_names is not None:
        if train.class_names != test.class_names:
            raise DataError(f"{where}: the classes of the training and the test part differ")
        return train.class_names, (train.y, test.y)
    # Several labels of each sample, which `arrays.source` checks
    if train.y.ndim == 2 and train.y.shape[1] > 1:
        return [str(n) for n in range(train.y.shape[1])], (train.y, test.y)
    for y in (train.y, test.y):
        if y.dtype.kind == "f" and as_integers(where, y) is None:
            raise DataError(
                f"{where}: labels are classes, and must be integers or names; some are fractions "
                "or missing; for a target that is a number give continuous = true"
            )
    names, (y_train, y_test) = number_names(where, [train.y, test.y])
    count = len(train.y) + len(test.y)
    if len(names) > arrays.MAX_CLASSES or (len(names) > 100 and len(names) > count / 2):
        raise DataError(
            f"{where}: has {len(names)} different labels in {count} samples; labels must be classes"
        )
    return names, (y_train, y_test)
