"""Enters: TOML files. Leaves: Published, one per table or figure: its numbers, the runs that measure them, and its claims.

    paper = "FedGroup (Duan et al. 2021)"
    title = "Table 3, MNIST-MCLR"
    sweep = "FedGroup Table 3, MNIST-MCLR"     # the name of the sweep whose runs these are
    spec = "fedgroup_table3_mnist_mclr.toml"
    take = "accuracy_max"                      # or a table, see cfljax.report.replication.quantity; a cell may override it
    unit = "%"                                 # published in per cent; "" as it is
    grid = false                               # true: cells are named "column: row" and shown as such a table
    notes = "Written by hand."
    cells = [{ name = "FedAvg", where = { label = "fedavg", "train.lr" = 0.03 }, published = 89.8, spread = 0.3 }]

    [[claim]]
    text = "FG-EDC beats FeSEM by 6.9 points"
    difference = ["FG-EDC", "FeSEM"]           # or one of the kinds of cfljax.report.replication.claims
    published = 6.9
    tolerance = 2.0
    why = "Written by hand, where it does not reproduce."
    ours = false                               # true: a claim that no paper makes, which the overview does not count

A folder of them may hold `page.toml`: `title`, `text`, and `files`, the order in which they are shown.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from cfljax.config.read import one_line
from cfljax.config.toml import load
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, show
from cfljax.report.replication.quantity import Quantity, read_quantity

PAGE = "page.toml"
T = TypeVar("T")
KINDS = ("within", "difference", "reduction", "order", "at_least")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of a published table, or a number of ours without a published one."""

    name: str
    where: Table
    """What selects its runs: `method`, `label` or the dotted name of an option -> value."""
    take: Quantity
    published: float | None = None
    spread: float | None = None
    labels_of: Table | None = None
    """What selects the run whose clusters `take.cluster` means, among those with the same seed and data."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper about cells of its table."""

    text: str
    kind: str
    cells: tuple[str, ...]
    published: float | None = None
    tolerance: float = 1.0
    why: str = ""
    ours: bool = False
    """True for a claim that no paper makes."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A published table or figure."""

    file: str
    paper: str
    title: str
    sweep: str
    spec: str
    unit: str
    grid: bool
    """Whether cells are named `column: row`, and shown as a table of that shape."""
    notes: str
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]

    @property
    def scale(self) -> float:
        """The factor from fractions to the published unit."""
        return 100.0 if self.unit == "%" else 1.0

    def cell(self, name: str) -> Cell:
        """The cell of that name."""
        return next(cell for cell in self.cells if cell.name == name)


@dataclasses.dataclass(frozen=True)
class Page:
    """The title and the text above the tables."""

    title: str
    text: str


def read_published(paths: Sequence[str | os.PathLike[str]]) -> tuple[Page, list[Published]]:
    """Read these files, and the files in these folders, each once; those of a folder in the order of its page.toml."""
    page, files = Page("Ours against published", ""), []
    for path in map(Path, paths):
        if path.is_dir():
            head, listed = _folder(path)
            page = head or page
            files += listed
        else:
            files.append(path)
    return page, [_checked(path, _file) for path in dict.fromkeys(files)]


def _folder(folder: Path) -> tuple[Page | None, list[Path]]:
    files = {path.name: path for path in sorted(folder.glob("*.toml"))}
    head = files.pop(PAGE, None)
    if not files:
        raise SpecError(f"{folder}: holds no file of published numbers (*.toml)")
    if head is None:
        return None, list(files.values())

    def read(path: Path) -> tuple[Page, list[Path]]:
        table = load(path)
        _known(table, ("title", "text", "files"), "")
        order = table.get("files", list(files))
        for name in order if isinstance(order, list) else [order]:
            if name not in files:
                raise SpecError(f"files: {show(name)}: there is no such file" + suggest(str(name), files))
        if missing := [name for name in files if name not in order]:
            raise SpecError(f"files: {missing[0]} is not listed")
        return Page(_text(table, "title", ""), _text(table, "text", "")), [files[name] for name in order]

    return _checked(head, read)


def _checked(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` returns; the file is named in its errors."""
    try:
        return read(path)
    except SpecError as error:
        raise SpecError(one_line(str(error), str(path), ())) from None


def _file(path: Path) -> Published:
    table = load(path)
    _known(table, ("paper", "title", "sweep", "spec", "take", "unit", "grid", "notes", "cells", "claim"), "")
    unit = table.get("unit", "%")
    if unit not in ("%", ""):
        raise SpecError(f'unit = {show(unit)}: must be "%" or ""')
    take = read_quantity(table.get("take", "accuracy_max"), "take")
    cells = tuple(_cell(c, f"cells[{i}]", take) for i, c in enumerate(_tables(table, "cells")))
    names = [cell.name for cell in cells]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"cells: two are named {show(name)}")
    claims = tuple(_claim(c, f"claim[{i}]", names) for i, c in enumerate(_tables(table, "claim")))
    without = {cell.name for cell in cells if cell.published is None}
    for i, claim in enumerate(claims):
        if claim.kind == "within" and without.issuperset(claim.cells):
            raise SpecError(f"claim[{i}].within: none of its cells has a published number")
    paper, title, sweep = (_text(table, key, "") for key in ("paper", "title", "sweep"))
    spec, notes, grid = str(table.get("spec", "")), str(table.get("notes", "")), bool(table.get("grid", False))
    return Published(path.name, paper, title, sweep, spec, unit, grid, notes, cells, claims)


def _cell(table: Table, where: str, take: Quantity) -> Cell:
    _known(table, ("name", "where", "take", "published", "spread", "labels_of"), where)
    chosen = table.get("where")
    if not isinstance(chosen, dict) or not chosen:
        raise SpecError(f'{where}.where: must be a table that selects runs, as in {{ label = "fedavg" }}')
    if "take" in table:
        take = read_quantity(table["take"], f"{where}.take")
    if take.cluster and not isinstance(table.get("labels_of"), dict):
        raise SpecError(f"{where}.labels_of: must be a table that selects the runs whose clusters are meant")
    published, spread = (_number(table, key, where) for key in ("published", "spread"))
    return Cell(_text(table, "name", where), chosen, take, published, spread, table.get("labels_of"))


def _claim(table: Table, where: str, names: list[str]) -> Claim:
    _known(table, ("text", "published", "tolerance", "why", "ours", *KINDS), where)
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        raise SpecError(f"{where}: give one of {', '.join(KINDS)}")
    kind = kinds[0]
    cells = names if table[kind] == "all" else table[kind]
    if not isinstance(cells, list) or not cells:
        raise SpecError(f"{where}.{kind} = {show(cells)}: must be a list of cells' names")
    for name in cells:
        if name not in names:
            raise SpecError(f"{where}.{kind}: {show(name)} is no cell" + suggest(str(name), names))
    if kind in ("difference", "reduction") and len(cells) != 2:
        raise SpecError(f"{where}.{kind}: needs two cells")
    if kind == "order" and len(cells) < 2:
        raise SpecError(f"{where}.{kind}: needs two cells or more")
    published = _number(table, "published", where)
    if kind == "reduction" and published is not None and not 0 < published <= 1:
        raise SpecError(f"{where}.published = {published:g}: a reduction is a fraction above 0")
    if kind == "at_least" and published is None:
        raise SpecError(f"{where}.published: missing")
    tolerance = _number(table, "tolerance", where)
    text, why, ours = _text(table, "text", where), str(table.get("why", "")), bool(table.get("ours", False))
    return Claim(text, kind, tuple(cells), published, 1.0 if tolerance is None else tolerance, why, ours)


def _tables(table: Table, key: str) -> list[Table]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise SpecError(f"{key} = {show(value)[:60]}: must be a list of tables")
    return value


def _known(table: Table, keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise SpecError(f"{where}{'.' if where else ''}{key}: there is no such key" + suggest(key, keys))


def _text(table: Table, key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{where}{'.' if where else ''}{key}: must be a string")
    return value


def _number(table: Table, key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError(f"{where}.{key} = {show(value)}: must be a number")
    return float(value)
