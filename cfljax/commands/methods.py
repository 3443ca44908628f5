"""The methods command: the list of all methods, or the description of one."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import textwrap
from typing import NamedTuple

from cfljax.commands import add_plugin_flag, as_json, parser_of
from cfljax.methods import METHODS, find_about
from cfljax.registry.options import Table, Value, show
from cfljax.round.about import About, Reading


def parser(prog: str = "python -m cfljax.methods") -> argparse.ArgumentParser:
    """Make the parser."""
    flags = parser_of("methods", prog)
    flags.add_argument("name", nargs="?", help="a method")
    add_plugin_flag(flags, "list the methods of this file, too")
    as_json.add_flag(flags, "methods")
    return flags


def run(flags: argparse.Namespace) -> int:
    """Print what was asked for."""
    from cfljax.config.plugins import load

    load(flags.plugin)
    if flags.json:
        names = [flags.name] if flags.name else list(METHODS)
        print(as_json.write({"methods": [to_table(describe(name)) for name in names]}))
        return 0
    text = details(flags.name) if flags.name else lines()
    # A file or a pipe has whole lines, which grep can find
    if sys.stdout.isatty():
        indent = 4 if flags.name else column()
        text = wrap(text, shutil.get_terminal_size().columns, indent)
    print(text)
    return 0


class Described(NamedTuple):
    """A method in words."""

    name: str
    summary: str
    # None: its file has none, as a plug-in's
    about: About | None
    readings: tuple[Reading, ...]
    options: tuple[dataclasses.Field[Value], ...]


def describe(name: str) -> Described:
    """Describe the method of this name."""
    entry = METHODS.entry(name)
    module = sys.modules[entry.make.__module__]
    return Described(
        name,
        entry.summary,
        find_about(name),
        getattr(module, "READINGS", ()),
        dataclasses.fields(entry.options),
    )


def to_table(method: Described) -> Table:
    """Return the description as a table, for `--json`."""
    about = method.about
    return {
        "name": method.name,
        "summary": method.summary,
        "title": about and about.title,
        "family": about and about.family,
        "published": (about and about.cited) or None,
        "communication": about and about.communication,
        "readings": [reading.text for reading in method.readings],
        "options": [
            {
                "name": field.name,
                "required": field.default is dataclasses.MISSING,
                "default": None if field.default is dataclasses.MISSING else field.default,
                "choices": field.metadata.get("choices"),
                "help": field.metadata["help"],
            }
            for field in method.options
        ],
    }


def lines() -> str:
    """Return a line per method, its name first."""
    width = column()
    return "\n".join(f"{name:<{width}}{METHODS.entry(name).summary}" for name in METHODS)


def column() -> int:
    """Return where the summaries begin in the list of methods."""
    return max(len(name) for name in METHODS) + 2


def details(name: str) -> str:
    """Describe one method in lines of text."""
    method = describe(name)
    text = [f"{method.name}: {method.summary}"]
    if method.about:
        if method.about.cited:
            text.append(f"published: {method.about.cited}")
        text.append(f"communication per participant and round: {method.about.communication}.")
    text += [f"reading: {reading.text}" for reading in method.readings]
    for field in method.options:
        accepted = field.metadata.get("choices")
        words = f" ({', '.join(map(show, accepted))})" if accepted else ""
        default = "required" if field.default is dataclasses.MISSING else show(field.default)
        text.append(f"  {field.name} = {default}{words}  {field.metadata['help']}")
    return "\n".join(text)


def wrap(text: str, width: int, indent: int) -> str:
    """Break lines that are longer than `width`, and indent what follows a break by `indent`."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(wrapper.fill, text.splitlines()))
