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
import tomllib
import types
import typing
from collections import Counter
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
HEAD = ("key", "value", "default", "what")
MADE = "<!-- written by: python docs/pages.py -->\n"
SHARED = 4  # entries of a registry that have a row of options, for it to be written once
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
    ("rate", "number > 0, ≤ 1", "the fraction of the clients that comes late"),
    ("round", "integer ≥ 1", "the round in which all of them come; or:"),
    ("from, until", "integers", "the first and the last round in which one comes"),
]
TOP = [
    ("name", "text", "the sweep's name; its results folder is `results/NAME`"),
    ("seeds", 'list, or `"a:b"`', "random seeds, a run for each; the default is one, 0"),
    ("data", "table", "the data set, its partition, and their options: [below](#data), [data sets](names.md#data-sets)"),
    ("model", "table or name", "the model and [its options](names.md#models)"),
    ("train", "table", "how clients train and what a round is: [below](#train)"),
    (
        "method",
        "tables or names",
        "a [method](methods.md) and its options; also `label`, its name in tables (else FedAvg, IFCA, …), and a `train` table",
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
    """Return a table in Markdown. Examples in braces become code, because mkdocs takes `{ … }` for attributes of the cell."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(coded(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def coded(text: str) -> str:
    """Return the text with its tables in braces as code."""
    parts = re.split(r"(`+[^`]*`+)", text)
    return "".join(part if i % 2 else re.sub(r"\{[^{}]+\}", r"`\g<0>`", part) for i, part in enumerate(parts))


def accepted(hint: object, meta: typing.Mapping[str, typing.Any]) -> str:
    """Describe the values of an option in words."""
    parts = [] if meta.get("choices") is None else [" ".join(f"`{show(word)}`" for word in meta["choices"])]
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for kind in typing.get_args(hint) if union else (hint,):
        if typing.get_origin(kind) is tuple:
            parts.append(f"list of {KINDS.get(typing.get_args(kind)[0], 'value')}s")
        elif not (kind is str and meta.get("choices")) and dataclasses.is_dataclass(kind) is False:
            parts.append(KINDS.get(typing.get_origin(kind) or kind, ""))
    bounds = {"above": ">", "low": "≥", "high": "≤"}
    limits = [f"{word} {meta[key]:g}" for key, word in bounds.items() if meta.get(key) is not None and meta[key] < 1000]
    return " ".join([", ".join(part for part in dict.fromkeys(parts) if part), ", ".join(limits)]).strip()


def rows_of(cls: type) -> list[tuple[str, ...]]:
    """Return a row for each option of an Options class."""
    hints, rows = typing.get_type_hints(cls), []
    for field in dataclasses.fields(cls):
        default = "required" if field.default is dataclasses.MISSING else f"`{show(field.default)}`"
        default = default.replace("`none`", "–")
        star = " *" if field.metadata.get("traced") else ""
        what = field.metadata.get("help") or " ".join(inspect.cleandoc(field.metadata.get("doc", "")).split())
        rows.append((f"`{field.name}`{star}", accepted(hints[field.name], field.metadata), default, what))
    return rows


def options(cls: type, shared: typing.Collection[tuple[str, ...]] = (), where: str = "") -> str:
    """Return the table of an Options class. Rows in `shared` are only named, with a link to `where` they are described."""
    rows = [row for row in rows_of(cls) if row not in shared]
    named = [row[0] for row in rows_of(cls) if row in shared]
    parts = [table(HEAD, rows)] if rows else []
    parts += [f"{'Also' if rows else 'Options:'} [{', '.join(named)}]({where})."] if named else []
    return "\n\n".join(parts) or "No options."


def shared_rows(classes: list[type]) -> list[tuple[str, ...]]:
    """Return the rows that several of these Options classes have in common."""
    counted = Counter(row for cls in classes for row in rows_of(cls))
    return [row for row, count in counted.items() if count >= SHARED]


def keys(rows: list[tuple[str, str, str]]) -> str:
    """Return a table of keys that are described by hand."""
    return table(("key", "value", "what"), [(f"`{key.replace(', ', '`, `')}`", *rest) for key, *rest in rows])


def spec() -> str:
    """Every key of a spec."""
    parts = ["# Spec keys", "", MADE]
    parts.append(
        "A spec is a TOML file, or a dict for `cfljax.sweep`. Any value may be a list: an axis of the grid. "
        "`cfljax sweep SPEC.toml --dry-run` checks a spec and says what it would run. "
        "Values marked * may vary in a grid without compiling again.\n"
    )
    parts += ["## Top level", "", keys(TOP), ""]
    words = 'An axis of numbers may also be written `"0:10"` (integers), `"log(0.001, 0.1, 5)"` or `"lin(0, 1, 5)"`.'
    parts += [words, "", "## data", "", "Beside `name` and `partition`, and the options of [both](names.md):", ""]
    parts += [options(data.DataOptions), "", "### data.arrive", "", keys(LATE), ""]
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
        ("`CFLJAX_CACHE`", "the folder of compiled programs, prepared data and hashes of files; it may be deleted"),
        ("`CFLJAX_DEBUG`", "1: errors with their traceback"),
    ]), ""]  # fmt: skip
    words = "`cfljax completion SHELL` prints a script for bash, zsh or fish, which completes commands, flags, names, and what "
    words += "follows `--set`: keys and their values. "
    words += "For bash, put `source <(cfljax completion bash)` into `~/.bashrc`. `cfljax --version` prints the version."
    parts += ["## Shell completion", "", words, ""]
    for name in COMMANDS:
        parser = importlib.import_module(f"cfljax.commands.{name}").parser(f"cfljax {name}")
        parts += [f"## {name}", "", inspect.cleandoc(parser.description or ""), ""]
        parts += ["Its flags are those of [data import](#data-import)." if name == "init" else "\n".join(flags(parser)), ""]
    return "\n".join(parts)


def flags(parser: argparse.ArgumentParser) -> list[str]:
    """Format the flags of a command, and of its actions, as tables."""
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
    """Return the page of all methods: families, a list, then the paper, communication, options and readings of each."""
    parts = ["# Methods", "", MADE]
    parts.append(
        "`cfljax methods` lists the methods, and `cfljax methods NAME` prints what this page says about one. "
        "[Which method when](which.md) compares them. Options are hyperparameters of a method; those marked * may vary in a grid "
        "without compiling again.\n"
    )
    told = {name: describe(name) for name in METHODS if METHODS.origin(name) is None}
    families = tomllib.loads((DOCS / "families.toml").read_text())
    rows = [(family, said["ends"], said["clusters"], said["sent"]) for family, said in families.items()]
    head = ("family", "a client ends with", "needs a number of clusters?", "sent by a participant in a round")
    parts += ["## Families", "", table(head, rows), ""]
    parts += [
        "K is the number of clusters. The list counts communication cost in models; what is sent once is under each method.",
        "",
    ]
    rows = [
        (f"[`{name}`](#{name})", family, escaped(told.pop(name).summary), clusters_of(name), sent or "1 down, 1 up")
        for family, said in families.items()
        for name, sent in said["methods"].items()
    ]
    assert not told, f"docs/families.toml lacks {', '.join(told)}"
    parts += [table(("method", "family", "what it is", "number of clusters", "sent"), rows), ""]
    listed = [name for name in METHODS if METHODS.origin(name) is None]
    shared = shared_rows([METHODS.entry(name).options for name in listed])
    parts += ["## Options of several methods", "", table(HEAD, shared), ""]
    for each in map(describe, listed):
        parts += [f"## {each.name}", "", each.summary, ""]
        parts += [f"- Published: {each.paper}"] if each.paper else []
        parts += [f"- Sent each round: {each.communication}", ""]
        parts += [options(METHODS.entry(each.name).options, shared, "#options-of-several-methods"), ""]
        if each.readings:
            said = [escaped(reading.removesuffix(" Option: none.")) for reading in each.readings]
            parts += ["Readings:", "", *(f"- {reading}" for reading in said), ""]
    return "\n".join(parts)


def clusters_of(name: str) -> str:
    """Return whether a method is given the number of clusters."""
    names = {field.name for field in dataclasses.fields(METHODS.entry(name).options)}
    if name == "oracle":
        return "the true groups"
    return ("given, or found" if "auto" in names else "given") if "clusters" in names else "–"


def escaped(text: str) -> str:
    """Text of a docstring without what Markdown would take for its own, outside of code."""
    return "".join(part if i % 2 else re.sub(r"([*_<\[])", r"\\\1", part) for i, part in enumerate(re.split(r"(`+[^`]*`+)", text)))


def names() -> str:
    """Return the page of all data sets, partitions and models with their options."""
    words = (
        "The names that `data.name`, `data.partition` and `model.name` may have. Custom data sets: [Bring your data](data.md).\n"
    )
    parts = ["# Data sets, partitions, models", "", MADE, words]
    kinds = (("Data sets", "data", SOURCES), ("Partitions", "partition", PARTITIONS), ("Models", "model", MODELS))
    for title, kind, registry in kinds:
        ours = [name for name in registry if registry.origin(name) is None]
        about = [(f"`{name}`", escaped(registry.entry(name).summary)) for name in ours]
        parts += [f"## {title}", "", table((kind, "what it is"), about), ""]
        if kind == "data":
            parts += [
                "Further names are files and folders in `$CFLJAX_DATA`: `NAME.npz` (arrays `x_train`, `y_train`, `x_test`, "
                "`y_test`, and `user_train`, `user_test` if samples have owners), MNIST's IDX files, CIFAR's binary files, LEAF's "
                "JSON, what `cfljax data import SOURCE` has made, and the "
                "image classification sets of tensorflow-datasets (`cfljax data prepare NAME` first).\n"
            ]
        if shared := shared_rows([registry.entry(name).options for name in ours]):
            parts += [f"### Options of several {kind}s", "", table(HEAD, shared), ""]
        for name in ours:
            if dataclasses.fields(registry.entry(name).options):
                parts += [f"### {name}", "", options(registry.entry(name).options, shared, f"#options-of-several-{kind}s"), ""]
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
