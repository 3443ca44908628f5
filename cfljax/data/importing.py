"""`python -m cfljax.data import`: users' files (images, sounds, tables, LEAF, NumPy, Hugging Face)
become imported data."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.data import SOURCES, arrays, importing_text, leaf, mapped, npz
from cfljax.data.bounded import parser_errors
from cfljax.data.files import check_free, folders
from cfljax.data.importing_columns import make_parts, reshape_samples
from cfljax.data.importing_folders import find_domains, has_sounds
from cfljax.data.importing_images import read_images
from cfljax.data.importing_sounds import read_sounds
from cfljax.data.importing_tables import is_hub_name, read_csv, read_parquet, read_saved
from cfljax.data.parts import Part, Wanted, number_classes, number_coarse, number_users, split_test
from cfljax.data.sources import FileOptions
from cfljax.errors import DataError, DataWarning, SpecError
from cfljax.types import Source

_IMPORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_OF_TOKENS = ("tokens", "length", "vocabulary", "vectors", "next_token")
_COLUMNS = (
    *("label", "user", "coarse", "x", "drop", "one_hot", "shape", "test", "text", "continuous"),
    *_OF_TOKENS,
)
# Kind of data -> the flags that it uses
_USED = {
    "images": ("shape", "grey", "by_user", "by_domain", "test"),
    "sounds": ("by_user", "user_in_name", "seconds", "log_mel", "drop", "test"),
    "csv": _COLUMNS,
    "parquet": (*_COLUMNS, "grey"),
    "datasets": (*_COLUMNS, "grey"),
    "numpy": ("shape", "test", "continuous"),
    "leaf": _OF_TOKENS,
}
# The first of these patterns that matches in a folder determines its kind
_MARKS = (
    *(
        (f"{path}{mark}", "datasets")
        for path in ("", "*/")
        for mark in ("dataset_dict.json", "state.json", "train/state.json")
    ),
    ("train/*.json", "leaf"),
    ("*.npy", "numpy"),
    ("*.parquet", "parquet"),
    ("*/", "images"),
)


def import_data(
    path: str, name: str | None, kind: str | None, wanted: Wanted, folder: str | None, replace: bool
) -> Path:
    """Import a file or folder, and return the folder of the imported data.

    Args:
        path: the file or folder, or "hf:OWNER/NAME".
        name: of the data in specs; None: the name of `path`.
        kind: of the data, a key of READERS or "leaf"; None: as its files tell.
        wanted: the flags that say how it is read.
        folder: where the imported data are written; None: the first folder of data.
        replace: an earlier import of that name."""
    hub = is_hub_name(path)
    where = Path(path).expanduser()
    if not hub and not where.exists():
        raise DataError(f"{path}: there is no such file or folder")
    name = name or (path if hub else name_of(where))
    if not 0 < wanted.test_fraction < 1:
        raise SpecError(f"--test-fraction {wanted.test_fraction}: must be between 0 and 1")
    target = choose_target(name, folder, replace, path)
    if target.resolve() in (where.resolve(), *where.resolve().parents):
        raise DataError(
            f"{path}: is where the import would be written; choose another --name, or --dir"
        )
    kind = "datasets" if hub else kind or detect_kind(where)
    check_flags(kind, wanted)
    made = read_texts(name, where, kind, wanted) or importing_text.Imported(
        *read(name, where, kind, wanted), None
    )
    domains = sorted(folder.name for folder in find_domains(where)) if wanted.by_domain else None
    mapped.write(made.source, target, made.class_names, where.name, replace, made.tokens, domains)
    return target


def choose_target(name: str, folder: str | None, replace: bool, path: str = "") -> Path:
    """Return the folder that imported data of this name are written to; an error if the name is
    invalid or taken. `path`: a name that is always allowed."""
    if not _IMPORT_NAME.fullmatch(name) and name != path:
        raise SpecError(
            f'--name "{name}": a name begins with a letter or digit and has letters, digits, '
            '"_", "-", "+" and "."'
        )
    if name in SOURCES:
        raise SpecError(
            f'--name "{name}": a built-in data set has this name and would be used instead; '
            "choose another"
        )
    data_folder = Path(folder).expanduser() if folder else folders(None)[0]
    check_free(name, [data_folder], "what is imported; or choose another --name")
    target = data_folder / name
    if target.exists() and not replace:
        raise DataError(f"{target}: exists already; choose another --name, or give --replace")
    return target


def name_of(where: Path) -> str:
    """Return the default name of data from this file or folder."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", where.resolve().name.removesuffix(where.suffix)).lstrip(
        "_.+-"
    )


def check_flags(kind: str, wanted: Wanted) -> None:
    """Reject a flag that this kind of data does not use."""
    for field in dataclasses.fields(Wanted):
        if (
            field.name not in (*_USED[kind], "test_fraction")
            and getattr(wanted, field.name) != field.default
        ):
            raise SpecError(
                f"--{field.name.replace('_', '-')}: has no effect on an import of {kind}; "
                "leave it out"
            )
    importing_text.check_flags(wanted)


def detect_kind(where: Path) -> str:
    """Detect the kind of data in a file or folder from its name and contents."""
    if where.is_file():
        by_ending = {
            ".csv": "csv",
            ".tsv": "csv",
            ".gz": "csv",
            ".parquet": "parquet",
            ".npz": "numpy",
        }
        if where.suffix.lower() in by_ending:
            return by_ending[where.suffix.lower()]
        raise DataError(
            f"{where}: the kind of data is not clear from the name; give --kind {'|'.join(_USED)}"
        )
    for pattern, kind in _MARKS:
        if any(where.glob(pattern)):
            return "sounds" if kind == "images" and has_sounds(where) else kind
    raise DataError(f"{where}: no data of a known kind; give --kind {'|'.join(_USED)}")


def read_texts(name: str, where: Path, kind: str, wanted: Wanted) -> importing_text.Imported | None:
    """Import texts if `--text` names a column or LEAF's files hold them; None otherwise."""
    samples = leaf.read_parts(where) if kind == "leaf" else None
    if samples is not None and samples[0].x and leaf.is_text(samples[0].x[0]):
        parts, following = importing_text.read_leaf(where, samples)
        return importing_text.make_data_set(
            name, str(where), parts, following or wanted.next_token, wanted
        )
    if wanted.text is not None:
        for field in ("coarse", "x", "drop", "one_hot", "shape", "grey", "continuous"):
            if getattr(wanted, field):
                raise SpecError(
                    f"--{field.replace('_', '-')}: has no effect with --text; leave it out"
                )
        parts, following = importing_text.read_tables(
            read_with_test(READERS[kind][0], where, wanted), wanted
        )
        return importing_text.make_data_set(name, str(where), parts, following, wanted)
    if flags := [field for field in _OF_TOKENS if getattr(wanted, field)]:
        flag = f"--{flags[0].replace('_', '-')}"
        raise SpecError(
            f"{flag}: is for texts, and {where} is read as numbers; give --text COLUMN, or "
            "leave it out"
        )
    if samples is None:
        return None
    source = leaf.make_source(name, where, FileOptions(), samples)
    return importing_text.Imported(source, list(map(str, range(source.classes))), None)


def read_with_test(
    reader: Callable[[Path, Wanted], list[Any]], where: Path, wanted: Wanted
) -> list[Any]:
    """Read a path: the training part, and the test part if there is one or `--test` names it."""
    found = reader(where, wanted)
    if wanted.test is None:
        return found
    if len(found) > 1:
        raise SpecError(
            f"--test {wanted.test}: {where} has a test part already; leave one of the two out"
        )
    other = Path(wanted.test).expanduser()
    if not other.exists():
        raise DataError(f"--test {wanted.test}: there is no such file or folder")
    return [*found, reader(other, wanted)[0]]


def read(name: str, where: Path, kind: str, wanted: Wanted) -> tuple[Source, list[str]]:
    """Return the data set and the names of its classes."""
    if kind == "numpy" and where.is_file() and "x_test" in npz.list_arrays(where):
        source = npz.read(name, where)
        if source.user_train is not None and source.user_test is None:
            raise DataError(
                f"{where}: the training samples have users and the test samples have none; "
                "give both or none"
            )
        if wanted.shape or wanted.test:
            flag = "--shape" if wanted.shape else "--test"
            raise SpecError(
                f"{flag}: the training and test samples of {where} are used as they are; "
                "leave it out"
            )
        return source, list(map(str, range(source.classes)))
    reader, together = READERS[kind]
    return make_source(
        name,
        str(where),
        together(read_with_test(reader, where, wanted), wanted),
        wanted,
    )


def make_source(
    name: str, where: str, parts: list[Part], wanted: Wanted
) -> tuple[Source, list[str]]:
    """Make a Source and the names of its classes from the parts that were read: training, and test
    if there are two. Otherwise a share of each user's samples (without users: of each class)
    becomes the test part."""
    if wanted.continuous:
        parts = [part.as_numbers(where) for part in parts]
    train, test = parts if len(parts) > 1 else split_test(parts[0], wanted.test_fraction)
    names, (y_train, y_test) = number_classes(where, train, test)
    if len(y_train) + len(y_test) == 1:
        raise DataError(f"{where}: has a single sample; there is nothing to train and to test on")
    if not len(y_test):
        each = "class" if train.user is None else "user"
        line = (
            f"{where}: no test samples, because each {each} has few samples; give a larger "
            "--test-fraction, or --test"
        )
        warnings.warn(line, DataWarning, stacklevel=2)
    if y_train.ndim == 1 and names and len(unseen := np.setdiff1d(y_test, y_train)):
        line = (
            f"{where}: {len(unseen)} classes have test samples and no training samples, such as "
            f"{names[unseen[0]]}"
        )
        warnings.warn(line, DataWarning, stacklevel=2)
    named = {"x_train": train.x, "y_train": y_train, "x_test": test.x, "y_test": y_test}
    named |= number_users(where, train.user, test.user) | number_coarse(where, train, test)
    return arrays.source(name, where, named, len(names)), names


def read_numpy(path: Path, _: Wanted) -> list[Part]:
    """Return the parts of a folder with x_train.npy, y_train.npy, … or x.npy and y.npy, and
    user_train.npy or user.npy for users, y_coarse_train.npy or y_coarse.npy for coarse labels; or
    of an .npz file with arrays of these names."""
    held = npz.list_arrays(path) if path.is_file() else {file.stem for file in path.glob("*.npy")}
    sides = (
        [side for side in ("_train", "_test") if f"x{side}" in held] if "x_train" in held else [""]
    )
    if f"x{sides[0]}" not in held:
        raise DataError(
            f"{path}: must hold arrays x_train and y_train, or x and y; it has "
            f"{', '.join(sorted(held)) or 'none'}"
        )
    found = []
    for side in sides:
        x, y = f"x{side}", f"y{side}"
        user, coarse = f"user{side}", f"y_coarse{side}"
        if path.is_file():
            z = npz.load_arrays(path, (x, y), (user, coarse))
        else:
            z = {}
            for name in (x, y, *(each for each in (user, coarse) if each in held)):
                with parser_errors(
                    path / f"{name}.npy", then="; save plain numbers with numpy.save"
                ):
                    z[name] = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        for key in z:
            if z[key].shape[:1] != z[x].shape[:1]:
                raise DataError(
                    f"{path}: {x} has shape {list(z[x].shape)} and {key} "
                    f"{list(z[key].shape)}: one {key} per sample"
                )
        found.append(Part(z[x], z[y], z.get(user), coarse=z.get(coarse)))
    return found


def _reshape(parts: list[Part], wanted: Wanted) -> list[Part]:
    """Give the samples of all parts the shape of `--shape`."""
    if not wanted.shape:
        return parts
    found = reshape_samples("array x", [part.x for part in parts], wanted.shape)
    return [part._replace(x=x) for part, x in zip(parts, found, strict=True)]


READERS: dict[
    str, tuple[Callable[[Path, Wanted], list[Any]], Callable[[list[Any], Wanted], list[Part]]]
] = {
    "images": (read_images, lambda parts, _: parts),
    "sounds": (read_sounds, lambda parts, _: parts),
    "csv": (read_csv, make_parts),
    "parquet": (read_parquet, make_parts),
    "datasets": (read_saved, make_parts),
    "numpy": (read_numpy, _reshape),
}
"""Kind of data -> the function that reads a path, and the one that makes the parts of what it has
read: a list of training, then perhaps test."""
