"""Writes the reference pages from the code: python docs/pages.py

Each page of PAGES is written whole: `spec.md`, `commands.md`, `methods.md` and `names.md`. A test compares them with the code.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
import types
import typing
from pathlib import Path

from cfljax import errors
from cfljax.commands import COMMANDS
from cfljax.commands.methods import describe
from cfljax.config import asynchronous, clock, data, drift, lora, search, server, stop, train, transit
from cfljax.data import SOURCES
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS
from cfljax.registry.options import show

DOCS = Path(__file__).parent
MADE = "<!-- written by: python docs/pages.py -->\n"
KINDS = {int: "integer", float: "number", str: "text", bool: "true, false", dict: "table", type(None): ""}
TABLES = {
    "data.new_clients": data.NewClients,
    "data.drift": drift.DriftOptions,
    "train.stop": stop.Stop,
    "train.server": server.Server,
    "train.clock": clock.Clock,
    "train.asynchronous": asynchronous.Asynchronous,
    "train.privacy": transit.Privacy,
    "train.privacy.choice": transit.Choice,
    "train.compress": transit.Compress,
    "train.attack": transit.Attack,
    "train.robust": transit.Robust,
    "train.lora": lora.Lora,
    "train.plan": train.Forced,
    "search": search.Search,
}
"""Where a table stands in a spec -> its options."""
LATE = [
    ("clients", "integer", "how many clients come late; or:"),
    ("rate", "number, above 0, at most 1", "the fraction of the clients that comes late"),
    ("round", "integer, at least 1", "the round in which all of them come; or:"),
    ("from, until", "integers", "the first and the last round in which one comes"),
]
TOP = [
    ("name", "text", "the sweep's name; its results folder is `results/NAME`"),
    ("seeds", 'list, or `"a:b"`', "a run for each seed; the default is one, 0"),
    ("data", "table", "the data set, its partition, and their options: [below](#data), [data sets](names.md#data-sets)"),
    ("model", "table or name", "the model and [its options](names.md#models)"),
    ("train", "table", "how clients train and what a round is: [below](#train)"),
    (
        "method",
        "tables or names",
        "a [method](methods.md) and its options; also `label`, its name in tables, and a `train` table of its own",
    ),
    ("defaults", "table", "options for every method that has them, such as `clusters = 4`"),
    ("include", "tables", "further grids: each is laid over the spec, and its runs are added"),
    ("exclude", "tables", 'combinations to leave out: `{ method = "ifca", "train.lr" = 0.5 }`; all keys of a table must match'),
    ("size", "table of tables", "variants: `--set size=small` lays the table `[size.small]` over the spec"),
    (
        "samples, search_seed",
        "integers",
        "random search: how many draws of each `{ low = …, high = …, log = true }`, and the seed of the draws",
    ),
    ("search", "table", "how `cfljax tune` searches: [below](#search)"),
    ("plugins", "list of files", "files or modules with [things of your own](own.md), beside the spec"),
]
CODES = [
    (0, "done", "everything that was asked for"),
    (1, "some runs failed", "others are kept; `--retry-failed` tries the failed ones again"),
    (errors.SpecError.exit_code, "bad input", "a wrong flag, key, name or value, before any data are loaded"),
    (errors.StoreError.exit_code, "storage", "the results folder cannot be read or written"),
    (errors.DataError.exit_code, "data", "a data set is missing or broken"),
    (130, "Ctrl-C", "what is done is kept; the same command goes on"),
    (143, "SIGTERM", "as after Ctrl-C"),
]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def accepted(hint: object, meta: typing.Mapping[str, typing.Any]) -> str:
    """What values an option takes, in words."""
    parts = [] if meta.get("choices") is None else [" ".join(f"`{show(word)}`" for word in meta["choices"])]
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for kind in typing.get_args(hint) if union else (hint,):
        if typing.get_origin(kind) is tuple:
            parts.append(f"list of {KINDS.get(typing.get_args(kind)[0], 'value')}s")
        elif not (kind is str and meta.get("choices")) and dataclasses.is_dataclass(kind) is False:
            parts.append(KINDS.get(typing.get_origin(kind) or kind, ""))
    bounds = {"above": "above", "low": "at least", "high": "at most"}
    limits = [f"{word} {meta[key]:g}" for key, word in bounds.items() if meta.get(key) is not None and meta[key] < 10**9]
    return ", ".join([part for part in dict.fromkeys(parts) if part] + limits)


def options(cls: type) -> str:
    """The table of an Options class."""
    hints, rows = typing.get_type_hints(cls), []
    for field in dataclasses.fields(cls):
        default = "required" if field.default is dataclasses.MISSING else f"`{show(field.default)}`"
        default = default.replace("`none`", "–")
        star = " *" if field.metadata.get("traced") else ""
        what = field.metadata.get("help") or " ".join(inspect.cleandoc(field.metadata.get("doc", "")).split())
        rows.append((f"`{field.name}`{star}", accepted(hints[field.name], field.metadata), default, what))
    return table(("key", "value", "default", "what"), rows) if rows else "No options."


def spec() -> str:
    """Every key of a spec."""
    parts = ["# Spec keys", "", MADE]
    parts.append(
        "A spec is a TOML file, or a dict for `cfljax.sweep`. Any value may be a list: an axis of the grid. "
        "`cfljax sweep SPEC.toml --dry-run` checks a spec and says what it would run. "
        "Values marked * may vary in a grid without compiling again.\n"
    )
    parts += [
        "## Top level",
        "",
        table(("key", "value", "what"), [(f"`{key.replace(', ', '`, `')}`", *rest) for key, *rest in TOP]),
        "",
    ]
    words = 'An axis of numbers may also be written `"0:10"` (integers), `"log(0.001, 0.1, 5)"` or `"lin(0, 1, 5)"`.'
    parts += [
        words,
        "",
        "## data",
        "",
        "Beside `name` and `partition`, and the options of [both](names.md):",
        "",
        options(data.DataOptions),
        "",
    ]
    parts += [
        "### data.arrive",
        "",
        table(("key", "value", "what"), [(f"`{key.replace(', ', '`, `')}`", *rest) for key, *rest in LATE]),
        "",
    ]
    for name in (each for each in TABLES if each.startswith("data.")):
        parts += [f"### {name}", "", options(TABLES[name]), ""]
    parts += ["## train", "", options(train.Train), ""]
    for name in (each for each in TABLES if each.startswith("train.")):
        parts += [f"### {name}", "", options(TABLES[name]), ""]
    parts += ["## search", "", options(search.Search), ""]
    return "\n".join(parts)


def commands() -> str:
    """Every command with its flags, and the exit codes."""
    parts = ["# Commands and exit codes", "", MADE]
    parts += ["Every command below may be written in two ways: `cfljax sweep` is `python -m cfljax.sweep`. Each has `--help`.", ""]
    parts += [table(("command", "what it does"), [(f"[`{name}`](#{name})", about) for name, about in COMMANDS.items()]), ""]
    codes = ", ".join(f"{code} {word}" for code, word, _ in CODES)
    parts += ["## Exit codes", "", f"Exit codes: {codes}.", ""]
    parts += [table(("code", "when", "what it means"), [(str(code), word, more) for code, word, more in CODES]), ""]
    parts += ["An error is one line on standard error: the file, the key, the bad value, and the nearest valid one.", ""]
    parts += ["## Variables of the environment", "", table(("variable", "what"), [
        ("`CFLJAX_DATA`", "the folder of data files"),
        ("`CFLJAX_CACHE`", "the folder of compiled programs, prepared data and sums of files"),
        ("`CFLJAX_DEBUG`", "1: errors with their traceback"),
    ]), ""]  # fmt: skip
    for name in COMMANDS:
        parser = importlib.import_module(f"cfljax.commands.{name}").parser(f"cfljax {name}")
        parts += [f"## {name}", "", inspect.cleandoc(parser.description or ""), ""]
        parts += [*flags(parser), ""]
    return "\n".join(parts)


def flags(parser: argparse.ArgumentParser) -> list[str]:
    """The flags of a command, and of its actions, as tables."""
    rows, more = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {each.dest: each.help or "" for each in action._choices_actions}
            for name, sub in action.choices.items():
                more += ["", f"### {parser.prog.removeprefix('cfljax ')} {name}", "", f"{about[name]}.", "", *flags(sub)]
        elif not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper())
            shown = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
            shown += f" {value}" if action.option_strings and action.nargs != 0 else ""
            rows.append((f"`{shown}`", escaped(" ".join((action.help or "").split()))))
    return ([table(("flag", "what"), rows)] if rows else []) + more


def methods() -> str:
    """Every method: its paper, communication, options and readings."""
    parts = ["# Methods", "", MADE]
    parts.append(
        "`cfljax methods` lists them, `cfljax methods NAME` prints what stands here. [Which method when](which.md) compares them. "
        "Options marked * are numbers that may vary in a grid without compiling again.\n"
    )
    told = [describe(name) for name in METHODS if METHODS.origin(name) is None]
    rows = [(f"[`{each.name}`](#{each.name})", escaped(each.summary), each.paper) for each in told]
    parts += [table(("method", "what it is", "published"), rows), ""]
    for each in told:
        parts += [f"## {each.name}", "", each.summary, ""]
        parts += [f"- Published: {each.paper}"] if each.paper else []
        parts += [f"- Sent per participant and round: {each.communication}", "", options(METHODS.entry(each.name).options), ""]
        if each.readings:
            parts += ["How the paper is read:", "", *(f"- {escaped(reading)}" for reading in each.readings), ""]
    return "\n".join(parts)


def escaped(text: str) -> str:
    """Text of a docstring without what Markdown would take for its own, outside of code."""
    return "".join(part if i % 2 else re.sub(r"([*_<\[])", r"\\\1", part) for i, part in enumerate(re.split(r"(`+[^`]*`+)", text)))


def names() -> str:
    """Every data set, partition and model with its options."""
    parts = ["# Data sets, partitions, models", "", MADE]
    parts.append(
        "The names that `data.name`, `data.partition` and `model.name` may have. Your own files: [Bring your data](data.md).\n"
    )
    for title, kind, registry in (
        ("Data sets", "data", SOURCES),
        ("Partitions", "partition", PARTITIONS),
        ("Models", "model", MODELS),
    ):
        ours = [name for name in registry if registry.origin(name) is None]
        parts += [
            f"## {title}",
            "",
            table((kind, "what it is"), [(f"`{name}`", escaped(registry.entry(name).summary)) for name in ours]),
            "",
        ]
        if kind == "data":
            parts += [
                "Further names are files and folders in `$CFLJAX_DATA`: `NAME.npz` (arrays `x_train`, `y_train`, `x_test`, "
                "`y_test`, and `user_train`, `user_test` if samples have owners), MNIST's IDX files, CIFAR's binary files, LEAF's "
                "JSON, what `cfljax data import SOURCE` has made, and the "
                "image classification sets of tensorflow-datasets (`cfljax data prepare NAME` first).\n"
            ]
        for name in ours:
            if dataclasses.fields(registry.entry(name).options):
                parts += [f"### {name}", "", options(registry.entry(name).options), ""]
    return "\n".join(parts)


PAGES = {"spec.md": spec, "commands.md": commands, "methods.md": methods, "names.md": names}


def main() -> int:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page().rstrip() + "\n")
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
