"""`python -m cfljax.data import`: users' files (images, sounds, tables, LEAF, NumPy, Hugging Face) become imported data."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cfljax.data import SOURCES, arrays, leaf, mapped, npz
from cfljax.data.files import check_free, folders
from cfljax.data.importing_images import domains_of
from cfljax.data.importing_parts import OWNERS, coarse_labels, numbered, owners, split
from cfljax.data.importing_sounds import has_sounds
from cfljax.data.importing_text import Imported, of_leaf, of_tables
from cfljax.data.importing_text import assembled as texts_assembled
from cfljax.data.importing_text import check as check_numbers
from cfljax.data.parts import Part, Wanted
from cfljax.data.sources import FileOptions
from cfljax.errors import DataError, DataWarning, SpecError
from cfljax.types import Source

KINDS = ("images", "sounds", "csv", "parquet", "leaf", "numpy", "datasets")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


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
    if target.resolve() in (where.resolve(), *where.resolve().parents):
        raise DataError(f"{place}: lies where its import would go; choose another --name, or --dir")
    if target.exists() and not replace:
        raise DataError(f"{target}: exists already; choose another --name, or give --replace")
    kind = kind or kind_of(where)
    check_flags(kind, wanted)
    made = texts(name, where, kind, wanted)
    if made is not None:
        mapped.write(made.source, target, made.class_names, where.name, replace, made.tokens)
        return target
    source, class_names = read(name, where, kind, wanted)
    owners_names = sorted(folder.name for folder in domains_of(where)) if wanted.by_domain else None
    mapped.write(source, target, class_names, where.name, replace, owners=owners_names)
    return target


_OF_TOKENS = ("tokens", "length", "vocabulary", "vectors", "next_token")
_COLUMNS = ("label", "user", "coarse", "x", "drop", "one_hot", "shape", "test", "text", *_OF_TOKENS)
_USED = {
    "images": ("shape", "grey", "by_user", "by_domain", "test"),
    "sounds": ("by_user", "user_in_name", "seconds", "log_mel", "drop", "test"),
    "csv": _COLUMNS,
    "parquet": (*_COLUMNS, "grey"),
    "datasets": (*_COLUMNS, "grey"),
    "numpy": ("shape", "test"),
    "leaf": _OF_TOKENS,
}
"""The flags that each kind uses."""
_MARKS = (
    ("dataset_dict.json", "datasets"),
    ("state.json", "datasets"),
    ("train/state.json", "datasets"),
    ("*/dataset_dict.json", "datasets"),
    ("*/state.json", "datasets"),
    ("*/train/state.json", "datasets"),
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
    check_numbers(wanted)


def kind_of(where: Path) -> str:
    """The kind of data in a file or folder, from its name and contents."""
    if where.is_file():
        by_ending = {".csv": "csv", ".tsv": "csv", ".gz": "csv", ".parquet": "parquet", ".npz": "numpy"}
        if where.suffix.lower() in by_ending:
            return by_ending[where.suffix.lower()]
        raise DataError(f"{where}: the kind of data is not clear from the name; give --kind {'|'.join(KINDS)}")
    for pattern, kind in _MARKS:
        if any(where.glob(pattern)):
            return "sounds" if kind == "images" and has_sounds(where) else kind
    raise DataError(f"{where}: nothing in it can be imported; give --kind {'|'.join(KINDS)}")


def texts(name: str, where: Path, kind: str, wanted: Wanted) -> Imported | None:
    """The data set of texts, if `--text` names a column of them, and that of LEAF's files, which may hold texts."""
    samples = leaf.parts(where) if kind == "leaf" else None
    if samples is not None and samples[0].x and leaf.is_text(samples[0].x[0]):
        parts, following = of_leaf(where, samples)
        return texts_assembled(name, str(where), parts, following or wanted.next_token, wanted)
    if wanted.text is not None:
        from cfljax.data.importing_tables import KIND

        for field in ("coarse", "x", "drop", "one_hot", "shape", "grey"):
            if getattr(wanted, field):
                raise SpecError(f"--{field.replace('_', '-')}: has no effect with --text; leave it out")
        found = with_test(KIND[kind][0], where, wanted)
        parts, following = of_tables(found, wanted)
        return texts_assembled(name, str(where), parts, following, wanted)
    flags = [field for field in _OF_TOKENS if getattr(wanted, field)]
    if flags:
        raise SpecError(
            f"--{flags[0].replace('_', '-')}: is for texts, and {where} is read as numbers; give --text COLUMN, or leave it out"
        )
    if samples is None:
        return None
    source = leaf.of_parts(name, where, FileOptions(), samples)
    return Imported(source, list(map(str, range(source.classes))), None)


def with_test(reader: Callable[[Path, Wanted], list[Any]], where: Path, wanted: Wanted) -> list[Any]:
    """What the reader finds in a place: the training part, and the test part if there is one, or if `--test` says where it is."""
    found = reader(where, wanted)
    if wanted.test is None:
        return found
    if len(found) > 1:
        raise SpecError(f"--test {wanted.test}: {where} has a test part already; leave one of the two out")
    other = Path(wanted.test).expanduser()
    if not other.exists():
        raise DataError(f"--test {wanted.test}: there is no such file or folder")
    return [*found, reader(other, wanted)[0]]


def read(name: str, where: Path, kind: str, wanted: Wanted) -> tuple[Source, list[str]]:
    """(The data set, the names of its classes.)"""
    check_flags(kind, wanted)
    if kind == "numpy" and where.is_file() and "x_test" in npz.names(where):
        source = npz.read(name, where)
        if source.user_train is not None and source.user_test is None:
            raise DataError(f"{where}: {OWNERS.format('training', 'test')}")
        if wanted.shape or wanted.test:
            flag = "--shape" if wanted.shape else "--test"
            raise SpecError(f"{flag}: the training and test samples of {where} are used as they are; leave it out")
        return source, list(map(str, range(source.classes)))
    from cfljax.data.importing_tables import KIND

    reader, together = KIND[kind]
    found = with_test(reader, where, wanted)
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
    named |= owners(where, train.user, test.user) | coarse_labels(train, test)
    return arrays.source(name, where, named, len(names)), names
