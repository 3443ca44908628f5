"""LEAF's JSON folders (`train/*.json`, `test/*.json`): a federation by its users."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import one_line_reason, read_json
from cfljax.data.sources import FileOptions, Reader
from cfljax.errors import DataError
from cfljax.registry.options import Table, Value
from cfljax.types import Source


class UserSamples(NamedTuple):
    """The samples of `train/` or `test/`, user after user."""

    x: list[Value]
    y: list[Value]
    # i32[n]: the index of each sample's user
    user: np.ndarray


def detect(name: str, folder: Path) -> Reader | None:
    """Return a reader if the folder has `train/*.json`."""
    if not _list_json(folder / "train"):
        return None
    return Reader(partial(read, name, folder), partial(files, folder))


def files(folder: Path) -> list[tuple[str, Path]]:
    """(role, file) of all that is read; files are read in the order of their names."""
    return [
        (f"{part}/{file.name}", file)
        for part in ("train", "test")
        for file in _list_json(folder / part)
    ]


def _list_json(folder: Path) -> list[Path]:
    """List the JSON files of a folder by name, without hidden ones (file systems keep some beside
    files, such as ._x.json)."""
    return sorted(file for file in folder.glob("*.json") if not file.name.startswith("."))


def read(name: str, folder: Path, options: FileOptions) -> Source:
    """Numbers with their users: FEMNIST's 784 values in [0, 1] become bytes 28 × 28 × 1, other
    numbers stay float32."""
    return make_source(name, folder, options, read_parts(folder))


def make_source(
    name: str, folder: Path, options: FileOptions, held: tuple[UserSamples, UserSamples]
) -> Source:
    """Make the data set of the numbers that `parts` has read."""
    train, test = held
    if train.x and is_text(train.x[0]):
        raise DataError(
            f"{folder}: holds text; import it with `python -m cfljax.data import {folder}`"
        )
    x_train = _to_array(train.x, folder / "train")
    x_test = _to_array(test.x, folder / "test")
    if len(x_test) == 0:
        x_test = np.zeros((0, *x_train.shape[1:]), x_train.dtype)
    x_train, x_test = _to_pixels(x_train, x_test)
    named = {"x_train": x_train, "x_test": x_test, "user_train": train.user, "user_test": test.user}
    named |= {
        f"y_{part}": to_integers(held.y, folder / part)
        for part, held in (("train", train), ("test", test))
    }
    return arrays.source(name, str(folder), named, options.classes)


def read_parts(folder: Path) -> tuple[UserSamples, UserSamples]:
    """Return the training and the test part; users are numbered in the order in which the files
    name them, those of the training part first."""
    number: dict[str, int] = {}
    train = _read_part(folder / "train", number)
    test = _read_part(folder / "test", number)
    seen = np.zeros(len(number), bool)
    seen[train.user] = seen[test.user] = True
    if not seen.all():
        raise DataError(f"{folder}: user {list(number)[int(np.argmin(seen))]} has no samples")
    return train, test


def _read_part(folder: Path, number: dict[str, int]) -> UserSamples:
    x: list[Value] = []
    y: list[Value] = []
    users: list[int] = []
    names: set[str] = set()
    for file in _list_json(folder):
        for name, user_x, user_y in _read_users(file):
            if name in names:
                raise DataError(f"{file}: user {name} occurs twice in this folder")
            names.add(name)
            x += user_x
            y += user_y
            users += [number.setdefault(name, len(number))] * len(user_y)
    return UserSamples(x, y, np.array(users, np.int32))


def _read_users(file: Path) -> list[tuple[str, list[Value], list[Value]]]:

    def unique(pairs: list[tuple[str, Value]]) -> Table:
        # Of two entries with one name, Python would keep the last
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise DataError(
                f"{file}: {next(n for n in names if names.count(n) > 1)[:60]} occurs twice "
                "in one object"
            )
        return dict(pairs)

    content = read_json(file, unique)
    top = content if isinstance(content, dict) else {}
    if not isinstance(top.get("users"), list) or not isinstance(top.get("user_data"), dict):
        raise DataError(f'{file}: must be LEAF\'s {{"users": [...], "user_data": {{...}}}}')
    found = []
    for name in content["users"]:
        data = content["user_data"].get(name) if isinstance(name, str) else None
        if (
            not isinstance(data, dict)
            or not isinstance(data.get("x"), list)
            or not isinstance(data.get("y"), list)
        ):
            raise DataError(f"{file}: user {name} has no lists x and y in user_data")
        if len(data["x"]) != len(data["y"]):
            raise DataError(
                f"{file}: user {name} has {len(data['x'])} samples but {len(data['y'])} labels"
            )
        found.append((name, data["x"], data["y"]))
    sizes = content.get("num_samples")
    if sizes is not None and sizes != [len(y) for _, _, y in found]:
        raise DataError(
            f"{file}: num_samples differs from the users' numbers of samples; the file is "
            "incomplete or mixed up"
        )
    return found


def is_text(value: Value) -> bool:
    """Whether a sample is a text, or lists of words."""
    return isinstance(value, str) or (isinstance(value, list) and any(is_text(v) for v in value))


def _to_array(x: list[Value], where: Path) -> np.ndarray:
    try:
        return np.array(x, np.float32)
    except (ValueError, TypeError, OverflowError) as e:
        raise DataError(
            f"{where}: samples must be lists of numbers of one length ({one_line_reason(e)})"
        ) from e


def to_integers(y: list[Value], where: Path) -> np.ndarray:
    """Return i64[n] from labels that JSON may hold as 3, 3.0 or "3"."""
    try:
        values = np.array([float(v) for v in y], np.float64)
    except (ValueError, TypeError, OverflowError) as e:
        raise DataError(f"{where}: labels must be integers ({one_line_reason(e)})") from e
    bad = ~np.isfinite(values) | (values != np.round(values)) | (np.abs(values) > 2**31)
    if bad.any():
        raise DataError(f"{where}: has the label {y[int(np.argmax(bad))]}: labels must be integers")
    return values.astype(np.int64)


def _to_pixels(*parts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Bytes 28 × 28 × 1 where every value is a byte divided by 255, else as they are."""
    for x in parts:
        scaled = x * np.float32(255)
        if (
            x.ndim != 2
            or x.shape[1] != 784
            or not ((np.abs(scaled - np.round(scaled)) < 0.01) & (x >= 0) & (x <= 1)).all()
        ):
            return parts
    return tuple(
        np.round(x * np.float32(255)).astype(np.uint8).reshape(-1, 28, 28, 1) for x in parts
    )
