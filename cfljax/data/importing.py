"""`python -m cfljax.data import`: from users' files (folders of images, tables, LEAF, NumPy, Hugging Face) to imported data."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path

import numpy as np

from cfljax.data import SOURCES, arrays, leaf, mapped, npz
from cfljax.data.files import check_free, folders
from cfljax.data.parts import Part, Wanted
from cfljax.data.sources import FileOptions
from cfljax.errors import DataError, DataWarning, SpecError
from cfljax.types import Source

KINDS = ("images", "csv", "parquet", "leaf", "numpy", "datasets")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_SEED = 0
_OWNERS = "the {} samples have owners and the {} samples have none; give an owner for each sample or for none"


def import_data(place: str, name: str | None, kind: str | None, wanted: Wanted, folder: str | None, replace: bool) -> Path:
    """Import the file or folder `place`; the folder of the imported data. Its name is `name`, or else that of `place`."""
    where = Path(place).expanduser()
    if not where.exists():
        raise DataError(f"{place}: there is no such file or folder")
    name = name or re.sub(r"[^A-Za-z0-9_.+-]", "_", where.resolve().name.removesuffix(where.suffix)).lstrip("_.+-")
    if not _NAME.fullmatch(name):
        raise SpecError(f'--name "{name}": a name begins with a letter or digit and has letters, digits, "_", "-", "+" and "."')
    if name in SOURCES:
        raise SpecError(f'--name "{name}": a built-in data set has this name and would be used in place of yours; choose another')
    if not 0 < wanted.test_fraction < 1:
        raise SpecError(f"--test-fraction {wanted.test_fraction}: must be between 0 and 1")
    place_for = Path(folder).expanduser() if folder else folders(None)[0]
    check_free(name, [place_for], "what is imported; or choose another --name")
    target = place_for / name
    if target.exists() and not replace:
        raise DataError(f"{target}: exists already; choose another --name, or give --replace")
    source, class_names = read(name, where, kind or kind_of(where), wanted)
    mapped.write(source, target, class_names, where.name, replace)
    return target


_COLUMNS = ("label", "user", "x", "drop", "one_hot", "shape", "test")
_USED = {
    "images": ("shape", "grey", "by_user", "by_domain", "test"),
    "csv": _COLUMNS,
    "parquet": (*_COLUMNS, "grey"),
    "datasets": (*_COLUMNS, "grey"),
    "numpy": ("shape", "test"),
    "leaf": (),
}
"""The flags that each kind uses."""
_MARKS = (
    ("dataset_dict.json", "datasets"),
    ("state.json", "datasets"),
    ("train/*.json", "leaf"),
    ("*.npy", "numpy"),
    ("*.parquet", "parquet"),
    ("*/", "images"),
)
"""What the first of these patterns finds in a folder decides which kind it is."""


def check_flags(kind: str, wanted: Wanted) -> None:
    """A SpecError for a flag that this kind does not use."""
    for field in dataclasses.fields(Wanted):
        if field.name not in (*_USED[kind], "test_fraction") and getattr(wanted, field.name) != field.default:
            raise SpecError(f"--{field.name.replace('_', '-')}: has no effect on an import of {kind}; leave it out")


def kind_of(where: Path) -> str:
    """The kind of data in a file or folder, from its name and contents."""
    if where.is_file():
        by_ending = {".csv": "csv", ".tsv": "csv", ".gz": "csv", ".parquet": "parquet", ".npz": "numpy"}
        if where.suffix.lower() in by_ending:
            return by_ending[where.suffix.lower()]
        raise DataError(f"{where}: the kind of data is not clear from the name; give --kind {'|'.join(KINDS)}")
    for pattern, kind in _MARKS:
        if any(where.glob(pattern)):
            return kind
    raise DataError(f"{where}: nothing in it can be imported; give --kind {'|'.join(KINDS)}")


def read(name: str, where: Path, kind: str, wanted: Wanted) -> tuple[Source, list[str]]:
    """(The data set, the names of its classes.)"""
    check_flags(kind, wanted)
    if kind == "leaf":
        source = leaf.read(name, where, FileOptions())
        return source, list(map(str, range(source.classes)))
    if kind == "numpy" and where.is_file() and "x_test" in npz.names(where):
        source = npz.read(name, where)
        if source.user_train is not None and source.user_test is None:
            raise DataError(f"{where}: {_OWNERS.format('training', 'test')}")
        if wanted.shape or wanted.test:
            flag = "--shape" if wanted.shape else "--test"
            raise SpecError(f"{flag}: the training and test samples of {where} are used as they are; leave it out")
        return source, list(map(str, range(source.classes)))
    from cfljax.data.importing_tables import KIND

    reader, together = KIND[kind]
    found = reader(where, wanted)
    if wanted.test is not None:
        if len(found) > 1:
            raise SpecError(f"--test {wanted.test}: {where} has a test part already; leave one of the two out")
        other = Path(wanted.test).expanduser()
        if not other.exists():
            raise DataError(f"--test {wanted.test}: there is no such file or folder")
        found = [*found, reader(other, wanted)[0]]
    return assembled(name, str(where), together(found, wanted), wanted.test_fraction)


def assembled(name: str, where: str, parts: list[Part], share: float) -> tuple[Source, list[str]]:
    """(A Source, the names of its classes) from the parts that were read: training, and test if there are two. Else a share of each
    owner's samples, or without owners of each class, becomes the test part."""
    train, test = parts if len(parts) > 1 else split(parts[0], share)
    names, (y_train, y_test) = numbered(where, train, test)
    if not len(y_test):
        each = "class" if train.user is None else "owner"
        line = f"{where}: no test samples, as each {each} has few samples; give a larger --test-fraction, or --test"
        warnings.warn(line, DataWarning, stacklevel=2)
    named = {"x_train": train.x, "y_train": y_train, "x_test": test.x, "y_test": y_test}
    if train.user is not None and test.user is not None:
        _, every = np.unique(np.concatenate([train.user, test.user]).astype(str), return_inverse=True)  # 1 and 1.0 are one owner
        named |= {"user_train": every[: len(y_train)], "user_test": every[len(y_train) :]}
    elif train.user is not None or test.user is not None:
        sides = ("training", "test") if test.user is None else ("test", "training")
        raise DataError(f"{where}: {_OWNERS.format(*sides)}")
    return arrays.source(name, where, named, len(names)), names


def split(part: Part, share: float) -> tuple[Part, Part]:
    """(Training part, test part): the latter is `share` of the samples of every owner (without owners: class), but not all."""
    by = part.y if part.user is None else part.user
    rng, test = np.random.default_rng(_SEED), np.zeros(len(part.y), bool)
    _, group = np.unique(by.astype(str), return_inverse=True)
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(group))[:-1]):
        test[rng.permutation(rows)[: min(len(rows) - 1, round(share * len(rows)))]] = True
    return tuple(  # type: ignore[return-value]
        Part(part.x[keep], part.y[keep], None if part.user is None else part.user[keep], part.class_names) for keep in (~test, test)
    )


def numbered(where: str, train: Part, test: Part) -> tuple[list[str], tuple[np.ndarray, np.ndarray]]:
    """(Names of the classes, (labels of the training part, of the test part)); labels are 0 … classes − 1."""
    if train.class_names is not None and test.class_names is not None:
        if train.class_names != test.class_names:
            raise DataError(f"{where}: the classes of the training and the test part differ")
        return train.class_names, (train.y, test.y)
    both = np.concatenate([train.y, test.y])
    if both.dtype.kind == "f" and not (np.isfinite(both) & (both == np.round(both))).all():
        raise DataError(f"{where}: labels are classes, and must be integers or names; some are fractions or missing")
    if both.dtype.kind == "f":
        both = both.astype(np.int64)
    names, labels = np.unique(both if both.dtype.kind in "iub" else both.astype(str), return_inverse=True)
    if len(names) > arrays.MOST_CLASSES or (len(names) > 100 and len(names) > len(both) / 2):
        raise DataError(f"{where}: has {len(names)} different labels in {len(both)} samples; labels must be classes")
    return [str(n) for n in names], (labels[: len(train.y)], labels[len(train.y) :])
