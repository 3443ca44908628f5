"""Shell completion: one parser of all commands, from which shtab writes a script."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Mapping

import shtab

from cfljax.commands import COMMANDS

SHELLS = tuple(shtab.SUPPORTED_SHELLS)
_FILES = ("SPEC.toml", "DIR", "FILE", "FILE.py", "OUT", "source")


def write_script(shell: str) -> str:
    """Return the script for a shell."""
    return str(shtab.complete(make_parser(), shell=shell))


def make_parser() -> argparse.ArgumentParser:
    """Make a parser of `cfljax` with a subparser for each command."""
    whole = argparse.ArgumentParser(prog="cfljax")
    whole.add_argument("--version", action="store_true", help="print the version")
    commands = whole.add_subparsers(dest="command")
    for name, about in COMMANDS.items():
        parser = importlib.import_module(f"cfljax.commands.{name}").parser(f"cfljax {name}")
        _add_values(parser, _list_names(name))
        commands.add_parser(name, help=about, parents=[parser], add_help=False)
    shell = commands.add_parser("completion", help="print shell completion")
    shell.add_argument("shell", choices=SHELLS)
    return whole


def _list_names(command: str) -> Mapping[str, Iterable[str]]:
    """Map arguments of a command to the names that they take. The parsers themselves do not know
    them: plug-ins add to them, and `--help` loads no registry."""
    from cfljax.data import SOURCES
    from cfljax.launch import LAUNCHERS
    from cfljax.launch.search_plan import METRICS
    from cfljax.methods import METHODS
    from cfljax.models import MODELS
    from cfljax.sinks import SINKS

    return {
        "data": SOURCES,
        "model": MODELS,
        "method": METHODS,
        "log": SINKS,
        "launcher": LAUNCHERS,
        "metric": METRICS,
        "name": METHODS if command == "methods" else SOURCES,
    }


def _add_values(parser: argparse.ArgumentParser, names: Mapping[str, Iterable[str]]) -> None:
    """Add what may follow to the arguments of a parser that takes names or files."""
    for action in parser._actions:
        # `--name` takes a new name
        named = action.dest in names and "--name" not in action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _add_values(inner, names)
        elif named and action.choices is None:
            action.choices = list(names[action.dest])
        elif action.metavar in _FILES or action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
