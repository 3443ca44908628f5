"""Enters: ReportData, or a results folder. Leaves: the files of its report."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cfljax.registry.options import Table
from cfljax.report import paper_table, table_files, tested
from cfljax.report.comparison import Row
from cfljax.report.live import Live, start_live
from cfljax.report.page import page
from cfljax.report.report_data import ReportData, read
from cfljax.results.result import Results
from cfljax.store.atomic import store_errors, write_bytes

if TYPE_CHECKING:
    from cfljax.launch.progress import Progress

PAGE_FILE = "index.html"
PAPER_FILE = "paper.tex"
# Seconds between two pages of a sweep that is being computed
REWRITE_SECONDS = 10.0
FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {
    "table.md": lambda table: "\n".join(
        part for part in (table_files.to_markdown(table), tested.markdown(table)) if part
    ),
    "table.tex": table_files.to_latex,
    "tests.tex": tested.latex,
    "table.csv": table_files.to_csv,
}
"""Name of a file -> its text, made from the comparison table."""


class Format(NamedTuple):
    """How figures are written."""

    # Dots per inch of PNG files
    dpi: int = 200
    # In inches; None: what each figure needs
    width: float | None = None
    # Whether each is a PDF file, too
    pdf: bool = False

    @property
    def main(self) -> str:
        """The ending of the files that are listed, one for each figure."""
        return "pdf" if self.pdf else "png"


USUAL_FORMAT = Format()


def default_folder(folders: Sequence[str | os.PathLike[str]]) -> Path:
    """Return `DIR/report` for one folder; `report` in the current folder for several, as it belongs
    to none of them."""
    return Path(folders[0]) / "report" if len(folders) == 1 else Path("report")


def write(
    data: ReportData,
    out: str | os.PathLike[str],
    figures: bool = True,
    form: Format = USUAL_FORMAT,
    live: Live | None = None,
) -> Path:
    """Write the tables, the page and, if asked, the figures; return the path of the page. Figures
    of an earlier report that have no numbers now are removed. `live`: how far a sweep is that is
    being computed; only its page is written, which loads itself again and again."""
    folder = Path(out)
    with store_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if live is None:
        for name, make_text in FORMATS.items():
            write_bytes(folder / name, make_text(data.table).encode())
    write_bytes(folder / PAGE_FILE, page(data, live).encode())
    if figures:
        _write_figures(data, folder / "figures", form)
    return folder / PAGE_FILE


def write_paper(
    data: ReportData, out: str | os.PathLike[str], width: float | None, asked: bool
) -> tuple[Path, list[str]]:
    """Write the table for a column of this width in inches; return its path, and the columns that
    it has no room for. `asked`: the columns of the data were asked for."""
    path = Path(out) / PAPER_FILE
    inches = paper_table.COLUMN_WIDTH if width is None else width
    text, left_out = paper_table.write_table(data.table, inches, asked)
    with store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())
    return path, left_out


def _write_figures(data: ReportData, folder: Path, form: Format) -> None:
    """Write all figures, and remove those of an earlier report that have no numbers now."""
    from cfljax.report.figures import FIGURES

    drawn = {path.stem for path in write_figures(data, (), folder, form)}
    for path in (
        folder / f"{name}.{kind}"
        for name in FIGURES.keys() - drawn
        for kind in ("png", "svg", "pdf")
    ):
        with store_errors(path):
            path.unlink(missing_ok=True)


class LivePage:
    """The page of a sweep that is being computed."""

    def __init__(
        self, folder: str | os.PathLike[str], sweep: Table, target: float | None, show: bool
    ):
        self.folder = folder
        self.sweep = sweep
        self.target = target
        self.path = default_folder([folder]) / PAGE_FILE
        self.next = 0.0
        if show or not self.path.exists():
            self.write()
        self.next = max(self.next, time.monotonic() + REWRITE_SECONDS)
        if show and not webbrowser.open_new_tab(self.path.resolve().as_uri()):
            print(f"cfljax: --open: no browser was found; open {self.path}", file=sys.stderr)

    def write(self, progress: Progress | None = None) -> None:
        """Write the page, at most every REWRITE_SECONDS and for a fiftieth of the time. If it
        cannot be written, the sweep goes on."""
        if (began := time.monotonic()) < self.next:
            return
        with contextlib.suppress(Exception):
            results = Results(self.folder, target=self.target, sweep=self.sweep)
            # In the order of the plan: the best first would be a rank
            results.ordered = True
            data = read([results], self.target)
            now = start_live(self.sweep, data.collected)
            if progress is not None:
                now = now._replace(
                    running=progress.list_labels(),
                    state=", ".join(
                        filter(None, [progress.describe_state(), progress.format_left()])
                    ),
                    share=progress.share,
                )
            write(data, self.path.parent, figures=False, live=now)
        self.next = time.monotonic() + max(REWRITE_SECONDS, 50 * (time.monotonic() - began))


def report(results: str | os.PathLike[str] | Results, figures: bool = False) -> Path:
    """Write the report of a results folder, or of its results, into DIR/report; return the page.
    `figures`: those for papers."""
    folder, target = (
        (results.store.folder, results.target) if isinstance(results, Results) else (results, None)
    )
    return write(read([results], target), default_folder([folder]), figures)


def write_figures(
    data: ReportData, names: Sequence[str], out: str | os.PathLike[str], form: Format = USUAL_FORMAT
) -> list[Path]:
    """Write the figures of these names, else all, that have numbers to draw into the folder; the
    paths of the PNG files, or of the PDF files if there are some."""
    from cfljax.report.figures import render

    folder = Path(out)
    with store_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, image in render(data, names, *form):
        write_bytes(folder / name, image)
        written.append(folder / name)
    return [path for path in written if path.suffix == f".{form.main}"]
