"""Our numbers beside published ones: python -m experiments.replication (in a checkout)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cfljax.commands import command_parser, process
from cfljax.errors import SpecError
from cfljax.store.atomic import store_errors, write_bytes

ABOUT = """One Markdown page of our numbers beside published ones, with a verdict on each claim; with --pages a page
of claims, and one for each paper beside it."""
EXAMPLES = """  python -m experiments.replication experiments/records/*/ --against experiments/published \\
    --out experiments/README.md --pages docs/evidence"""


def parser() -> argparse.ArgumentParser:
    """Return the flags of the command."""
    flags = command_parser("python -m experiments.replication", ABOUT, EXAMPLES)
    flags.add_argument(
        "folders", nargs="*", metavar="DIR", help="results folders, as a sweep wrote them"
    )
    flags.add_argument(
        "--against",
        nargs="+",
        required=True,
        metavar="FILE",
        help="files of published numbers (TOML), or folders of them",
    )
    flags.add_argument("--out", metavar="FILE", help="where to write the page (default: print it)")
    flags.add_argument(
        "--pages",
        metavar="DIR",
        help="with --out: a page for each paper, and its figures, go there",
    )
    return flags


def run(flags: argparse.Namespace) -> int:
    """Print or write the pages that compare our numbers with published ones."""
    from experiments.replication.pages import (
        ALL,
        replication_page,
        replication_pages,
        unused_figures,
    )

    if not flags.folders:
        raise SpecError(
            "DIR: give the results folders that are compared, as in experiments/records/*/"
        )
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
        with store_errors(Path(flags.pages)):
            Path(flags.pages).mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        write_bytes(
            Path(flags.pages or "", name) if name != ALL else Path(flags.out), text.encode()
        )
    for path in unused_figures(Path(flags.pages), pages) if flags.pages else ():
        with store_errors(path):
            path.unlink()
    print(
        f"page: {flags.out}"
        + (f", and {len(pages) - 1} files in {flags.pages}" if flags.pages else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(process.main(run, parser()))
