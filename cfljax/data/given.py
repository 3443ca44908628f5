"""Data as a program holds them: arrays, data frames and data sets of Hugging Face's `datasets`
become a data set that a spec can name. They are read as files with the same contents are.

The data set is registered under a name of its contents, and stays so as long as the process lives:
predictions may be asked for later.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cfljax.data import SOURCES, arrays, importing_text, mapped
from cfljax.data.importing import choose_target, make_source
from cfljax.data.importing_columns import make_parts, reshape_samples
from cfljax.data.importing_tables import Table as Columns
from cfljax.data.importing_tables import choose_splits, concatenate_datasets
from cfljax.data.importing_text import Imported
from cfljax.data.names import pack_integers
from cfljax.data.parts import Part, Wanted
from cfljax.errors import CfljaxError, DataError, SpecError, suggest
from cfljax.registry.checksums import hash_data_set
from cfljax.registry.entries import Origin, load_as
from cfljax.registry.options import Table, Value
from cfljax.types import Source

WHERE = "data"
"""What messages call what was given."""
FORMS = (
    "a name, a table, arrays (x, y) or (x, y, user), a dict of arrays, a data frame or a "
    "datasets.Dataset"
)
_ARRAYS = ("x", "y", "user", "y_coarse")
_MORE_ARRAYS = ("population_train", "population_test", "table")
_OF_FOLDERS = ("by_user", "by_domain", "user_in_name", "seconds", "log_mel", "test")
_KNOWN = {
    *_ARRAYS,
    *(f"{name}_{side}" for name in _ARRAYS for side in ("train", "test")),
    *_MORE_ARRAYS,
}
OF_FRAMES = tuple(f.name for f in dataclasses.fields(Wanted) if f.name not in _OF_FOLDERS)
"""Arguments that say how a data frame is read: the flags of `cfljax data import` that are about
columns."""
OF_ARRAYS = ("shape", "test_fraction", "continuous")
OF_FILES = tuple(field.name for field in dataclasses.fields(Wanted))


def is_frame(value: object) -> bool:
    """Return whether this is a table with named columns: a data frame of pandas or Polars, a table
    of Arrow, a `datasets.Dataset`, or a `datasets.DatasetDict`."""
    columns = hasattr(value, "columns") or hasattr(value, "column_names")
    readable = ("with_format", "__arrow_c_stream__", "__dataframe__")
    return columns and any(hasattr(value, name) for name in readable)


def is_given(data: object) -> bool:
    """Return whether `data` holds samples itself, and is no name or table of a spec."""
    if isinstance(data, Mapping):
        holds = any(is_frame(value) or _is_array(value) for value in data.values())
        return holds or {"x", "y"} <= data.keys() or {"x_train", "y_train"} <= data.keys()
    return isinstance(data, tuple) or is_frame(data) or _is_array(data)


def _is_array(value: object) -> bool:
    return bool(getattr(value, "ndim", 0))


class Given(NamedTuple):
    """A data set that was given, and the options of a spec's `data` that stood beside it."""

    imported: Imported
    options: Table


def register(data: object, **columns: Value) -> Table:
    """Register the data, and return the table of a spec that uses them. Unless options beside the
    arrays say otherwise, their users are the clients, or clients with label skew are drawn.

    Args:
        data: what `is_given`.
        columns: how a data frame is read: `label`, `user`, …"""
    given = read("arrays", data, columns)
    source = given.imported.source
    checksum = hash_data_set(source)
    name = str(given.options.get("name", f"arrays-{checksum[:8]}"))
    if SOURCES.is_built_in(name):
        raise SpecError(f'data: name = "{name}": a built-in data set has this name; choose another')
    known = SOURCES.origin(name) if name in SOURCES else None
    if known is None or known.code != checksum:
        # The program may go on to change its own arrays
        kept = _copy(source)
        with load_as(Origin(checksum)):
            SOURCES.add(name, lambda options, rng: kept)  # noqa: ARG005
    return lay_options(suggest_table(source), given.options) | {"name": name}


def import_given(
    name: str | None, data: object, columns: Table, folder: str | None, replace: bool
) -> tuple[Path, Table]:
    """Write data that were given to a folder of data, as an import of files does; return the
    folder, and the options that stood beside the data.

    Args:
        name, folder, replace: as for `importing.import_data`.
        data, columns: as for `read`."""
    if isinstance(data, Mapping) and name is None:
        name = data.get("name")
    known = need_name(name)
    with name_arguments():
        target = choose_target(known, folder, replace)
        imported, options = read(known, data, columns)
        mapped.write(
            imported.source, target, imported.class_names, "Python", replace, imported.tokens
        )
    return target, {key: value for key, value in options.items() if key != "name"}


def need_name(name: object) -> str:
    """Return the name of an import; a SpecError if there is none."""
    if not isinstance(name, str) or not name:
        raise SpecError('name: give the data a name, as in name="visits"')
    return name


def _copy(source: Source) -> Source:
    held = {name: value for name, value in source._asdict().items() if _is_array(value)}
    return source._replace(**{name: value.copy() for name, value in held.items()})


def suggest_table(source: Source, by_domain: bool = False) -> Table:
    """Return the table of a spec that uses the data: their users are the clients, else clients
    with label skew are drawn."""
    has_classes = source.y_train.ndim == 1 and source.y_train.dtype.kind != "f"
    drawn = {
        "partition": "dirichlet" if has_classes else "iid",
        "clients": max(2, min(20, len(source.y_train) // 10)),
    }
    owned = {"partition": "domains" if by_domain else "user"}
    table = {"name": source.name} | (drawn if source.user_train is None else owned)
    # The columns of a table have different units, so that one scale for all would hide most
    in_columns = source.x_train.ndim == 2 and source.x_train.dtype == "float32"
    return table | ({"normalise": "pixel"} if in_columns else {})


def lay_options(suggested: Table, options: Table) -> Table:
    """Lay options over a suggested table; with another partition it decides the clients, too."""
    kept = dict(suggested)
    if "partition" in options:
        kept = {k: v for k, v in kept.items() if k not in ("partition", "clients")}
    return kept | options


def read(name: str, data: object, columns: Table) -> Given:
    """Read data that were given.

    Args:
        name: of the data set.
        data: what `is_given`: arrays, a frame, or a dict of these and of options of `data`.
        columns: further arguments of the kind that a dict may hold: `label`, `shape`, …"""
    with name_arguments():
        if is_frame(data):
            # A `datasets.DatasetDict` is a table with columns, too
            split = choose_splits(WHERE, data)
            return Given(_read_frames(name, split, check_wanted(columns, OF_FRAMES)), {})
        held = _unpack(data) | columns
        frames = {key: value for key, value in held.items() if is_frame(value)}
        if frames:
            wanted, options = _split_options({k: v for k, v in held.items() if k not in frames})
            split = [frames["frame"]] if "frame" in frames else choose_splits(WHERE, frames)
            return Given(_read_frames(name, split, check_wanted(wanted, OF_FRAMES)), options)
        named = {key: value for key, value in held.items() if key in _KNOWN}
        wanted, options = _split_options({k: v for k, v in held.items() if k not in named})
        for key, value in options.items():
            if _is_array(value):
                raise DataError(f"data: {key} is no array of a data set{suggest(key, _KNOWN)}")
        return Given(_read_arrays(name, named, check_wanted(wanted, OF_ARRAYS)), options)


def _unpack(data: object) -> Table:
    """Return arrays by their names."""
    if isinstance(data, Mapping):
        return dict(data)
    parts = data if isinstance(data, tuple) else ()
    if len(parts) == 2 and all(_is_pair(part) for part in parts):
        sides = zip(("train", "test"), parts, strict=True)
        return {
            f"{name}_{side}": value
            for side, part in sides
            for name, value in zip(_ARRAYS, part, strict=False)
        }
    if len(parts) in (2, 3):
        return dict(zip(_ARRAYS, parts, strict=False))
    shown = f"a tuple of {len(parts)}" if isinstance(data, tuple) else type(data).__name__
    raise SpecError(
        f"data: must be {FORMS}, or ((x_train, y_train), (x_test, y_test)), not {shown}"
    )


def _is_pair(part: object) -> bool:
    """Return whether this is (x, y) or (x, y, user) of one side, and no list of samples."""
    return isinstance(part, list | tuple) and len(part) in (2, 3) and all(map(_is_array, part))


def _split_options(held: Table) -> tuple[Table, Table]:
    """Split what stands beside arrays into how they are read, and options of a spec's `data`."""
    wanted = {key: value for key, value in held.items() if key in OF_FRAMES}
    return wanted, {key: value for key, value in held.items() if key not in wanted}


def check_wanted(wanted: Table, used: Collection[str] = OF_FILES) -> Wanted:
    """Make the flags of an import; a text stands for a list of one."""
    for key in wanted:
        if key not in used:
            raise SpecError(f"data: {key} is not used here; leave it out{suggest(key, used)}")
    lists = {field.name for field in dataclasses.fields(Wanted) if field.default == ()}
    made: dict[str, Any] = {}
    for key, value in wanted.items():
        several = value if isinstance(value, list | tuple) else (value,)
        made[key] = tuple(several) if key in lists else value
    found = Wanted(**made)
    if not 0 < found.test_fraction < 1:
        raise SpecError(f"test_fraction = {found.test_fraction}: must be between 0 and 1")
    return found


def _read_frames(name: str, frames: list[Any], wanted: Wanted) -> Imported:
    """Read frames (training, perhaps test) as the tables of files are read."""
    tables = [_to_columns(frame) for frame in frames]
    if wanted.text is not None:
        parts, following = importing_text.read_tables(tables, wanted)
        return importing_text.make_data_set(name, WHERE, parts, following, wanted)
    importing_text.check_flags(wanted)
    parts = make_parts(tables, wanted)
    return Imported(*make_source(name, WHERE, parts, wanted), None)


def _to_columns(frame: Any) -> Columns:
    """Return a frame as a table of Arrow."""
    import pandas as pd
    import pyarrow as arrow

    if hasattr(frame, "with_format") and hasattr(frame, "features"):
        if not hasattr(frame, "__len__"):
            raise DataError(
                "data: is a stream, and all samples are needed at once; load it without "
                "streaming=True"
            )
        return concatenate_datasets(WHERE, {None: frame})
    try:
        if not isinstance(frame, pd.DataFrame):
            return Columns(WHERE, arrow.table(frame))
        plain = frame.rename(columns=str)
        coded = plain.select_dtypes("category")
        for name in coded:
            plain[name] = coded[name].astype(coded[name].cat.categories.dtype)
        return Columns(WHERE, arrow.Table.from_pandas(plain, preserve_index=False))
    except (arrow.ArrowException, TypeError, ValueError) as error:
        why = str(error).partition("\n")[0][:200]
        raise DataError(
            f"data: cannot be read as a table ({why}); give arrays, as in data=(x, y)"
        ) from error


def _read_arrays(name: str, named: Table, wanted: Wanted) -> Imported:
    """Read arrays by the names that they have in an `.npz` file."""
    side = "_train" if "x_train" in named or "y_train" in named else ""
    for key in (f"x{side}", f"y{side}", *(("y_test",) if "x_test" in named else ())):
        if key not in named:
            raise DataError(f"data: has no {key}; it has {', '.join(sorted(named))}")
    held = {
        key: _to_array(key, value, key.startswith(("y", "user", "population")))
        for key, value in named.items()
        if value is not None
    }
    sides = ("_train", "_test") if "x_test" in held else (side,)
    for each in sides:
        _check_lengths(held, each)
    if wanted.shape:
        shaped = reshape_samples(WHERE, [held[f"x{each}"] for each in sides], wanted.shape)
        held |= {f"x{each}": x for each, x in zip(sides, shaped, strict=True)}
    plain = not wanted.continuous
    if plain and len(sides) == 2 and all(held[f"y{each}"].dtype.kind in "biu" for each in sides):
        source = arrays.source(name, WHERE, held)
        return Imported(source, list(map(str, range(source.classes))), None)
    for key in held.keys() & set(_MORE_ARRAYS):
        raise DataError(f"data: {key} needs x_test and y_test, too, with integers as labels")
    parts = [
        Part(
            held[f"x{each}"],
            held[f"y{each}"],
            held.get(f"user{each}"),
            coarse=held.get(f"y_coarse{each}"),
        )
        for each in sides
    ]
    return Imported(*make_source(name, WHERE, parts, wanted), None)


def _to_array(key: str, value: object, names: bool) -> np.ndarray:
    """Convert an argument to numpy, from lists and from other libraries, too. `names`: it holds
    labels or users, which may be texts."""
    try:
        found = np.asarray(value)
    # Libraries raise what they like, as PyTorch does for tensors on a GPU
    except Exception as error:
        why = str(error).partition("\n")[0][:200]
        raise DataError(f"data: {key} cannot be converted to a numpy array ({why})") from error
    if found.dtype.kind == "O" and names:
        return _to_names(key, found)
    if found.dtype.kind not in ("biufU" if names else "biuf"):
        raise DataError(
            f"data: {key} is {found.dtype}: must be numbers in one shape, as numpy.stack(samples) "
            "makes them"
        )
    return found


def _to_names(key: str, found: np.ndarray) -> np.ndarray:
    """Convert objects to integers or texts."""
    cells = found.ravel().tolist()
    for row, cell in enumerate(cells):
        if not isinstance(cell, str | int) or isinstance(cell, bool) or cell == "":
            raise DataError(
                f"data: {key} holds {cell!r:.40} in sample {row}; must be integers or texts"
            )
    if all(isinstance(cell, int) for cell in cells):
        return pack_integers(cells).reshape(found.shape)
    return np.array(list(map(str, cells))).reshape(found.shape)


def _check_lengths(held: Mapping[str, np.ndarray], side: str) -> None:
    """Require one value of each array per sample."""
    x = f"x{side}"
    for name in _ARRAYS[1:]:
        key = f"{name}{side}"
        if key in held and held[key].shape[:1] != held[x].shape[:1]:
            raise DataError(
                f"data: {x} has shape {list(held[x].shape)} and {key} {list(held[key].shape)}: one "
                f"{key} per sample"
            )


@contextmanager
def name_arguments() -> Iterator[None]:
    """Let messages about the flags of `cfljax data import` name the arguments of a Python call:
    `--drop city` is `drop="city"`."""
    try:
        yield
    except CfljaxError as error:
        raise type(error)(_name_arguments(str(error))) from error


def _name_arguments(message: str) -> str:
    flags = "|".join(field.name.replace("_", "-") for field in dataclasses.fields(Wanted))
    flags += "|name|dir|kind|replace"
    switches = {"replace", *(f.name for f in dataclasses.fields(Wanted) if f.default is False)}

    def name(match: re.Match[str]) -> str:
        argument = {"dir": "folder"}.get(match[1], match[1].replace("-", "_"))
        given = match[2]
        if argument in switches:
            return f"{argument}=True{'' if given is None else f' {given}'}"
        if given is None:
            return f"{argument}="
        return f"{argument}={given}" if given.startswith('"') else f'{argument}="{given}"'

    # A word after a flag is its value if it is a column; small words of the sentence are not
    value = r'(?: (?!(?:if|to|the|unless|a|is|and|names|or|makes)\b)("[^"]+"|[^\s,;:.()]+))?'
    return re.sub(rf"--({flags})\b{value}", name, message)
