"""The report command: tables, a page and figures of results folders."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from cfljax.commands import accuracy, add_plugin_flag, as_json, format_link, load_plugins, parser_of
from cfljax.errors import SpecError, suggest

if TYPE_CHECKING:
    from cfljax.registry.options import Table
    from cfljax.report.report_data import ReportData
    from cfljax.report.write import Format


def parser(prog: str = "python -m cfljax.report") -> argparse.ArgumentParser:
    """Make the parser of the report command."""
    flags = parser_of("report", prog)
    flags.add_argument("folders", nargs="*", metavar="DIR", help="results folders of sweeps")
    where = "where to write (default: DIR/report; of several folders: report)"
    only = "write only these figures, for example accuracy,assignment; an unknown name lists all"
    flags.add_argument("--out", metavar="DIR", help=where)
    flags.add_argument(
        "--target",
        type=accuracy,
        metavar="ACCURACY",
        help="count rounds, bytes and seconds to this accuracy (a fraction), not to FedAvg's",
    )
    flags.add_argument(
        "--max",
        action="store_true",
        help="add each run's highest test accuracy, which is optimistic",
    )
    which_columns = (
        "print only these columns, as last,worst,bytes; generalisation, was and what is over "
        "FedAvg only if named"
    )
    flags.add_argument("--columns", type=_list, default=[], metavar="NAME,…", help=which_columns)
    which = flags.add_mutually_exclusive_group()
    which.add_argument(
        "--no-figures", action="store_true", help="tables and page only, no PNG and SVG files"
    )
    which.add_argument("--figures", type=_names, default=[], metavar="NAME,…", help=only)
    flags.add_argument(
        "--methods",
        type=_list,
        default=[],
        metavar="NAME,…",
        help="only these methods, in this order; tests and marks are among them",
    )
    flags.add_argument("--pdf", action="store_true", help="write figures as PDF files, too")
    flags.add_argument(
        "--width",
        type=_inches,
        metavar="INCHES",
        help="width of figures, and of the table of --paper (5.5, with --paper 3.3)",
    )
    flags.add_argument(
        "--paper",
        action="store_true",
        help="for a column of a paper: paper.tex, a LaTeX table that fits, and figures as PDF",
    )
    flags.add_argument(
        "--dpi", type=_dpi, default=200, metavar="N", help="dots per inch of PNG files (200)"
    )
    add_plugin_flag(
        flags, "allow this plug-in of the runs, which --columns was and generalisation need"
    )
    as_json.add_flag(flags, "report")
    return flags


def _dpi(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 50 <= int(text[:9]) <= 1200):
        raise argparse.ArgumentTypeError(f"{text[:20]}: must be a whole number from 50 to 1200")
    return int(text)


def _inches(text: str) -> float:
    try:
        width = float(text)
    except ValueError:
        width = math.nan
    if not 2 <= width <= 20:
        raise argparse.ArgumentTypeError(f"{text[:20]}: must be a number of inches from 2 to 20")
    return width


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _names(text: str) -> list[str]:
    """Parse the names of figures."""
    from cfljax.report.figures import FIGURES

    names = _list(text)
    for name in names:
        if name not in FIGURES:
            raise argparse.ArgumentTypeError(
                f"{name}: there is no such figure{suggest(name, FIGURES)}"
            )
    return names


def run(flags: argparse.Namespace) -> int:
    """Print the table, write the files, and say where they are."""
    if not flags.folders:
        raise SpecError(
            "DIR: give the results folder of a sweep, as in cfljax report results/quickstart"
        )
    from cfljax.report import tables
    from cfljax.report.report_data import read
    from cfljax.report.write import default_folder, write

    load_plugins(flags)
    data = read(flags.folders, flags.target, flags.max, flags.columns, flags.methods)
    for problem in data.problems:
        print(f"cfljax: {problem}", file=sys.stderr)
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    if flags.json:
        print(as_json.write(_write_all(data, flags)))
        return 0
    if flags.figures:
        return _figures(data, flags)
    print(tables.to_terminal(data.table, width, bold=terminal))
    ended = Counter(unit.status for unit in data.collected.units)
    if bad := ", ".join(
        f"{ended[status]} {status}" for status in ("diverged", "failed") if ended[status]
    ):
        print(f"\n{bad} of {ended.total()} runs; the page lists them")
    out = Path(flags.out or default_folder(flags.folders))
    page = write(data, out, not flags.no_figures, _make_format(flags))
    print(f"\nreport: {format_link(page)}")
    if flags.paper:
        _write_paper(data, out, flags)
    return 0


def _make_format(flags: argparse.Namespace) -> Format:
    """Make of the flags how figures are written."""
    from cfljax.report.paper_table import COLUMN_WIDTH
    from cfljax.report.write import Format

    width = COLUMN_WIDTH if flags.paper and flags.width is None else flags.width
    return Format(flags.dpi, width, flags.pdf or flags.paper)


def _write_paper(data: ReportData, out: Path, flags: argparse.Namespace) -> None:
    """Write the table for a paper, and say where it is and what it has no room for."""
    from cfljax.report.write import write_paper

    path, left_out = write_paper(data, out, flags.width, bool(flags.columns))
    print(f"table: {path}", file=sys.stderr if flags.json else sys.stdout)
    if left_out:
        print(f"cfljax: {path}: no room for {', '.join(left_out)}", file=sys.stderr)


def _write_all(data: ReportData, flags: argparse.Namespace) -> Table:
    """Write what the flags ask for, and return what `--json` prints."""
    from cfljax.report.notes import list_advice
    from cfljax.report.table_files import to_frame
    from cfljax.report.write import default_folder, write, write_figures

    out = Path(flags.out or default_folder(flags.folders))
    form = _make_format(flags)
    page, drawn = None, []
    if flags.figures:
        drawn = write_figures(data, flags.figures, flags.out or out / "figures", form)
    else:
        page = write(data, out, not flags.no_figures, form)
        drawn = [] if flags.no_figures else sorted((out / "figures").glob(f"*.{form.main}"))
    if flags.paper:
        _write_paper(data, out, flags)
    rows = to_frame(data.table).to_dict("records")
    folders = [row.configuration.folder for row in data.table]
    return {
        "rows": [{"folder": f} | row for f, row in zip(folders, rows, strict=True)],
        "worth_a_look": list_advice(data.table),
        "page": None if page is None else str(page),
        "figures": [str(path) for path in drawn],
        "problems": data.problems,
    }


def _figures(data: ReportData, flags: argparse.Namespace) -> int:
    """Write only figures, and say where they are."""
    from cfljax.report.write import default_folder, write_figures

    out = Path(flags.out or default_folder(flags.folders))
    folder = flags.out or out / "figures"
    drawn = write_figures(data, flags.figures, folder, _make_format(flags))
    if flags.paper:
        _write_paper(data, out, flags)
    for path in drawn:
        print(f"figure: {path}")
    for name in set(flags.figures) - {path.stem for path in drawn}:
        print(f"cfljax: {name}: these runs have nothing to draw for it", file=sys.stderr)
    return 0
