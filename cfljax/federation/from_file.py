"""The partition that a file says: which rows each client holds, or how many of each class."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.errors import DataError, SpecError
from cfljax.federation import common
from cfljax.federation.common import Common, Partition, Rng
from cfljax.federation.row_files import Dealt, read_rows
from cfljax.federation.row_formats import COUNTS, read_foreign
from cfljax.registry import Entry
from cfljax.registry.options import option, show
from cfljax.types import Parts, Source

_FORMATS = ("rows", "fl-bench", "pflib", "fedgwc", "ocfl-archive")
# What PFLlib's program holds out for testing, which its files do not say
_PFLLIB_HOLDOUT = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromFile(Common):
    """Options of `file`."""

    file: str = option(
        help="JSON, CSV or npz: the rows of each client; or another program's file", file=True
    )
    format: str = option(
        "rows", "rows, as cfljax data deal writes them; or whose file it is", choices=_FORMATS
    )
    names: str | None = option(
        None, "fedgwc: JSON file of the names of all images, in the order of the rows", file=True
    )
    clients: int = option(
        0, "number of clients that the file must have; 0: as many as it has", low=0
    )
    test: str = option(
        "own",
        '"own": the test rows of the file; without any, test samples distributed as the training '
        'samples; "global": the whole test set, as each client sees it',
        choices=("own", "global"),
    )
    holdout: float | None = option(
        None,
        "share of each client's rows for testing, if the file has no test rows; default: pflib "
        "0.25, else 0",
        low=0,
        high=0.9,
    )
    shared: bool = option(False, "a row may be held by several clients, or twice")

    def check(self, where: str) -> None:
        """Reject options that belong to another format."""
        if self.names is not None and self.format != "fedgwc":
            raise SpecError(
                f'{where}.names = {show(self.names)}: belongs to format = "fedgwc"; leave it out'
            )
        if self.shared and self.format in COUNTS:
            raise SpecError(
                f'{where}.shared = true: rows of format = "{self.format}" are drawn; leave it out'
            )

    @property
    def held_out(self) -> float:
        """The share of each client's rows for testing."""
        if self.holdout is None:
            return _PFLLIB_HOLDOUT if self.format == "pflib" else 0.0
        return self.holdout


def from_file(options: FromFile, source: Source, rng: Rng) -> Parts:
    """Give each client the rows that a file says, or as many of each class as it says."""
    file = Path(options.file).expanduser()
    if options.format == "rows":
        dealt = read_rows(file)
    else:
        dealt = read_foreign(options.format, file, options, source, rng)
    _check_clients(options, file, dealt)
    if options.format not in COUNTS:
        _check_rows(options, file, dealt, source)
    train, test = dealt.train, _choose_test(options, file, dealt, source, rng)
    if options.held_out:
        train, rest = common.hold_out_each(train, options.held_out, rng)
        test = common.join_test(rest, options.test)
    clients = len(train)
    return Parts(
        train,
        test,
        common.no_group(clients) if dealt.group is None else dealt.group,
        dealt.view,
        **_check_tables(file, dealt, source),
    )


def _check_clients(options: FromFile, file: Path, dealt: Dealt) -> None:
    """Reject a file with another number of clients, or with a client that has no rows."""
    clients = len(dealt.names)
    if options.clients not in (0, clients):
        raise SpecError(
            f"data.clients = {options.clients}: {file} has {clients} clients; give {clients}, or "
            "leave clients out"
        )
    # A division that was written down may have such clients; all may be tested on the same rows
    if dealt.samples is None and not isinstance(dealt.test, np.ndarray):
        tests = dealt.train if dealt.test is None else dealt.test
        for name, train, test in zip(dealt.names, dealt.train, tests, strict=True):
            if not len(train) and not len(test):
                raise DataError(f'{file}: client "{name}" has no rows; give it some, or remove it')
    if not any(map(len, dealt.train)):
        raise DataError(f"{file}: no client has training rows; give some client a list train")


def _check_rows(options: FromFile, file: Path, dealt: Dealt, source: Source) -> None:
    """Reject rows that the data set does not have, and rows that are held twice."""
    edge = len(source.y_train)
    total = edge + len(source.y_test)
    if dealt.samples not in (None, (edge, total - edge)):
        assert dealt.samples is not None
        raise DataError(
            f"{file}: was made for {dealt.samples[0]} training and {dealt.samples[1]} test "
            f"samples, and {source.name} has {edge} and {total - edge}; give the data set that it "
            "was made for"
        )
    tests = dealt.test if isinstance(dealt.test, list) else []
    shared_test = [dealt.test] if isinstance(dealt.test, np.ndarray) else []
    held = [
        (f'client "{name}"', rows)
        for part in (dealt.train, tests)
        for name, rows in zip(dealt.names, part, strict=False)
    ]
    for who, rows in [*held, *(("the test part", rows) for rows in shared_test)]:
        wrong = rows[(rows < 0) | (rows >= total)]
        if len(wrong):
            raise DataError(
                f"{file}: {who} holds row {wrong[0]}, and {source.name} has rows 0 to "
                f"{total - 1} ({edge} training samples, then {total - edge} test samples); correct "
                "the row, or give the data set that the file was made for"
            )
    if not options.shared:
        view = np.zeros(len(dealt.names), np.int32) if dealt.view is None else dealt.view
        _check_held_once(file, dealt.names, dealt.train, view)
        # Several clients may be tested on a sample
        _check_held_once(file, dealt.names, tests, np.arange(len(dealt.names)))
    trained = np.concatenate(dealt.train)
    tested = np.concatenate([*tests, *shared_test, trained[:0]])
    both = np.intersect1d(trained, tested)
    if len(both) and options.test == "own" and not options.shared:
        raise DataError(
            f"{file}: row {both[0]} is for training and for testing; rows of test samples are "
            f"numbered from {edge} on ({source.name} has {edge} training samples). Correct the "
            "file, or give data.shared = true if it is meant"
        )


def _check_held_once(
    file: Path, names: list[str], held: list[np.ndarray], apart: np.ndarray
) -> None:
    """Reject a row that is held twice by clients with the same number in `apart` i[C]: clients that
    see it through the same view."""
    if not held:
        return
    owner = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
    rows = np.concatenate(held)
    order = np.lexsort((owner, rows, apart[owner]))
    same = (np.diff(rows[order]) == 0) & (np.diff(apart[owner][order]) == 0)
    if same.any():
        at = int(np.argmax(same))
        first, second = (names[owner[order[i]]] for i in (at, at + 1))
        who = f'client "{first}" twice' if first == second else f'clients "{first}" and "{second}"'
        raise DataError(
            f"{file}: row {rows[order[at]]} is held by {who}; remove it once, or give data.shared "
            "= true if it is meant"
        )


def _choose_test(
    options: FromFile, file: Path, dealt: Dealt, source: Source, rng: Rng
) -> list[np.ndarray] | np.ndarray:
    """Choose what each client is tested on: rows of the file, or test samples that nobody trains
    on."""
    if dealt.test is not None and options.held_out:
        raise SpecError(
            f"data.holdout = {options.held_out:g}: {file} has test rows; leave holdout out"
        )
    if options.held_out:
        return []
    if dealt.test is not None and options.test == "own":
        return dealt.test
    edge = len(source.y_train)
    if any((rows >= edge).any() for rows in dealt.train):
        what = 'data.test = "global"' if options.test == "global" else "no test rows"
        raise SpecError(
            f"{file}: clients train on test samples (rows from {edge} on), and with {what} are "
            'tested on them; give each client test rows and data.test = "own", or '
            "data.holdout = 0.25"
        )
    return common.choose_test_part(options, dealt.train, source, rng)


def _check_tables(file: Path, dealt: Dealt, source: Source) -> dict[str, Any]:
    """Return the tables of views, which must fit the data set."""
    tables = dict(dealt.tables)
    by_group = tables.get("by_group")
    if by_group is not None and not by_group.size:
        # An empty list of a JSON file does not say for how many clients it is
        by_group = tables["by_group"] = by_group.reshape(0, len(dealt.names))
    if dealt.view is None:
        if any(name != "by_group" for name in tables):
            raise DataError(f"{file}: has tables of views, but no client has a view; give each one")
        return tables
    features = math.prod(source.x_train.shape[1:])
    # The shape after the axis of views, the lowest value and the one above the highest
    wanted = {
        "pixels": ((features,), -1, features),
        "labels": ((source.classes,), 0, source.classes),
        "gain": ((), -np.inf, np.inf),
        "offset": ((), -np.inf, np.inf),
        "by_label": ((source.classes,), 0, np.inf),
    }
    views = 1
    for name, table in tables.items():
        if name == "by_group":
            continue
        shape, low, above = wanted[name]
        views = len(table)
        fits = table.ndim > 0 and table.shape[1:] == shape
        if not fits or not ((table >= low) & (table < above)).all():
            raise DataError(
                f"{file}: the view table {name} does not fit {source.name}; give the data set that "
                "the file was made for"
            )
    if any(len(table) != views for name, table in tables.items() if name != "by_group"):
        raise DataError(f"{file}: its tables of views have different lengths; write it again")
    for name in ("view", "by_group", "by_label"):
        of = dealt.view if name == "view" else tables.get(name)
        if of is not None and of.size and not 0 <= of.min() <= of.max() < views:
            raise DataError(f"{file}: {name} names a view that is not there; it has {views}")
    if by_group is not None and by_group.shape[1:] != (len(dealt.names),):
        raise DataError(f"{file}: by_group must have a view for each group and client")
    return tables


FILE = Entry[Partition](FromFile, from_file)
