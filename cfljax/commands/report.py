"""The report command: tables, a page and figures of results folders, or our numbers beside published ones."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING

from cfljax.commands import accuracy, command_parser
from cfljax.errors import SpecError, suggest

if TYPE_CHECKING:
    from cfljax.report.report_data import ReportData

ABOUT = """Show what a sweep found: a comparison table (terminal, Markdown, LaTeX, CSV), one self-contained HTML page, and
figures for papers (PNG and SVG). Several folders are compared with each other. With --against: one Markdown page of ours
beside published numbers, with a verdict on each claim; with --pages a page of claims, and one for each paper beside it. With
--board: a page of ranks and critical differences over data sets and partitions, to which others can add a method."""
EXAMPLES = """  python -m cfljax.report results/quickstart
  python -m cfljax.report results/a results/b --out both
  python -m cfljax.report results/quickstart --target 0.9
  python -m cfljax.report results/quickstart --no-figures
  python -m cfljax.report results/quickstart --figures accuracy,assignment --dpi 300 --out paper
  python -m cfljax.report experiments/records/* --against experiments/published --out experiments/README.md \\
    --pages docs/evidence
  python -m cfljax.report results/mine --board docs/board --name mine"""


def parser(prog: str = "python -m cfljax.report") -> argparse.ArgumentParser:
    """The flags of the report command."""
    flags = command_parser(prog, ABOUT, EXAMPLES)
    flags.add_argument("folders", nargs="*", metavar="DIR", help="results folders, as a sweep wrote them")
    where = "where to write (default: DIR/report; of several folders: report); with --against: the file"
    only = "draw only these figures and nothing else, for example accuracy,assignment; a wrong name lists all"
    flags.add_argument("--out", metavar="DIR", help=where)
    flags.add_argument("--target", type=accuracy, metavar="ACCURACY", help="count rounds and bytes to this accuracy (a fraction)")
    flags.add_argument(
        "--max", action="store_true", help="with the highest test accuracy of each run, which is chosen on test data"
    )
    flags.add_argument("--against", nargs="+", metavar="FILE", help="files of published numbers (TOML), or folders of them")
    flags.add_argument("--pages", metavar="DIR", help="with --against and --out: a page for each paper, and its figures, go there")
    flags.add_argument("--board", metavar="BOARD", help="put the runs on a board: a folder with a file of rows for each sender")
    flags.add_argument("--name", metavar="NAME", help="with --board: the name of your file of rows there")
    which = flags.add_mutually_exclusive_group()
    which.add_argument("--no-figures", action="store_true", help="tables and page only, no PNG and SVG files")
    which.add_argument("--figures", type=_names, default=[], metavar="NAME,…", help=only)
    flags.add_argument(
        "--dpi", type=int, choices=range(50, 1201), default=200, metavar="N", help="dots per inch of PNG files (200)"
    )
    return flags


def _names(text: str) -> list[str]:
    from cfljax.report.figures import FIGURES

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in FIGURES:
            raise argparse.ArgumentTypeError(f"{name}: there is no such figure{suggest(name, FIGURES)}")
    return names


def run(flags: argparse.Namespace) -> int:
    """Print the table, write the files, and say where they are."""
    if flags.board:
        return _board(flags)
    if not flags.folders:
        raise SpecError("DIR: give the results folder of a sweep, as in cfljax report results/quickstart")
    if flags.against:
        return _against(flags)
    from cfljax.report import tables
    from cfljax.report.report_data import read
    from cfljax.report.write import default_folder, write

    data = read(flags.folders, flags.target, flags.max)
    for problem in data.problems:
        print(f"cfljax: {problem}", file=sys.stderr)
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    if flags.figures:
        return _figures(data, flags)
    print(tables.terminal(data.table, width, bold=terminal))
    ended = Counter(unit.status for unit in data.collected.units)
    if bad := ", ".join(f"{ended[status]} {status}" for status in ("diverged", "failed") if ended[status]):
        print(f"\n{bad} of {ended.total()} runs; the page lists them")
    page = write(data, flags.out or default_folder(flags.folders), not flags.no_figures, flags.dpi)
    print(f"\nreport: {page}")
    return 0


def _figures(data: ReportData, flags: argparse.Namespace) -> int:
    """Draw the figures that were asked for, and say where they are."""
    from cfljax.report.write import default_folder, write_figures

    drawn = write_figures(data, flags.figures, flags.out or default_folder(flags.folders) / "figures", flags.dpi)
    for path in drawn:
        print(f"figure: {path}")
    for name in set(flags.figures) - {path.stem for path in drawn}:
        print(f"cfljax: {name}: these runs have nothing to draw for it", file=sys.stderr)
    return 0


def _against(flags: argparse.Namespace) -> int:
    """Print or write the pages that compare our numbers with published ones."""
    import os
    from pathlib import Path

    from cfljax.report.replication.pages import ALL, replication_page, replication_pages, unused_figures
    from cfljax.store.atomic import storing, write_bytes

    if flags.pages and not flags.out:
        raise SpecError("--pages: needs --out, the file of the page that links to them")
    if flags.pages:
        to = os.path.relpath(flags.pages, Path(flags.out).parent)
        pages = replication_pages(flags.folders, flags.against, f"{Path(to).as_posix()}/")
    else:
        pages = {ALL: replication_page(flags.folders, flags.against)}
    if flags.out is None:
        print(pages[ALL], end="")
        return 0
    if flags.pages:
        with storing(Path(flags.pages)):
            Path(flags.pages).mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        write_bytes(Path(flags.pages or "", name) if name != ALL else Path(flags.out), text.encode())
    for path in unused_figures(Path(flags.pages), pages) if flags.pages else ():
        with storing(path):
            path.unlink()
    print(f"page: {flags.out}" + (f", and {len(pages) - 1} files in {flags.pages}" if flags.pages else ""))
    return 0


def _board(flags: argparse.Namespace) -> int:
    """Write the rows of the folders to a file of the board, and its page."""
    from pathlib import Path

    from cfljax.report.board import rows, to_csv
    from cfljax.report.board_page import PAGE, board
    from cfljax.store.atomic import storing, write_bytes

    folder = Path(flags.board)
    if bool(flags.folders) != bool(flags.name) or (flags.name and not flags.name.isidentifier()):
        raise SpecError("--name: results folders and the name of their file of rows go together, a name of letters, digits and _")
    if flags.folders:
        found = rows(flags.folders)
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / f"{flags.name}.csv", to_csv(found).encode())
        print(f"rows: {folder / flags.name}.csv, {len(found)} runs")
    for name, text in board(folder).items():
        write_bytes(folder / name, text.encode())
    print(f"page: {folder / PAGE}")
    return 0
