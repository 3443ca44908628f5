"""The files of a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cfljax.report import tables
from cfljax.report.content import Content, of, read
from cfljax.report.page import page
from cfljax.results.result import Results
from cfljax.store.atomic import storing, write_bytes

PAGE = "index.html"


def default_folder(folders: Sequence[str | os.PathLike[str]]) -> Path:
    """`DIR/report`; `report` here when several folders are compared, as it belongs to none of them."""
    return Path(folders[0]) / "report" if len(folders) == 1 else Path("report")


def write(content: Content, out: str | os.PathLike[str], figures: bool = True) -> Path:
    """Write the tables, the page and, if asked, the figures; the path of the page. Figures that an earlier report left and
    that there is nothing for now are removed."""
    folder = Path(out)
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("table.md", tables.markdown(content.table)),
        ("table.tex", tables.latex(content.table)),
        ("table.csv", tables.to_csv(content.table)),
        (PAGE, page(content)),
    ):
        write_bytes(folder / name, text.encode())
    if figures:
        _write_figures(content, folder / "figures")
    return folder / PAGE


def _write_figures(content: Content, folder: Path) -> None:
    from cfljax.report.figures import FIGURES, render

    with storing(folder):
        folder.mkdir(exist_ok=True)
    stale = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    for name, data in render(content):
        write_bytes(folder / name, data)
        stale.discard(name)
    for name in stale:
        with storing(folder / name):
            (folder / name).unlink(missing_ok=True)


def report(results: str | os.PathLike[str] | Results, figures: bool = False) -> Path:
    """The report of one results folder, or of what of it is read already, in DIR/report, without figures for papers unless asked;
    the path of the page."""
    if isinstance(results, Results):
        return write(of(results), default_folder([results.store.folder]), figures)
    return write(read([results]), default_folder([results]), figures)
