"""The methods command: the list of all methods, or the description of one."""

from __future__ import annotations

import argparse

from cfljax.commands.arguments import command_parser

ABOUT = "List the methods, a line each; with a name, all about one: its paper, options, defaults and communication."
EXAMPLES = """  python -m cfljax.methods
  python -m cfljax.methods fedgroup
  python -m cfljax.methods --plugin my_method.py"""


def parser(prog: str = "python -m cfljax.methods") -> argparse.ArgumentParser:
    """The flags."""
    flags = command_parser(prog, ABOUT, EXAMPLES)
    flags.add_argument("name", nargs="?", help="a method")
    flags.add_argument("--plugin", action="append", default=[], metavar="FILE.py", help="list what this file registers, too")
    flags.add_argument("--markdown", action="store_true", help="the table of the README")
    return flags


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
