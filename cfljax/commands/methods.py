"""`python -m cfljax.methods`: what methods there are."""

from __future__ import annotations

import argparse
import sys

from cfljax.commands import command

ABOUT = "List the methods, a line each; with a name, all about one: its paper, options, defaults and communication."
EXAMPLES = """  python -m cfljax.methods
  python -m cfljax.methods fedgroup
  python -m cfljax.methods --plugin my_method.py"""


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = command.parser("methods", ABOUT, EXAMPLES)
    made.add_argument("name", nargs="?", help="a method")
    made.add_argument("--plugin", action="append", default=[], metavar="FILE.py", help="list what this file registers, too")
    made.add_argument("--markdown", action="store_true", help="the table of the README")
    return made


def run(flags: argparse.Namespace) -> int:
    """Print what was asked for."""
    from cfljax.commands import listing
    from cfljax.config.plugins import load

    load(flags.plugin)
    if flags.name:
        print(listing.details(flags.name))
    else:
        print(listing.markdown() if flags.markdown else listing.lines())
    return 0


if __name__ == "__main__":
    sys.exit(command.main(run, parser()))
