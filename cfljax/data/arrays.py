"""From arrays of any origin to a checked `Source`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cfljax.data.names import join_names
from cfljax.errors import DataError
from cfljax.types import Source

# The largest allowed number of classes
MAX_CLASSES = 100_000
_PARTS = ("train", "test")


def source(
    name: str, where: str, named: Mapping[str, np.ndarray], classes: int | None = None
) -> Source:
    """Check arrays by their names and make a Source. Beside x_train, y_train, x_test, y_test there
    may be user_*, population_* (any numbers, one per sample), y_coarse_* or coarse (of the
    classes), and table. `where`: the file's name in errors."""
    table = named.get("table")
    x_train = samples(named["x_train"], f"{where}: x_train", table)
    x_test = samples(named["x_test"], f"{where}: x_test", table)
    y_train = labels(named["y_train"], f"{where}: y_train", classes)
    y_test = labels(named["y_test"], f"{where}: y_test", classes)
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if len(x) != len(y):
            raise DataError(f"{where}: x_{part} has {len(x)} samples but y_{part} has {len(y)}")
    if len(y_train) == 0:
        raise DataError(f"{where}: x_train has no samples")
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        raise DataError(
            f"{where}: samples are {_form(x_train)} in x_train but {_form(x_test)} in x_test"
        )
    # Bytes that are no pixels are numbers: only pixels are divided by 255
    if table is None and x_train.dtype == np.uint8 and not _are_pixels(x_train, x_test):
        x_train = x_train.astype(np.float32)
        x_test = x_test.astype(np.float32)
    if y_train.shape[1:] != y_test.shape[1:]:
        raise DataError(
            f"{where}: y_train has shape {list(y_train.shape)} and y_test "
            f"{list(y_test.shape)}: must have the same labels"
        )
    if (y_train.dtype.kind == "f") != (y_test.dtype.kind == "f"):
        found = " and ".join(f"{key} is {named[key].dtype}" for key in ("y_train", "y_test"))
        raise DataError(f"{where}: {found}: give integers as labels, or floats as a target")
    if y_train.dtype.kind == "f":
        if "coarse" in named or "y_coarse_train" in named:
            raise DataError(f"{where}: a continuous target has no coarse labels; leave them out")
        classes = 1
    elif not classes and y_train.ndim == 2:
        classes = y_train.shape[1]
    elif not classes:
        classes = int(max(y_train.max(), y_test.max(initial=0))) + 1
    user_train, user_test, population = _number_users(
        where, named, {"train": len(y_train), "test": len(y_test)}
    )
    coarse = _check_coarse(where, named, (y_train, y_test), classes)
    return Source(
        name,
        x_train,
        y_train,
        x_test,
        y_test,
        classes,
        user_train,
        user_test,
        population,
        table,
        coarse,
    )


def split_parts(test: np.ndarray, **named: np.ndarray) -> dict[str, np.ndarray]:
    """Split arrays of all samples (x, y, perhaps user) into the parts that `source` takes; `test`
    bool[n] marks test samples."""
    rows = {"train": ~test, "test": test}
    return {f"{key}_{part}": values[rows[part]] for key, values in named.items() for part in _PARTS}


def _are_pixels(*parts: np.ndarray, block: int = 4096) -> bool:
    """Return whether bytes are pixels (divided by 255 in training): not all 0 or 1 in images, or
    one above 127 in rows."""
    most = 1 if parts[0].ndim > 2 else 127
    return any(
        x[at : at + block].max(initial=0) > most for x in parts for at in range(0, len(x), block)
    )


def _form(x: np.ndarray) -> str:
    return f"{x.dtype}{list(x.shape[1:])}"


def samples(x: np.ndarray, where: str, table: np.ndarray | None = None) -> np.ndarray:
    """Return u8[n, h, w, c] or u8[n, d] for bytes, f32[n, ...] for numbers, i32[n, tokens] for ids
    into `table`; or a DataError."""
    if x.ndim < 2:
        raise DataError(f"{where} has shape {list(x.shape)}: must be [samples, ...]")
    if 0 in x.shape[1:]:
        raise DataError(f"{where} has shape {list(x.shape)}: samples are empty")
    if table is not None:
        if not np.issubdtype(x.dtype, np.integer):
            raise DataError(f"{where} is {x.dtype}: token ids are integers")
        if x.size and (x.min() < 0 or x.max() >= len(table)):
            raise DataError(f"{where} has a token id out of 0 … {len(table) - 1}")
        return x.astype(np.int32, copy=False)
    if x.dtype == np.uint8:
        x = x[..., None] if x.ndim == 3 else x
        channels_first = x.ndim == 4 and x.shape[-1] > 4
    elif np.issubdtype(x.dtype, np.floating):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        if not np.isfinite(x).all():
            raise DataError(
                f"{where} has values that are NaN or infinite, the first in sample "
                f"{_first(~np.isfinite(x))}"
            )
        channels_first = x.ndim == 4 and x.shape[1] in (1, 3, 4) and min(x.shape[2:]) > 4
    else:
        raise DataError(f"{where} is {x.dtype}: save images as uint8 and other numbers as float32")
    if channels_first:
        raise DataError(
            f"{where} has shape {list(x.shape)}: images must have channels last; use "
            "x.transpose(0, 2, 3, 1)"
        )
    return x


def _first(bad: np.ndarray) -> int:
    return int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))


def labels(y: np.ndarray, where: str, classes: int | None = None) -> np.ndarray:
    """Return i32[n] in 0 … classes − 1; i32[n, classes] of 0 and 1 where a sample may have several
    labels; f32[n] of floats, a continuous target; or a DataError."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2 and y.shape[1]:
        if (
            not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool)
            or ((y != 0) & (y != 1)).any()
        ):
            why = "must be 0 or 1 for each label of a sample; of one class, y.argmax(axis=1)"
            raise DataError(f"{where} has shape {list(y.shape)}: {why}")
        if classes not in (None, y.shape[1]):
            raise DataError(f"{where} has {y.shape[1]} labels, and data.classes says {classes}")
        return y.astype(np.int32, copy=False)
    if y.ndim != 1:
        raise DataError(
            f"{where} has shape {list(y.shape)}: must be [samples], or [samples, labels] of 0 and 1"
        )
    if np.issubdtype(y.dtype, np.floating):
        return _numbers(y, where)
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{where} is {y.dtype}: labels are integers 0, 1, …, a target is floats")
    most = classes or MAX_CLASSES
    bad = (y < 0) | (y >= most)
    if bad.any():
        raise DataError(
            f"{where} has the label {y[_first(bad)]} in sample {_first(bad)}: labels are 0 … "
            f"{most - 1}"
        )
    return y.astype(np.int32, copy=False)


def _numbers(y: np.ndarray, where: str) -> np.ndarray:
    """Return a continuous target as f32[n]; or a DataError."""
    with np.errstate(over="ignore"):
        y = y.astype(np.float32, copy=False)
    if not np.isfinite(y).all():
        bad = _first(~np.isfinite(y))
        raise DataError(f"{where} has a target that is NaN or infinite, the first in sample {bad}")
    return y


def _check_coarse(
    where: str, named: Mapping[str, np.ndarray], y: tuple[np.ndarray, np.ndarray], classes: int
) -> np.ndarray | None:
    """Return i32[classes]: the coarse label of each class, −1 for a class without samples; None
    where nothing says it."""
    if y[0].ndim == 2 and ("coarse" in named or "y_coarse_train" in named):
        raise DataError(
            f"{where}: samples have several labels, and these no coarse label; leave out "
            "y_coarse_train and coarse"
        )
    if "coarse" in named:
        found = named["coarse"]
        if (
            found.shape != (classes,)
            or not np.issubdtype(found.dtype, np.integer)
            or found.min() < -1
        ):
            raise DataError(
                f"{where}: coarse is {found.dtype}{list(found.shape)}: must be an integer "
                f"for each of {classes} classes"
            )
        if (found[np.concatenate(y)] < 0).any():
            raise DataError(
                f"{where}: coarse is -1 for a class that has samples; give it a coarse label"
            )
        return found.astype(np.int32)
    held = [
        (named[key], of)
        for part, of in zip(_PARTS, y, strict=True)
        if (key := f"y_coarse_{part}") in named
    ]
    if not held:
        return None
    if "y_coarse_train" not in named:
        raise DataError(f"{where}: y_coarse_test without y_coarse_train; give both")
    for given, _ in held:
        if np.issubdtype(given.dtype, np.floating):
            raise DataError(f"{where}: y_coarse is {given.dtype}: coarse labels are integers")
    of_samples = np.concatenate([labels(given, f"{where}: y_coarse") for given, _ in held])
    fine = np.concatenate([of for _, of in held])
    if len(of_samples) != len(fine):
        raise DataError(f"{where}: has {len(of_samples)} coarse labels for {len(fine)} samples")
    coarse = np.full(classes, -1, np.int32)
    coarse[fine] = of_samples
    wrong = coarse[fine] != of_samples
    if wrong.any():
        at = int(np.argmax(wrong))
        two = f"{of_samples[at]} and {coarse[fine[at]]}"
        raise DataError(
            f"{where}: class {fine[at]} has the coarse labels {two}; all samples of a class "
            "must have the same"
        )
    return coarse


def _number_users(
    where: str, named: Mapping[str, np.ndarray], sizes: dict[str, int]
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Return the user of each training sample and of each test sample, and the population of each
    user, with users numbered 0 … U − 1; None for what is not known."""
    if "user_train" not in named:
        return None, None, None
    flat_users = _per_sample(where, "user", named, sizes)
    _, ids = np.unique(flat_users, return_inverse=True)
    ids = ids.astype(np.int32)
    user_train = ids[: sizes["train"]]
    user_test = ids[sizes["train"] :] if "user_test" in named else None
    if "population_train" not in named:
        return user_train, user_test, None
    flat = _per_sample(where, "population", named, sizes)
    if len(flat) != len(ids):
        raise DataError(f"{where}: users and populations must be given for the same parts")
    population = np.empty(ids.max() + 1, np.int32)
    _, numbers = np.unique(flat, return_inverse=True)
    population[ids] = numbers
    mixed = population[ids] != numbers
    if mixed.any():
        raise DataError(
            f"{where}: user {flat_users[np.argmax(mixed)]} is in more than one population"
        )
    return user_train, user_test, population


def _per_sample(
    where: str, what: str, named: Mapping[str, np.ndarray], sizes: dict[str, int]
) -> np.ndarray:
    held = {
        key: (named[key], size)
        for part, size in sizes.items()
        if (key := f"{what}_{part}") in named
    }
    for key, (values, size) in held.items():
        if values.shape != (size,) or values.dtype.kind not in "iuU":
            raise DataError(
                f"{where}: {key} is {values.dtype}{list(values.shape)}: must be {size} "
                "integers or names"
            )
        if size and values.dtype.kind != "U" and values.min() < 0:
            raise DataError(f"{where}: {key} has the number {values.min()}: must be 0 or more")
    return join_names(where, [values for values, _ in held.values()])
