"""Enters: TOML files. Leaves: Published, one per table or figure: its numbers, the runs that
measure them, and its claims.

    paper = "FedGroup (Duan et al. 2021)" title = "Table 3, MNIST-MCLR" sweep = "FedGroup Table 3,
    MNIST-MCLR"     # the name of the sweep whose runs these are spec =
    "fedgroup_table3_mnist_mclr.toml" take = "accuracy_max"                      # or a table, see
    experiments.replication.quantity; a cell may override it unit = "%"
    # published in per cent; "" as it is grid = false                               # true: cells
    are named "column: row" and shown as such a table notes = "Written by hand." cells = [{ name =
    "FedAvg", where = { label = "fedavg", "train.lr" = 0.03 }, published = 89.8, spread = 0.3 }]

    [[claim]] text = "FG-EDC beats FeSEM by 6.9 points" difference = ["FG-EDC", "FeSEM"]           #
    or one of the kinds of experiments.replication.claims published = 6.9 tolerance = 2.0 why =
    "Written by hand, where it does not reproduce." ours = false                               #
    true: a claim that no paper makes, which the overview does not count search = "FedGroup's gain"
    # of claims with one name, tried in several settings, the overview counts the first setting =
    "He's start, lr 0.1"             # what tells it from those others up_to = false
    # true: the counted one of those is the best, and all of them must have been run small = ""
    # what its runs have less of than the paper's, where no flag says so void = ""
    # why no run could contradict it again = ""                                 # why its runs are
    to be made again main = false                               # true: among the few that the
    paper's own page shows panel = ["FG-EDC over FedAvg", "MNIST"]    # where the paper's figure has
    it: a part of it, and a row job = ""                                   # the job of todo.toml
    that would decide it; a file may have one for all its claims

    [[figure]] title = "Accuracy over rounds" history = "accuracy" curves = { "FedAvg" = { label =
    "fedavg" } }     # name -> what selects its runs points = { "FedAvg" = [[10, 78.5]] }
    # published points (round, number) of these curves

A folder of them may hold `page.toml`: `title`, `text`, `files` (the order in which they are shown),
and for each paper a `[[papers]]` with `name`, `file` (its page's name), `says` (what holds, in a
sentence) and `findings`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cfljax.config.read import one_line
from cfljax.config.toml import load
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, check, option, show
from experiments.replication.papers import Page, Paper, Phrase
from experiments.replication.quantity import Quantity, read_quantity

PAGE = "page.toml"
T = TypeVar("T")
KINDS = ("within", "difference", "reduction", "order", "at_least", "steadier")
DRAWN = ("within", "difference", "reduction")
"""Kinds of claims that a panel can show: of one cell, or of two."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of a published table, or a number of ours without a published one."""

    name: str
    where: Table
    """What selects its runs: `method`, `label` or the dotted name of an option -> value."""
    take: Quantity
    published: float | None = None
    spread: float | None = None
    aside: bool = False
    """True for a number that claims need and no table shows."""
    minus: str = ""
    """The name of a cell above it, whose number for the same draw is subtracted."""
    labels_of: Table | None = None
    """What selects the run whose clusters `take.cluster` means, among those with the same seed and
    data."""

    def check(self, where: str) -> None:
        """SpecError where something is empty or missing; `where` is the cell's key in the file."""
        _not_blank(f"{where}.name", self.name)
        if not self.where:
            raise SpecError(
                f'{where}.where: must be a table that selects runs, as in {{ label = "fedavg" }}'
            )
        if self.take.cluster and self.labels_of is None:
            raise SpecError(
                f"{where}.labels_of: must be a table that selects the runs whose clusters are meant"
            )


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
    search: str = ""
    """The name that it shares with other settings in which the same claim was tried."""
    setting: str = ""
    """What tells its setting from the others'."""
    counts: bool = False
    """True for the setting that the overview counts."""
    reason: str = ""
    """Why that one counts; written before its runs were made."""
    literal: bool = False
    """True where it is the paper's words as they stand, among readings of them."""
    up_to: bool = False
    """True where a paper says "up to": the best of the settings counts."""
    small: str = ""
    """What its runs have less of than the paper's, where no flag says so."""
    void: str = ""
    """Why no run could contradict it."""
    again: str = ""
    """Why its runs are to be made again."""
    main: bool = False
    """True for one of the few that the paper's own page shows."""
    panel: tuple[str, ...] = ()
    """The part of the paper's figure that shows it, and the name of its row there."""
    job: str = ""
    """The job of todo.toml that would decide it."""

    def check(self, where: str) -> None:
        """SpecError for a claim that nothing could decide; `where` is its key in the file."""
        _not_blank(f"{where}.text", self.text)
        if self.panel and (len(self.panel) != 2 or self.kind not in DRAWN or len(self.cells) > 2):
            raise SpecError(
                f"{where}.panel: needs a title and a row, and a claim of one number "
                f"({', '.join(DRAWN)})"
            )
        if self.counts and not (self.search and self.setting and self.reason):
            raise SpecError(f"{where}.counts: needs search, setting and reason")
        if self.kind in ("difference", "reduction", "steadier") and len(self.cells) != 2:
            raise SpecError(f"{where}.{self.kind}: needs two cells")
        if self.kind == "order" and len(self.cells) < 2:
            raise SpecError(f"{where}.order: needs two cells or more")
        if self.kind == "reduction" and self.published is not None and not 0 < self.published <= 1:
            raise SpecError(
                f"{where}.published = {self.published:g}: a reduction is a fraction above 0"
            )
        if self.kind == "at_least" and self.published is None:
            raise SpecError(f"{where}.published: missing")


@dataclasses.dataclass(frozen=True)
class Figure:
    """Curves of ours over rounds, and what was published of them."""

    title: str
    history: str
    curves: Table
    """Name of a curve -> what selects its runs."""
    points: Table | None = None
    """Name of a curve -> its published points, pairs of a round and a number."""

    def check(self, where: str) -> None:
        """SpecError for a curve without runs, or points of none; `where` is the figure's key in the
        file."""
        _not_blank(f"{where}.title", self.title)
        if not self.curves:
            raise SpecError(f"{where}.curves: must name curves and what selects their runs")
        for name in self.points or {}:
            if name not in self.curves:
                raise SpecError(
                    f"{where}.points: {show(name)} is no curve" + suggest(name, list(self.curves))
                )


@dataclasses.dataclass(frozen=True)
class Published:
    """A published table or figure."""

    file: str
    paper: str
    title: str
    sweep: str
    spec: str = ""
    unit: str = option("%", choices=("%", ""))
    grid: bool = False
    """Whether cells are named `column: row`, and shown as a table of that shape."""
    notes: str = ""
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    job: str = ""
    """The job of todo.toml that would decide its claims, but for those that name another."""
    also: tuple[str, ...] = ()
    """Names of other sweeps that have runs of its cells."""

    @property
    def scale(self) -> float:
        """The factor from fractions to the published unit."""
        return 100.0 if self.unit == "%" else 1.0

    def code(self, claim: Claim) -> str:
        """Return what a claim is called: its file and its place there, from 1."""
        return f"{self.file.removesuffix('.toml')} {self.claims.index(claim) + 1}"

    def cell(self, name: str) -> Cell:
        """Return the cell of that name."""
        return next(cell for cell in self.cells if cell.name == name)


def read_published(paths: Sequence[str | os.PathLike[str]]) -> tuple[Page, list[Published]]:
    """Read these files, and the files in these folders, each once; a folder's files in the order of
    its page.toml."""
    page, files = Page("Ours against published", ""), list[Path]()
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        listed = {file.name: file for file in sorted(path.glob("*.toml"))}
        head = listed.pop(PAGE, None)
        if not listed:
            raise SpecError(f"{path}: holds no file of published numbers (*.toml)")
        if head is not None:
            page = _check(head, partial(_read_page, names=list(listed)))
        files += listed.values() if head is None else [listed[name] for name in page.files]
    found = [
        _check(path, partial(_read_published, file=path.name)) for path in dict.fromkeys(files)
    ]
    _check_settings(found)
    return page, found


def _check_settings(found: list[Published]) -> None:
    """SpecError unless one setting of each claim counts; all have what was published, and one
    tolerance."""
    tried: dict[tuple[str, str], list[tuple[str, Claim]]] = {}
    for each in found:
        for claim in each.claims:
            if claim.search and not claim.ours:
                tried.setdefault((each.paper, claim.search), []).append((each.file, claim))
    for (_, search), settings in tried.items():
        file, first = settings[0]
        number = sum(claim.counts for _, claim in settings)
        if len(settings) > 1 and number != 1 and not any(claim.up_to for _, claim in settings):
            raise SpecError(
                f"{file}: {show(search)}: {number} of its settings have counts = true; one must"
            )
        for other, claim in settings[1:]:
            if claim.tolerance != first.tolerance:
                raise SpecError(
                    f"{other}: {show(search)}: tolerance = {claim.tolerance:g}, where {file} has "
                    f"{first.tolerance:g}"
                )


def _check(path: Path, read: Callable[[Table], T]) -> T:
    """Return what `read` makes of the file's tables, and name the file in its errors."""
    try:
        return read(load(path))
    except SpecError as error:
        raise SpecError(one_line(str(error).removeprefix("."), str(path), ())) from None


def _read_page(table: Table, names: list[str]) -> Page:
    papers = tuple(
        _read_paper(paper, f"papers[{i}]") for i, paper in enumerate(_read_tables(table, "papers"))
    )
    page = dataclasses.replace(check(Page, {"files": names} | table, ""), papers=papers)
    _not_blank("title", page.title)
    _not_blank("text", page.text)
    for name in page.files:
        if name not in names:
            raise SpecError(f"files: {show(name)}: there is no such file" + suggest(name, names))
    if missing := [name for name in names if name not in page.files]:
        raise SpecError(f"files: {missing[0]} is not listed")
    return page


def _read_paper(table: Table, where: str) -> Paper:
    phrases: dict[str, Any] = {
        key: tuple(
            check(Phrase, phrase, f"{where}.{key}[{i}]")
            for i, phrase in enumerate(_read_tables(table, key))
        )
        for key in ("holds", "fails", "seen")
    }
    return dataclasses.replace(check(Paper, table, where), **phrases)


def _read_published(table: Table, file: str) -> Published:
    _check_known(table, ("take", "cells", "claim", "figure", *_list_fields(Published)))
    take = read_quantity(table.pop("take", "accuracy_max"), "take")
    cells = tuple(
        _read_cell(c, f"cells[{i}]", take) for i, c in enumerate(_read_tables(table, "cells"))
    )
    names = [cell.name for cell in cells]
    for i, name in enumerate(names):
        if names.count(name) > 1:
            raise SpecError(f"cells: two are named {show(name)}")
        if (minus := cells[i].minus) and minus not in names[:i]:
            raise SpecError(
                f"cells[{i}].minus: {show(minus)} is no cell above it" + suggest(minus, names)
            )
    job = {"job": table.get("job", "")}
    claims = tuple(
        _read_claim(job | c, f"claim[{i}]", names)
        for i, c in enumerate(_read_tables(table, "claim"))
    )
    without = {cell.name for cell in cells if cell.published is None}
    for i, claim in enumerate(claims):
        if claim.kind == "within" and without.issuperset(claim.cells):
            raise SpecError(f"claim[{i}].within: none of its cells has a published number")
    figures = tuple(
        check(Figure, f, f"figure[{i}]") for i, f in enumerate(_read_tables(table, "figure"))
    )
    published = check(Published, table | {"file": file}, "")
    for key in ("paper", "title", "sweep"):
        _not_blank(key, getattr(published, key))
    return dataclasses.replace(published, cells=cells, claims=claims, figures=figures)


def _read_cell(table: Table, where: str, take: Quantity) -> Cell:
    own = read_quantity(table["take"], f"{where}.take") if "take" in table else take
    return check(Cell, {"where": {}} | table | {"take": own}, where)


def _read_claim(table: Table, where: str, names: list[str]) -> Claim:
    _check_known(table, (*_list_fields(Claim), *KINDS), f"{where}.")
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        raise SpecError(f"{where}: give one of {', '.join(KINDS)}")
    kind = kinds[0]
    cells = table.pop(kind)
    cells = names if cells == "all" else cells
    if not isinstance(cells, list) or not cells:
        raise SpecError(f"{where}.{kind} = {show(cells)}: must be a list of cells' names")
    for name in cells:
        if name not in names:
            raise SpecError(f"{where}.{kind}: {show(name)} is no cell" + suggest(str(name), names))
    return check(Claim, table | {"kind": kind, "cells": cells}, where)


def _read_tables(table: Table, key: str) -> list[Table]:
    value = table.pop(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise SpecError(f"{key} = {show(value)[:60]}: must be a list of tables")
    return value


def _list_fields(kind: type) -> list[str]:
    """List the keys of a file that are the fields of a class, without fields that are made of
    others."""
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.name not in ("file", "cells", "claims", "figures", "kind")
    ]


def _check_known(table: Table, keys: Sequence[str], where: str = "") -> None:
    for key in table:
        if key not in keys:
            raise SpecError(f"{where}{key}: there is no such key" + suggest(key, keys))


def _not_blank(where: str, words: str) -> None:
    if not words.strip():
        raise SpecError(f"{where}: must not be blank")
