"""The commands and flags that README and the pages name, and whether they exist.

A page promises what stands in its code: fenced blocks and `spans`."""

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cfljax.commands.cli import COMMANDS
from cfljax.config import Train
from cfljax.config.values import list_fields
from cfljax.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "experiments/README.md",
            "benchmarks/README.md",
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SPAN = re.compile(r"(?<!`)(?:`([^`\n]+)`|``([^\n]+?)``)(?!`)")
_PYTHON = r"python -m (?P<module>[\w.]+)|python (?P<file>\S+\.py)"
COMMAND = re.compile(
    rf"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:{_PYTHON}|cfljax (?P<name>[a-z]+))\b(?P<rest>.*)$"
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OPEN = ("…", "[", "DIR", "SPEC", "FILE", "NAME", "|", "\\", "KEY")
"""In a line that says how a command is written and is not itself one."""
OTHERS = {"pip", "venv", "pytest", "mkdocs", "ruff", "mypy", "cfljax"}
"""`python -m NAME` of others; of `python -m cfljax` the test is that of `cfljax`."""


class Said(NamedTuple):
    """A command line in a page."""

    where: str
    module: str
    """`cfljax.sweep`, `drills.kill`, `docs/which.py`."""
    rest: str


def code(text: str) -> Iterator[tuple[int, str]]:
    """(line number, text) of all code of a page: the lines of its blocks, with those that `\\`
    continues, and its spans."""
    fenced = re.compile(r"^```\w*[^\n]*\n(.*?)^```$", re.M | re.S)
    for match in fenced.finditer(text):
        number = text[: match.start(1)].count("\n") + 1
        for more, line in enumerate(match[1].replace("\\\n", " ").splitlines()):
            yield number + more, line
    plain = fenced.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(plain.splitlines(), 1):
        yield from ((number, match[1] or match[2]) for match in SPAN.finditer(line))


def commands(name: str, text: str) -> Iterator[Said]:
    """The command lines of a page."""
    for number, line in code(text):
        if match := COMMAND.match(line.strip()):
            module = match["module"] or match["file"] or f"cfljax.{match['name']}"
            if module.split(".")[0] not in OTHERS or module.startswith("cfljax."):
                yield Said(f"{name}:{number}", module, match["rest"].split("  #")[0])


@cache
def options_of_a_run() -> frozenset[str]:
    """What `cfljax run` takes as flags beside its own: the options of train and of methods."""
    every = [Train, *(METHODS.entry(name).options for name in METHODS)]
    return frozenset(f"--{option}" for options in every for option in list_fields(options))


def flags_of(parser: argparse.ArgumentParser) -> frozenset[str]:
    """The long flags of a parser and of its actions, but those for the program itself."""
    found = frozenset()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        found |= {flag for flag in action.option_strings if flag.startswith("--")}
        if isinstance(action, argparse._SubParsersAction):
            found = found.union(*map(flags_of, action.choices.values()))
    return found


@cache
def flags(module: str) -> frozenset[str] | None:
    """The flags of a command, a drill, a benchmark or a script; None: there is no such thing."""
    first, _, name = module.partition(".")
    if first == "cfljax":
        if name == "completion":
            return frozenset()
        if name not in COMMANDS:
            return None
        return flags_of(importlib.import_module(f"cfljax.commands.{name}").parser())
    path = ROOT / (module if module.endswith(".py") else module.replace(".", "/") + ".py")
    path = path if path.exists() else path.with_suffix("") / "__main__.py"
    if not path.exists():
        return None
    more = (ROOT / "drills" / "common.py").read_text() if first == "drills" else ""
    return frozenset(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', path.read_text() + more)) | {
        "--help"
    }


@cache
def all_flags() -> frozenset[str]:
    """The flags of everything that has some."""
    drills = [f"drills.{path.stem}" for path in (ROOT / "drills").glob("*.py")]
    benchmarks = [f"benchmarks.{path.stem}" for path in (ROOT / "benchmarks").glob("*.py")]
    benchmarks += [
        f"benchmarks.{path.parent.name}" for path in (ROOT / "benchmarks").glob("*/__main__.py")
    ]
    return frozenset().union(
        *(
            flags(each) or ()
            for each in [
                *(f"cfljax.{name}" for name in COMMANDS),
                *drills,
                *benchmarks,
                "tests.methods.golden",
            ]
        )
    )


def wrong(name: str, text: str) -> list[str]:
    """What a page says of commands and is not so."""
    found, titles = [], re.findall(r'title="([^"]+)"', text)
    for said in commands(name, text):
        if said.module in titles:
            continue
        known = flags(said.module)
        if known is None:
            found.append(f"{said.where}: there is no command {said.module}")
            continue
        known |= options_of_a_run() if said.module == "cfljax.run" else set()
        missing = [
            f"{said.where}: {said.module} has no {flag}"
            for flag in FLAG.findall(said.rest)
            if flag not in known
        ]
        found += missing
        if (
            not missing
            and said.rest.strip()
            and said.module.startswith("cfljax.")
            and not any(sign in said.rest for sign in OPEN)
        ):
            found += refused(said)
    for number, line in code(text):
        if line.startswith(("--", "… --")):
            found += [
                f"{name}:{number}: nothing has {flag}"
                for flag in FLAG.findall(line)
                if flag not in all_flags()
            ]
    return found


def refused(said: Said) -> list[str]:
    """Why the parser of a command does not take a line that stands in a page."""
    if said.module == "cfljax.completion":
        return []
    parser = importlib.import_module(said.module.replace("cfljax.", "cfljax.commands.")).parser()
    try:
        parser.parse_args(shlex.split(said.rest, comments=True))
    except SystemExit as end:
        return [f"{said.where}: {said.module} refuses{said.rest}"] if end.code else []
    except Exception as error:
        return [f"{said.where}: {error}"]
    return []
