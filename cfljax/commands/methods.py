"""The methods command: the list of all methods, or the description of one, from the docstrings."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from typing import NamedTuple

from cfljax.commands import add_plugin_flag, parser_of
from cfljax.methods import METHODS
from cfljax.registry.options import Value, show


def parser(prog: str = "python -m cfljax.methods") -> argparse.ArgumentParser:
    """Make the parser."""
    flags = parser_of("methods", prog)
    flags.add_argument("name", nargs="?", help="a method")
    add_plugin_flag(flags, "list the methods of this file, too")
    return flags


def run(flags: argparse.Namespace) -> int:
    """Print what was asked for."""
    from cfljax.config.plugins import load

    load(flags.plugin)
    if flags.name:
        print(details(flags.name))
    else:
        print(lines())
    return 0


class Described(NamedTuple):
    """A method in words."""

    name: str
    summary: str
    paper: str  # Its authors and year
    options: tuple[dataclasses.Field[Value], ...]
    communication: str  # The numbers sent per participant and round, in words
    readings: tuple[str, ...]
    """Sentences on points where a paper is ambiguous: what it says, what is done here, and the
    option that changes it."""


def describe(name: str) -> Described:
    """Describe the method of this name."""
    entry = METHODS.entry(name)
    module = sys.modules[entry.make.__module__]
    written = inspect.cleandoc(module.__doc__ or "").split("\n\n")
    paragraphs = [" ".join(p.split()) for p in written]
    listed = next((p for p in written if p.startswith("Readings")), "")
    readings = tuple(" ".join(each.split()) for each in listed.split("\n- ")[1:])
    sent = next((p for p in paragraphs if p.startswith("Communication")), "")
    sent = re.sub(r"^Communication( per participant and round| of a round)?: ", "", sent)
    return Described(
        name,
        entry.summary,
        getattr(module, "PAPER", ""),
        dataclasses.fields(entry.options),
        sent,
        readings,
    )


def lines() -> str:
    """Return a line per method, its name first."""
    width = max(len(name) for name in METHODS)
    return "\n".join(f"{name:<{width}}  {METHODS.entry(name).summary}" for name in METHODS)


def details(name: str) -> str:
    """Describe one method in lines of text."""
    about = describe(name)
    text = [f"{about.name}: {about.summary}"]
    if about.paper:
        text.append(f"published: {about.paper}")
    if about.communication:
        text.append(f"communication per participant and round: {about.communication}")
    text += [f"reading: {reading}" for reading in about.readings]
    for field in about.options:
        accepted = field.metadata.get("choices")
        words = f" ({', '.join(map(show, accepted))})" if accepted else ""
        default = "required" if field.default is dataclasses.MISSING else show(field.default)
        text.append(f"  {field.name} = {default}{words}  {field.metadata['help']}")
    return "\n".join(text)
