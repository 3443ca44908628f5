"""HOST. Who holds what, as other programs write it down: FL-bench and FedGWC which rows, PFLlib and
the archive of OCFL (Zuziak) how many of each class.

FL-bench pickles its `partition.pkl`: it is read as JSON, after a conversion by the user. PFLlib's
`train/0.npz` are pickled samples; its `config.json` says how many samples of each class a client
has. FedGWC names images; which row an image is says a file of names."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cfljax.data.bounded import parser_errors, read_json
from cfljax.errors import DataError, DataWarning
from cfljax.federation.common import Rng, deal, label_of, test_rows
from cfljax.federation.row_files import TO_JSON, Dealt, read_unique, refuse_pickle, to_rows
from cfljax.registry.options import Value
from cfljax.types import Source

_PFLLIB_COUNTS = "Size of samples for labels in clients"
# CIFAR's archive for Python, which users read in a process of their own
_WRITE_NAMES = (
    'python -c "import json; from pickle import load; read = lambda part: [name.decode() for name '
    "in load(open(part, 'rb'), encoding='bytes')[b'filenames']]; json.dump({part: read(part) "
    "for part in ('train', 'test')}, open('names.json', 'w'))\""
)


class Counts(NamedTuple):
    """How many samples of each class every client has."""

    names: list[str]
    # i64[C, classes]
    train: np.ndarray
    # i64[C, classes]; None: they are a share of the others
    test: np.ndarray | None
    # i64[classes] of the data set's test samples; None: the file does not say
    central: np.ndarray | None


def read_fl_bench(file: Path) -> Dealt:
    """Read FL-bench's partition, converted to JSON. Its rows number the training and test samples
    together, as ours do."""
    refuse_pickle(file)
    table = read_json(file, read_unique)
    clients = table.get("data_indices") if isinstance(table, dict) else None
    if not isinstance(clients, list) or not all(isinstance(each, dict) for each in clients):
        command = TO_JSON.format(old="partition.pkl", new=file.name)
        raise DataError(
            f"{file}: has no list data_indices of tables with train and test; make it from "
            f"FL-bench's partition with: {command}"
        )
    held: dict[str, list[np.ndarray]] = {"train": [], "test": [], "val": []}
    for client, each in enumerate(clients):
        for part, rows in held.items():
            rows.append(to_rows(each.get(part, []), f"{file}: client {client}, {part}"))
    if left := sum(map(len, held["val"])):
        warnings.warn(
            f"{file}: {left} rows for validation are left out, as FL-bench does not train on them; "
            "data.validation sets samples aside here",
            DataWarning,
            stacklevel=2,
        )
    return Dealt([str(client) for client in range(len(clients))], held["train"], held["test"])


def read_fedgwc(file: Path, names: str | None, source: Source) -> Dealt:
    """Read FedGWC's partition of CIFAR-100: names of images, and their labels. `names`: the file
    that lists the names of all images in the order of the rows."""
    table = read_json(file, read_unique)
    if names is None:
        raise DataError(
            f"{file}: names images; say which row each is with data.names, a file that CIFAR-100's "
            f"archive for Python gives in its folder with: {_WRITE_NAMES}"
        )
    listed = Path(names).expanduser()
    known = read_json(listed, read_unique)
    first = {"train": 0, "test": len(source.y_train)}
    rows_of: dict[str, dict[str, int]] = {}
    for part in first:
        images = known.get(part) if isinstance(known, dict) else None
        size = len(source.y_train if part == "train" else source.y_test)
        if not isinstance(images, list) or len(images) != size:
            raise DataError(f"{listed}: {part} must be a list of {size} names, one for each row")
        rows_of[part] = {str(name): first[part] + row for row, name in enumerate(images)}
        if len(rows_of[part]) < size:
            twice = Counter(map(str, images)).most_common(1)[0][0]
            raise DataError(f"{listed}: {part} has {twice} twice; names must differ")
    if not isinstance(table, dict):
        raise DataError(f"{file}: must be FedGWC's table of clients")
    clients = {name: each for name, each in table.items() if name != "server_imgs"}
    held: dict[str, list[np.ndarray]] = {part: [] for part in first}
    for name, each in clients.items():
        for part, rows in held.items():
            where = f'{file}: client "{name}", {part}'
            rows.append(_find_images(where, each, part, rows_of[part], source))
    return Dealt(list(clients), held["train"], held["test"])


def _find_images(
    where: str, client: Value, part: str, rows_of: dict[str, int], source: Source
) -> np.ndarray:
    """Return the rows of the images of a client; their labels must be those of the file."""
    images = client.get(part) if isinstance(client, dict) else None
    named = images.get("x") if isinstance(images, dict) else None
    labels = images.get("y") if isinstance(images, dict) else None
    if not isinstance(named, list) or not isinstance(labels, list) or len(named) != len(labels):
        raise DataError(f"{where}: must have x, names of images, and y, their labels")
    if missing := next((str(name) for name in named if str(name) not in rows_of), None):
        raise DataError(f"{where}: {missing[:60]} is not in the file of names")
    rows = np.array([rows_of[str(name)] for name in named], np.int64)
    differ = np.flatnonzero(label_of(source, rows) != to_rows(labels, f"{where}, y"))
    if len(differ):
        at = differ[0]
        raise DataError(
            f"{where}: {named[at]} has label {labels[at]}, and row {rows[at]} of {source.name} "
            "another; give the data set in the order of the file of names"
        )
    return rows


def read_pfllib(file: Path, classes: int) -> Counts:
    """Read PFLlib's config.json: lists of (label, number of samples), training and test samples
    together."""
    if file.suffix.lower() == ".npz":
        raise DataError(
            f"{file}: is pickled samples, which cfljax does not read; give PFLlib's config.json, "
            "whose numbers of samples are then drawn by data.seed, or convert the samples "
            '(docs/data.md, "PFLlib\'s samples")'
        )
    table = read_json(file, read_unique)
    clients = table.get(_PFLLIB_COUNTS) if isinstance(table, dict) else None
    if not isinstance(clients, list):
        raise DataError(f'{file}: has no list "{_PFLLIB_COUNTS}"; give PFLlib\'s config.json')
    counts = np.zeros((len(clients), classes), np.int64)
    for client, pairs in enumerate(clients):
        where = f"{file}: client {client}"
        if not isinstance(pairs, list):
            raise DataError(f"{where}: must be a list of [label, number of samples]")
        for pair in pairs:
            numbers = to_rows(pair, where)
            if len(numbers) != 2 or numbers.min() < 0:
                raise DataError(f"{where}: must be a list of [label, number of samples]")
            _check_label(where, int(numbers[0]), classes)
            counts[client, numbers[0]] += numbers[1]
    return Counts([str(client) for client in range(len(clients))], counts, None, None)


def read_ocfl_archive(file: Path, classes: int) -> Counts:
    """Read a blueprint of the archive of OCFL (Zuziak): a line for each client's train_set and
    test_set, with a column for each label."""
    with parser_errors(file, "as CSV"):
        lines = [line for line in csv.reader(io.StringIO(file.read_text("utf-8-sig"))) if line]
    header = lines[0] if lines else []
    if header[:3] != ["client_id", "partition", "total_samples"]:
        raise DataError(
            f"{file}: is no blueprint; its first line must begin with "
            "client_id,partition,total_samples"
        )
    held: dict[str, dict[str, np.ndarray]] = {}
    for number, cells in enumerate(lines[1:], start=2):
        where = f"{file}, line {number}"
        if len(cells) != len(header) or not all(cell.isdigit() for cell in cells[2:]):
            raise DataError(f"{where}: must have {len(header)} columns, numbers from the third on")
        counts = np.zeros(classes, np.int64)
        for label, cell in zip(header[3:], cells[3:], strict=True):
            _check_label(where, int(label) if label.isdigit() else classes, classes)
            counts[int(label)] = int(cell)
        held.setdefault(cells[0], {})[cells[1]] = counts
    central = held.pop("orchestrator", {}).get("central_test_set")
    for name, own in held.items():
        if set(own) != {"train_set", "test_set"}:
            raise DataError(f'{file}: client "{name}" needs two lines, train_set and test_set')
    empty = np.zeros((0, classes), np.int64)
    return Counts(
        list(held),
        np.stack([own["train_set"] for own in held.values()]) if held else empty,
        np.stack([own["test_set"] for own in held.values()]) if held else empty,
        central,
    )


def _check_label(where: str, label: int, classes: int) -> None:
    if label >= classes:
        raise DataError(
            f"{where}: label {label} is beyond the {classes} classes of the data set; give the "
            "data set that the file was made for"
        )


def draw_rows(counts: Counts, file: Path, source: Source, rng: Rng) -> Dealt:
    """Draw the rows of clients that have this many samples of each class."""
    if counts.test is None:
        # PFLlib joins training and test samples, and deals each at most once
        rows = np.arange(len(source.y_train) + len(source.y_test))
        have = np.bincount(label_of(source, rows), minlength=source.classes)
        _check_room(file, source, counts.train.sum(0), have)
        return Dealt(counts.names, deal(counts.train, rng.permutation(rows), source, rng))
    rows = np.arange(len(source.y_train))
    have = np.bincount(source.y_train, minlength=source.classes)
    _check_room(file, source, (counts.train + counts.test).max(0), have)
    if counts.central is not None:
        found = np.bincount(label_of(source, test_rows(source)), minlength=source.classes)
        if not np.array_equal(found, counts.central):
            raise DataError(
                f"{file}: was made for {int(counts.central.sum())} test samples with other labels "
                f"than those of {source.name}; give the data set that it was made for"
            )
    train, test = _draw_around(counts.train, counts.test, rng.permutation(rows), source, rng)
    return Dealt(counts.names, train, test)


def _check_room(file: Path, source: Source, wanted: np.ndarray, have: np.ndarray) -> None:
    """Reject numbers of samples i64[classes] that a data set does not have."""
    if np.any(wanted > have):
        label = int(np.argmax(wanted > have))
        raise DataError(
            f"{file}: asks for {wanted[label]} samples of class {label}, and {source.name} has "
            f"{have[label]}; give the data set that it was made for"
        )


def _draw_around(
    train: np.ndarray, test: np.ndarray, rows: np.ndarray, source: Source, rng: Rng
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw each client's training and test rows, all different. Clients take the rows of a class
    one after another, and begin again at its first when there are no more: OCFL's clusters overlap,
    and then several clients hold a sample."""
    labels = label_of(source, rows)
    nothing: list[np.ndarray] = [np.zeros(0, np.int64)]
    held = [(list(nothing), list(nothing)) for _ in train]
    for m in np.flatnonzero(np.bincount(labels, minlength=train.shape[1])):
        of_class = rows[labels == m]
        begin = 0
        for own, first, last in zip(held, train[:, m], test[:, m], strict=True):
            taken = of_class[(begin + np.arange(first + last)) % len(of_class)]
            own[0].append(taken[:first])
            own[1].append(taken[first:])
            begin += first + last
    mixed = [tuple(rng.permutation(np.concatenate(part)) for part in own) for own in held]
    return [own[0] for own in mixed], [own[1] for own in mixed]


COUNTS: dict[str, Callable[[Path, int], Counts]] = {
    "pflib": read_pfllib,
    "ocfl-archive": read_ocfl_archive,
}
"""The formats that say how many samples of each class a client has."""


def read_foreign(form: str, file: Path, options: Any, source: Source, rng: Rng) -> Dealt:
    """Read a file of another program; the rows of clients that have numbers of samples are
    drawn."""
    if form in COUNTS:
        return draw_rows(COUNTS[form](file, source.classes), file, source, rng)
    if form == "fl-bench":
        return read_fl_bench(file)
    return read_fedgwc(file, options.names, source)
