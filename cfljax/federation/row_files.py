"""HOST. Files that say which client holds which rows of a data set: JSON, CSV or npz, read and
written.

Rows are numbered as in `Parts`: the training samples from 0 on, then the test samples. Nothing is
ever unpickled, because a pickle may run any program when it is read."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cfljax.data.bounded import parser_errors, read_json
from cfljax.errors import DataError, SpecError, StoreError, suggest
from cfljax.federation.groups import VIEW_FIELDS
from cfljax.files import write_whole
from cfljax.files.npy import read_member
from cfljax.registry.options import Value
from cfljax.types import Parts, Source

PICKLES = (".pkl", ".pickle", ".pt", ".pth")
TO_JSON = (
    "python -c \"import json; from pickle import load; json.dump(load(open({old!r}, 'rb')), "
    "open({new!r}, 'w'), default=lambda a: a.tolist())\""
)
"""The command with which users convert a pickle that they trust, in a process of their own."""
_CLIENT_KEYS = ("train", "test", "group", "view")
_FILE_KEYS = ("clients", "samples", "test", "views")
TABLES = (*VIEW_FIELDS, "by_label", "by_group")
"""The tables of `Parts` that say what views change, of which labels, and who has which in which
group."""
_COLUMNS = ("client", "row", "part", "group")
# The prefix of arrays of an npz file that are not the rows of a client
_BESIDE = "parts/"


class Dealt(NamedTuple):
    """What a file says of the clients, in their order."""

    names: list[str]
    # i64[n_i] the training rows of each client
    train: list[np.ndarray]
    # i64[n_i] its test rows, or the rows that all are tested on; None: the file has none
    test: list[np.ndarray] | np.ndarray | None = None
    # i32[C] the true group of each client, −1 where it is unknown
    group: np.ndarray | None = None
    # i32[C] through which of the views below each client sees its samples; None: unchanged
    view: np.ndarray | None = None
    # The tables of Parts that say what a view changes, and `by_group`
    tables: Mapping[str, np.ndarray] = {}
    # How many training and test samples the data set had; None: the file does not say
    samples: tuple[int, int] | None = None


def to_rows(value: Value, where: str) -> np.ndarray:
    """Return the row numbers i64[n] in a list of a file; `where` is the list as messages name
    it."""
    try:
        rows = np.asarray(value)
    except ValueError:
        rows = np.zeros((0, 0))
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise DataError(f"{where}: must be a list of row numbers, as in [0, 5, 9]")
    return rows.astype(np.int64)


def refuse_pickle(file: Path) -> None:
    """Reject a pickle, and say how to convert it."""
    if file.suffix.lower() in PICKLES:
        command = TO_JSON.format(old=file.name, new=f"{file.stem}.json")
        raise DataError(
            f"{file}: a pickle may run any program when it is read, so cfljax reads none; if you "
            f"trust it, convert it with: {command}"
        )


def read_unique(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    """Make the object of a JSON file from its entries; a key that is there twice is an error."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'"{next(key for key in keys if keys.count(key) > 1)}" is there twice')
    return table


def read_rows(file: Path) -> Dealt:
    """Read a JSON, CSV or npz file of rows; a DataError says what is wrong with it."""
    refuse_pickle(file)
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise DataError(f"{file}: must be a .json, .csv or .npz file")
    dealt = read(file)
    if not dealt.names:
        raise DataError(f"{file}: has no clients; it must say which rows each client holds")
    return _sort_clients(dealt)


def _sort_clients(dealt: Dealt) -> Dealt:
    """Order clients by their numbers, if all names are numbers; else they stay in the order of the
    file."""
    if not all(name.isascii() and name.isdigit() for name in dealt.names):
        return dealt
    order = sorted(range(len(dealt.names)), key=lambda c: (int(dealt.names[c]), dealt.names[c]))
    test = dealt.test
    return dealt._replace(
        names=[dealt.names[c] for c in order],
        train=[dealt.train[c] for c in order],
        test=[test[c] for c in order] if isinstance(test, list) else test,
        group=None if dealt.group is None else dealt.group[order],
        view=None if dealt.view is None else dealt.view[order],
    )


def _from_json(file: Path) -> Dealt:
    """Read `{"CLIENT": [rows]}` or `{"CLIENT": {"train": [rows], "test": [rows]}}`; with more than
    rows, the clients are the table `clients`."""
    table = read_json(file, read_unique)
    if not isinstance(table, dict):
        raise DataError(f'{file}: must be {{"CLIENT": [rows], …}}')
    beside: dict[str, Value] = {}
    if isinstance(table.get("clients"), dict):
        beside = table
        table = table["clients"]
        for key in beside:
            if key not in _FILE_KEYS:
                raise DataError(f"{file}: {key} is unknown{suggest(key, _FILE_KEYS)}")
    clients = [_read_client(f'{file}: client "{name}"', held) for name, held in table.items()]
    tested: list[np.ndarray] | np.ndarray | None = None
    if "test" in beside:
        tested = to_rows(beside["test"], f"{file}: test")
    elif any("test" in each for each in clients):
        tested = [each.get("test", np.zeros(0, np.int64)) for each in clients]
    views = beside.get("views", {})
    if not isinstance(views, dict):
        raise DataError(f"{file}: views must be a table of {', '.join(TABLES)}")
    return Dealt(
        list(table),
        [each["train"] for each in clients],
        tested,
        _read_numbers(file, "group", clients, -1),
        _read_numbers(file, "view", clients, None),
        {name: _to_table(file, name, value) for name, value in views.items()},
        _read_samples(file, beside.get("samples")),
    )


def _read_client(where: str, held: Value) -> dict[str, Any]:
    """Return what an entry of the table `clients` says of a client, with the key `train`."""
    if not isinstance(held, dict):
        return {"train": to_rows(held, where)}
    for key in held:
        if key not in _CLIENT_KEYS:
            raise DataError(f"{where}: {key} is unknown{suggest(key, _CLIENT_KEYS)}")
    rows = {part: to_rows(held.get(part, []), f"{where}, {part}") for part in ("train", "test")}
    if "test" not in held:
        del rows["test"]
    for key in ("group", "view"):
        number = held.get(key, 0)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
            raise DataError(f"{where}, {key}: must be a whole number from 0 on")
    return rows | {key: held[key] for key in ("group", "view") if key in held}


def _read_numbers(
    file: Path, key: str, clients: list[dict[str, Any]], missing: int | None
) -> np.ndarray | None:
    """Return the group or view i32[C] of each client, None if no client has one. Where one has
    none, it is `missing`; None: all must have one."""
    having = [key in each for each in clients]
    if not any(having):
        return None
    if missing is None and not all(having):
        raise DataError(f"{file}: some clients have a {key}, and some have none; give each one")
    return np.array([each.get(key, missing) for each in clients], np.int32)


def _to_table(file: Path, name: str, value: Value) -> np.ndarray:
    """Return a table of views, of whole numbers or of floats; `from_file` checks its shape."""
    if name not in TABLES:
        raise DataError(f"{file}: views.{name} is unknown{suggest(name, TABLES)}")
    kind: type = np.float32 if name in ("gain", "offset") else np.int32
    with parser_errors(f"{file}: {name}"):
        table = np.asarray(value)
        if table.size and table.dtype.kind not in ("iuf" if kind is np.float32 else "iu"):
            raise ValueError(f"must be {'numbers' if kind is np.float32 else 'whole numbers'}")
        return table.astype(kind)


def _read_samples(file: Path, value: Value) -> tuple[int, int] | None:
    if value is None:
        return None
    numbers = to_rows(value, f"{file}: samples").tolist()
    if len(numbers) != 2:
        raise DataError(f"{file}: samples must be [training samples, test samples]")
    return numbers[0], numbers[1]


def _from_csv(file: Path) -> Dealt:
    """Read a line for each row: `client,row`, and optionally `part` (train or test) and `group`."""
    with parser_errors(file, "as CSV"):
        lines = list(csv.reader(io.StringIO(file.read_text("utf-8-sig"))))
    header = [name.strip() for name in lines[0]] if lines else []
    if not {"client", "row"} <= set(header) or not set(header) <= set(_COLUMNS):
        raise DataError(
            f"{file}: its first line must be client,row, or with more of {','.join(_COLUMNS)}"
        )
    held: dict[str, dict[str, list[int]]] = {}
    group: dict[str, int] = {}
    for number, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        where = f"{file}, line {number}"
        if len(cells) != len(header):
            raise DataError(f"{where}: has {len(cells)} columns, the first line {len(header)}")
        line = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        name, part = line["client"], line.get("part", "train")
        if part not in ("train", "test"):
            raise DataError(f'{where}: part = "{part[:40]}": must be train or test')
        own = held.setdefault(name, {"train": [], "test": []})
        own[part].append(_to_int(line["row"], where, "row"))
        if line.get("group"):
            given = _to_int(line["group"], where, "group")
            if group.setdefault(name, given) != given:
                raise DataError(f'{where}: client "{name}" has two groups; give one')
    tested = any(own["test"] for own in held.values()) or None
    groups = np.array([group.get(name, -1) for name in held], np.int32)
    return Dealt(
        list(held),
        [np.array(own["train"], np.int64) for own in held.values()],
        tested and [np.array(own["test"], np.int64) for own in held.values()],
        groups if group else None,
    )


def _to_int(cell: str, where: str, name: str) -> int:
    """Return a whole number from 0 on in a cell of a CSV file."""
    if not (cell.isascii() and cell.isdigit() and len(cell) < 16):
        raise DataError(f'{where}: {name} = "{cell[:40]}": must be a whole number from 0 on')
    return int(cell)


def _from_npz(file: Path) -> Dealt:
    """Read an array of rows for each client, CLIENT or CLIENT/train and CLIENT/test, and arrays
    `parts/…` of what `Parts` has besides."""
    known = {f"{_BESIDE}{name}": name for name in ("samples", "test", "group", "view", *TABLES)}
    held: dict[str, dict[str, np.ndarray]] = {}
    beside: dict[str, np.ndarray] = {}
    with parser_errors(file, "as an npz file"), zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            array = member.removesuffix(".npy")
            with parser_errors(f"{file}: {array}"):
                values = read_member(archive, array, "iuf" if array in known else "iu")
            if array in known:
                beside[known[array]] = values
                continue
            client, _, part = array.rpartition("/")
            if part not in ("train", "test") or not client:
                client, part = array, "train"
            own = held.setdefault(client, {})
            if part in own:
                raise DataError(f'{file}: client "{client}" has two arrays {part}; give one')
            own[part] = to_rows(values, f"{file}: {array}")
    empty = np.zeros(0, np.int64)
    tested: list[np.ndarray] | np.ndarray | None = beside.get("test")
    if tested is None and any("test" in own for own in held.values()):
        tested = [own.get("test", empty) for own in held.values()]
    numbers = {key: beside.get(key) for key in ("group", "view")}
    for key, each in numbers.items():
        if each is not None and (each.shape != (len(held),) or each.dtype.kind not in "iu"):
            raise DataError(f"{file}: {_BESIDE}{key} must be a whole number for each client")
    return Dealt(
        list(held),
        [own.get("train", empty) for own in held.values()],
        tested,
        None if numbers["group"] is None else numbers["group"].astype(np.int32),
        None if numbers["view"] is None else numbers["view"].astype(np.int32),
        {name: _to_table(file, name, beside[name]) for name in TABLES if name in beside},
        _read_samples(file, beside.get("samples")),
    )


_READERS: dict[str, Callable[[Path], Dealt]] = {
    ".json": _from_json,
    ".csv": _from_csv,
    ".npz": _from_npz,
}


def write_rows(file: Path, parts: Parts, source: Source) -> None:
    """Write who holds which rows of `source`, so that `read_rows` gives the same parts again."""
    write = _WRITERS.get(file.suffix.lower())
    if write is None:
        raise SpecError(f"--out {file}: must end in .json, .csv or .npz")
    if parts.source is not None:
        raise SpecError(
            f"--out {file}: this division makes new samples (corrupted images, or copies), which a "
            "file of rows cannot hold; leave the view out here, and add it to data.views beside "
            'partition = "file"'
        )
    try:
        write(file, parts, (len(source.y_train), len(source.y_test)))
    except OSError as e:
        raise StoreError(f"--out {file}: cannot be written ({e.strerror or e})") from e


def _list_tables(parts: Parts) -> dict[str, np.ndarray]:
    return {name: table for name in TABLES if (table := getattr(parts, name)) is not None}


def _to_json(file: Path, parts: Parts, samples: tuple[int, int]) -> None:
    """Write a line for each client."""
    beside: dict[str, Value] = {"samples": list(samples)}
    if isinstance(parts.test, np.ndarray):
        beside["test"] = parts.test.tolist()
    if tables := _list_tables(parts):
        beside["views"] = {name: table.tolist() for name, table in tables.items()}
    lines = []
    for client, train in enumerate(parts.train):
        own: dict[str, Value] = {"train": np.asarray(train).tolist()}
        if not isinstance(parts.test, np.ndarray):
            own["test"] = np.asarray(parts.test[client]).tolist()
        if parts.group[client] >= 0:
            own["group"] = int(parts.group[client])
        if parts.view is not None:
            own["view"] = int(parts.view[client])
        lines.append(f'"{client}": {json.dumps(own)}')
    head = "".join(f'"{key}": {json.dumps(value)},\n' for key, value in beside.items())
    clients = ",\n".join(lines)
    with write_whole(file) as part:
        part.write_text(f'{{{head}"clients": {{\n{clients}\n}}}}\n', "utf-8")


def _to_csv(file: Path, parts: Parts, _: tuple[int, int]) -> None:
    """Write a line for each row."""
    what = ""
    if parts.view is not None:
        what = "views"
    elif isinstance(parts.test, np.ndarray):
        what = "a test part that all clients share"
    elif not all(len(a) + len(b) for a, b in zip(parts.train, parts.test, strict=True)):
        what = "clients without rows"
    if what or isinstance(parts.test, np.ndarray):
        raise SpecError(f"--out {file}: CSV has no place for {what}; write a .json or .npz file")
    with write_whole(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        lines.writerow(_COLUMNS)
        for client, rows in enumerate(zip(parts.train, parts.test, strict=True)):
            group = parts.group[client] if parts.group[client] >= 0 else ""
            for name, held in zip(("train", "test"), rows, strict=True):
                lines.writerows((client, row, name, group) for row in np.asarray(held).tolist())


def _to_npz(file: Path, parts: Parts, samples: tuple[int, int]) -> None:
    """Write two arrays for each client, and one for each of what `Parts` has besides."""
    arrays: dict[str, Any] = {f"{c}/train": rows for c, rows in enumerate(parts.train)}
    beside: dict[str, Any] = {"samples": np.array(samples), "group": parts.group}
    beside |= _list_tables(parts) | ({} if parts.view is None else {"view": parts.view})
    if isinstance(parts.test, np.ndarray):
        beside["test"] = parts.test
    else:
        arrays |= {f"{c}/test": rows for c, rows in enumerate(parts.test)}
    arrays |= {f"{_BESIDE}{name}": value for name, value in beside.items()}
    with write_whole(file) as part, part.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


_WRITERS: dict[str, Callable[[Path, Parts, tuple[int, int]], None]] = {
    ".json": _to_json,
    ".csv": _to_csv,
    ".npz": _to_npz,
}
