"""Writes the reference pages from the code: python docs/pages.py

Each page of PAGES is written whole: `spec.md`, `commands.md`, `methods.md`, `names.md` and
`errata.md`; of `metrics.md` its first two tables, and of README its list of methods. A test
compares them with the code.
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
from collections import Counter
from pathlib import Path

from cfljax import errors
from cfljax.commands import COMMANDS
from cfljax.commands.completion import SHELLS
from cfljax.commands.methods import describe
from cfljax.commands.schema import TABLES
from cfljax.config import data, grid, train
from cfljax.data import SOURCES
from cfljax.federation import PARTITIONS, VIEWS
from cfljax.federation.views import PRESETS
from cfljax.methods import METHODS
from cfljax.models import MODELS
from cfljax.registry.options import read_hints, show
from cfljax.round.about import About, Family, Reading
from cfljax.store.errata import read_errata
from cfljax.store.quantities import NEW_CLIENTS, list_quantities

DOCS = Path(__file__).parent
HEAD = ("key", "value", "default", "what")
MADE = "<!-- written by: python docs/pages.py -->\n"
SHARED = 3  # entries of a registry that have a row of options, for it to be written once
FAMILIES: dict[Family, tuple[str, str]] = {
    "global": ("one model for all clients", "no"),
    "clustered": (
        "the model of its cluster",
        "some, and most of these can find it; others need a threshold",
    ),
    "soft": ("a weighted mixture of the clusters' models", "yes"),
    "personal": ("a personalized model, or a personalized part of one", "no"),
}
"""Family -> what a client ends with, and whether its methods need a number of clusters."""
KINDS = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true, false",
    dict: "table",
    type(None): "",
}
LATE = [
    ("clients", "integer", "number of clients that arrive late; or:"),
    ("rate", "number > 0, ≤ 1", "fraction of the clients that arrives late"),
    ("round", "integer ≥ 1", "round in which all of them arrive; or:"),
    ("from, until", "integers", "first and last round of their arrivals"),
]
TOP = [
    ("name", "text", "the sweep's name; its results folder is `results/NAME`"),
    ("seeds", 'list, or `"a:b"`', "random seeds, a run for each; the default is one, 0"),
    (
        "data",
        "table",
        "the data set, its partition, and their options: [below](#data), [data "
        "sets](names.md#data-sets)",
    ),
    ("model", "table or name", "the model and [its options](names.md#models)"),
    ("train", "table", "how clients train, and what a round is: [below](#train)"),
    (
        "method",
        "tables or names",
        "a [method](methods.md) and its options, `label` (its name in tables), and its own "
        "`train` table",
    ),
    ("defaults", "table", "options for every method that has them, such as `clusters = 4`"),
    ("include", "tables", "further grids: each overrides the spec and adds its runs"),
    (
        "exclude",
        "tables",
        'combinations to leave out, if all keys of a table match: `{ method = "ifca", '
        '"train.lr" = 0.5 }`',
    ),
    (
        "size",
        "table of tables",
        "variants: `--set size=small` overrides the spec with the table `[size.small]`",
    ),
    (
        "samples, search_seed",
        "integers",
        "random search: draws of each `{ low = …, high = …, log = true }`, and their seed",
    ),
    ("search", "table", "how `cfljax tune` searches: [below](#search)"),
    (
        "plugins",
        "list of files",
        "files or modules with [your own methods, models, …](own.md), relative to the spec",
    ),
]
CODES = [
    (0, "done", "all runs are done"),
    (1, "some runs failed", "the others are kept; `--retry-failed` runs the failed ones again"),
    (
        errors.SpecError.exit_code,
        "bad input",
        "a wrong flag, key, name or value, before any data are loaded",
    ),
    (errors.StoreError.exit_code, "storage", "the results folder cannot be read or written"),
    (errors.DataError.exit_code, "data", "a data set is missing or broken"),
    (130, "Ctrl-C", "finished work is kept; the same command continues"),
    (143, "SIGTERM", "as after Ctrl-C"),
]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown. Examples in braces become code, because mkdocs takes `{ … }` for
    attributes of the cell."""
    lines = [
        "| " + " | ".join(coded(cell).replace("|", "\\|") for cell in line) + " |"
        for line in (head, *rows)
    ]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def coded(text: str) -> str:
    """Return the text with its tables in braces as code."""
    parts = re.split(r"(`+[^`]*`+)", text)
    return "".join(
        part if i % 2 else re.sub(r"\{[^{}]+\}", r"`\g<0>`", part) for i, part in enumerate(parts)
    )


def accepted(hint: object, meta: typing.Mapping[str, typing.Any]) -> str:
    """Describe the values of an option in words."""
    parts = (
        []
        if meta.get("choices") is None
        else [" ".join(f"`{show(word)}`" for word in meta["choices"])]
    )
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for kind in typing.get_args(hint) if union else (hint,):
        if typing.get_origin(kind) is tuple:
            parts.append(f"list of {KINDS.get(typing.get_args(kind)[0], 'value')}s")
        elif not (kind is str and meta.get("choices")) and dataclasses.is_dataclass(kind) is False:
            parts.append(KINDS.get(typing.get_origin(kind) or kind, ""))
    bounds = {"above": ">", "low": "≥", "high": "≤"}
    limits = [
        f"{word} {meta[key]:g}"
        for key, word in bounds.items()
        if meta.get(key) is not None and meta[key] < 1000
    ]
    return " ".join(
        [", ".join(part for part in dict.fromkeys(parts) if part), ", ".join(limits)]
    ).strip()


def rows_of(cls: type) -> list[tuple[str, ...]]:
    """Return a row for each option of an Options class."""
    hints, rows = read_hints(cls), []
    for field in dataclasses.fields(cls):
        default = "required" if field.default is dataclasses.MISSING else f"`{show(field.default)}`"
        default = default.replace("`none`", "–")
        star = " *" if field.metadata.get("traced") else ""
        what = field.metadata.get("help") or " ".join(
            inspect.cleandoc(field.metadata.get("doc", "")).split()
        )
        rows.append(
            (f"`{field.name}`{star}", accepted(hints[field.name], field.metadata), default, what)
        )
    return rows


def options(cls: type, shared: typing.Collection[tuple[str, ...]] = (), where: str = "") -> str:
    """Return the table of an Options class. Rows in `shared` are only named, with a link to the
    table `where` they are."""
    rows = [row for row in rows_of(cls) if row not in shared]
    often = [key for key, count in Counter(row[0] for row in shared).items() if count > 1]
    named = [
        key.removesuffix(" *")[:-1] + (f" = {default[1:]}" if key in often else "`")
        for key, _, default, _ in (row for row in rows_of(cls) if row in shared)
    ]
    parts = [table(HEAD, rows)] if rows else []
    words = "all shared options" if len(named) == len(shared) else ", ".join(named)
    parts += [f"{'Also' if rows else 'Options:'} [{words}][{where}]."] if named else []
    return "\n\n".join(parts) or "No options."


def shared_rows(classes: list[type], least: int = SHARED) -> list[tuple[str, ...]]:
    """Return the rows that several of these Options classes have in common, one for each name and
    default."""
    counted = Counter(row for cls in classes for row in rows_of(cls))
    first = {(row[0], row[2]): row for row, _ in reversed(counted.most_common())}
    return [
        row for row, count in counted.items() if count >= least and first[row[0], row[2]] == row
    ]


def keys(rows: list[tuple[str, str, str]]) -> str:
    """Return a table of keys that are described by hand."""
    return table(
        ("key", "value", "what"), [(f"`{key.replace(', ', '`, `')}`", *rest) for key, *rest in rows]
    )


def spec() -> str:
    """Every key of a spec."""
    parts = ["# Spec keys", "", MADE]
    parts.append(
        "A spec is a TOML file, or a dict for `cfljax.sweep`. Any value may be a list; "
        "the sweep runs every combination. "
        "`cfljax sweep SPEC.toml --dry-run` checks a spec and prints what it would run. "
        "A grid over values marked * compiles once.\n\n"
        "`cfljax schema` prints the JSON Schema of specs. Save it as `spec.schema.json` and "
        "write `#:schema ./spec.schema.json` "
        "into the first line of a spec: VS Code (Even Better TOML) completes and checks its "
        "keys and values. "
        "`--plugin FILE.py` adds your names.\n"
    )
    parts += ["## Top level", "", keys(TOP), ""]
    words = (
        'A list of numbers may also be written `"0:10"` (integers), `"log(0.001, 0.1, 5)"` or '
        '`"lin(0, 1, 5)"`.'
    )
    parts += [
        words,
        "",
        "## data",
        "",
        "In addition to `name`, `partition` and [their options](names.md):",
        "",
    ]
    parts += [options(data.DataOptions), "", "### data.arrive", "", keys(LATE), ""]
    for name in (each for each in TABLES if each.startswith("data.")):
        parts += [f"### {name}", "", options(TABLES[name]), ""]
    parts += ["## train", "", options(train.Train), ""]
    for name in (each for each in TABLES if each.startswith("train.")):
        parts += [f"### {name}", "", options(TABLES[name]), ""]
    parts += ["## search", "", options(grid.Search), ""]
    return "\n".join(parts)


def commands() -> str:
    """Every command with its flags, and the exit codes."""
    parts = ["# Commands and exit codes", "", MADE]
    parts += [
        "Every command has `--help`, and can be written in two ways: `cfljax sweep` is "
        "`python -m cfljax.sweep`.",
        "",
    ]
    parts += [
        table(
            ("command", "what it does"),
            [(f"[`{name}`](#{name})", about) for name, about in COMMANDS.items()],
        ),
        "",
    ]
    parts += [
        "## Exit codes",
        "",
        table(
            ("code", "when", "what it means"),
            [(str(code), word, more) for code, word, more in CODES],
        ),
        "",
    ]
    parts += [
        "An error is one line on standard error: file, key, value, and the nearest valid value.",
        "",
    ]
    parts += [
        "## Variables of the environment",
        "",
        table(
            ("variable", "what"),
            [
                ("`CFLJAX_DATA`", "the folder of data files"),
                (
                    "`CFLJAX_CACHE`",
                    "the folder of compiled programs, prepared data and hashes of files; it may be "
                    "deleted",
                ),
                ("`CFLJAX_DEBUG`", "1: print errors with their traceback"),
            ],
        ),
        "",
    ]
    words = (
        f"`cfljax completion SHELL` prints a script for {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, "
        "which completes commands, flags, names and files. "
    )
    words += (
        "For bash, put `source <(cfljax completion bash)` into `~/.bashrc`. `cfljax --version` "
        "prints the version."
    )
    parts += ["## Shell completion", "", words, ""]
    for name in COMMANDS:
        parser = importlib.import_module(f"cfljax.commands.{name}").parser(f"cfljax {name}")
        parts += [f"## {name}", "", inspect.cleandoc(parser.description or ""), ""]
        known = (
            flag_rows(importlib.import_module("cfljax.commands.sweep").parser())
            if name == "tune"
            else []
        )
        parts += [
            "It has the flags of [data import](#data-import)."
            if name == "init"
            else "\n".join(flags(parser, known)),
            "",
        ]
    return "\n".join(parts)


def flags(
    parser: argparse.ArgumentParser, known: typing.Collection[tuple[str, str]] = ()
) -> list[str]:
    """Format the flags of a command, and of its actions, as tables. Rows in `known` are those of
    `sweep`, and are only named."""
    rows = flag_rows(parser)
    lines = [table(("flag", "what"), [row for row in rows if row not in known])] if rows else []
    if also := [name.split("`")[1].split()[0] for name, about in rows if (name, about) in known]:
        lines += ["", f"Also, as for [sweep](#sweep): {', '.join(f'`{name}`' for name in also)}."]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            abouts = {each.dest: each.help or "" for each in action._choices_actions}
            for name, sub in action.choices.items():
                about = abouts[name][0].upper() + abouts[name][1:]
                lines += [
                    "",
                    f"### {parser.prog.removeprefix('cfljax ')} {name}",
                    "",
                    f"{about}.",
                    "",
                    *flags(sub),
                ]
    return lines


def flag_rows(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Return a row for each flag of a command."""
    rows = []
    for action in parser._actions:
        if (
            not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
            and action.help != argparse.SUPPRESS
        ):
            value = action.metavar or (
                "{" + ",".join(map(str, action.choices)) + "}"
                if action.choices
                else action.dest.upper()
            )
            shown = (
                action.option_strings[-1]
                if action.option_strings
                else str(action.metavar or action.dest)
            )
            shown += f" {value}" if action.option_strings and action.nargs != 0 else ""
            rows.append((f"`{shown}`", escaped(" ".join((action.help or "").split()))))
    return rows


def methods() -> str:
    """Return the page of all methods: families, a list, then the paper, communication, options and
    readings of each."""
    parts = ["# Methods", "", MADE]
    parts.append(
        "`cfljax methods` lists the methods, `cfljax methods NAME` describes one, and [Which "
        "method when](which.md) compares them. "
        "Options are hyperparameters; a grid over those marked * compiles once. Readings "
        "follow the options: what the paper says, "
        "what is done here, and the option that changes it, if the default is not simply "
        "what the paper says.\n"
    )
    all_methods = {name: describe(name) for name in METHODS if METHODS.origin(name) is None}
    abouts = {name: each.about for name, each in all_methods.items() if each.about is not None}
    assert set(abouts) == set(all_methods), "the file of a method has no ABOUT"
    rows = [(family, *words) for family, words in FAMILIES.items()]
    head = ("family", "a client ends with", "needs a number of clusters?")
    parts += ["## Families", "", table(head, rows), ""]
    parts += [
        "`sent` counts the models that a participant receives and sends in a round. K is the "
        "number of clusters.",
        "",
    ]
    for family, own in by_family(abouts).items():
        head = ("method", "what it is", "paper", "number of clusters", "sent, if not 1 down, 1 up")
        rows = [
            (
                f"[`{name}`](#{name})",
                escaped(all_methods[name].summary),
                paper_of(about),
                clusters_of(name),
                about.models,
            )
            for name, about in own.items()
        ]
        parts += folded(f"{family}: {len(rows)} methods", table(head, rows))
    shared = shared_rows([METHODS.entry(name).options for name in all_methods], 2)
    parts += ["## Shared options", "", table(HEAD, shared), ""]
    for each in all_methods.values():
        parts += [f"## {each.name}", "", *head_of(abouts[each.name])]
        parts += [options(METHODS.entry(each.name).options, shared, "shared"), ""]
        noted = METHODS.entry(each.name).options.diagnostics
        if noted:
            said = "; ".join(f"`{name}`: {quantity.words}" for name, quantity in noted.items())
            parts += [f"Diagnostics: {said}.", ""]
        readings = [reading for reading in each.readings if not reading.follows_paper]
        twin = next(name for name, other in all_methods.items() if other.readings == each.readings)
        same = readings and twin != each.name
        if same:
            parts += [f"Readings: as for [`{twin}`](#{twin}).", ""]
        elif readings:
            many = f"{len(readings)} readings" if len(readings) > 1 else "1 reading"
            parts += folded(many, "\n".join(readings_of(readings)).strip())
    return "\n".join([*parts, "[shared]: #shared-options"])


def by_family(abouts: typing.Mapping[str, About]) -> dict[Family, dict[str, About]]:
    """Return the methods of each family."""
    return {
        family: {name: about for name, about in abouts.items() if about.family == family}
        for family in FAMILIES
    }


def paper_of(about: About) -> str:
    """Return the paper of a method in a cell: who, when and where, with the link; "" for none."""
    if not about.paper:
        return ""
    words = " ".join(word for word in (about.authors, str(about.year), about.venue) if word)
    return f"[{words}]({about.link})" if about.link else words


def folded(summary: str, text: str) -> list[str]:
    """Return the lines of a part of a page that opens at a click."""
    head = f'<details markdown="1"><summary>{summary}</summary>'
    return [head, "", text, "", "</details>", ""]


def readme() -> str:
    """Return the README with its list of methods by family. The rest of it is written by hand."""
    abouts = {
        name: about
        for name in METHODS
        if METHODS.origin(name) is None and (about := describe(name).about) is not None
    }
    parts = []
    for family, own in by_family(abouts).items():
        words, _ = FAMILIES[family]
        rows = [
            (
                f"[`{name}`](docs/methods.md#{name})",
                about.title,
                f"[{about.paper}]({about.link})" if about.link else about.paper,
                f"{about.authors} {about.year}" if about.paper else "",
                about.venue,
            )
            for name, about in own.items()
        ]
        found = table(("method", "name", "paper", "by", "venue"), rows)
        head = f"<b>{family}</b>: {words} ({len(rows)} methods)"
        parts += ["<details>", f"<summary>{head}</summary>", "", found, "", "</details>", ""]
    text = (DOCS.parent / "README.md").read_text()
    begin, end = "<!-- methods: written by python docs/pages.py -->", "<!-- methods -->"
    before, _, rest = text.partition(begin)
    listed = "\n".join(parts).strip()
    return f"{before}{begin}\n\n{listed}\n\n{end}{rest.partition(end)[2]}"


def head_of(about: About) -> list[str]:
    """Return the paper of a method, and what is sent if it is not a model down and an update up."""
    parts = []
    if about.paper:
        title = f"[{about.paper}]({about.link})" if about.link else about.paper
        words = (f"{about.authors} {about.year}", title, about.venue)
        parts.append(f"{', '.join(word for word in words if word)}.")
    if about.communication != About._field_defaults["communication"]:
        parts.append(f"Sent: {escaped(about.communication)}.")
    return [" ".join(parts), ""] if parts else []


def readings_of(readings: typing.Iterable[Reading]) -> list[str]:
    """Return the lines of a list of readings."""
    lines = [f"- {escaped(reading.text)}" for reading in readings]
    return [*lines, ""] if lines else []


def clusters_of(name: str) -> str:
    """Return whether a method is given the number of clusters."""
    names = {field.name for field in dataclasses.fields(METHODS.entry(name).options)}
    if name == "oracle":
        return "the true groups"
    return "given" if "clusters" in names else "–"


def escaped(text: str) -> str:
    """Return the text of a docstring with Markdown's own characters escaped, outside of code.
    Inside words _ has no effect."""
    parts = re.split(r"(`+[^`]*`+)", text)
    return "".join(
        part if i % 2 else re.sub(r"([*<\[]|(?<!\w)_|_(?!\w))", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def names() -> str:
    """Return the page of all data sets, partitions and models with their options."""
    words = (
        "Values of `data.name`, `data.partition`, `model.name`, and their options. Custom data: "
        "[Bring your data](data.md).\n"
    )
    parts = ["# Data sets, partitions, models", "", MADE, words]
    kinds = (
        ("Data sets", "data", SOURCES),
        ("Partitions", "partition", PARTITIONS),
        ("Models", "model", MODELS),
    )
    for title, kind, registry in kinds:
        ours = [name for name in registry if registry.origin(name) is None]
        about = [(f"`{name}`", escaped(about_of(registry.entry(name).summary))) for name in ours]
        parts += [f"## {title}", "", table((kind, "what it is"), about), ""]
        if kind == "data":
            parts += [
                "Further names are files and folders in `$CFLJAX_DATA`: `NAME.npz` (arrays "
                "`x_train`, `y_train`, `x_test`, "
                "`y_test`, and `user_train`, `user_test` if samples belong to users), MNIST's "
                "IDX files, CIFAR's binary files, LEAF's "
                "JSON, data of `cfljax data import SOURCE`, and the "
                "image classification sets of tensorflow-datasets (`cfljax data prepare "
                "NAME` first).\n"
            ]
        if kind == "partition":
            views = ", ".join(f"`{name}`" for name in VIEWS)
            parts += [
                f"{views} are [views](clients.md#shifts-that-combine), too; a view has the "
                "options of its own section below.\n"
            ]
            words = (
                "Names that a spec may give as `data.partition`, for data of ten classes. Each "
                "key may be overridden."
            )
            presets = [(f"`{name}`", f"`{show(preset)}`") for name, preset in PRESETS.items()]
            parts += [
                "### Presets",
                "",
                words,
                "",
                table(("preset", "what it stands for"), presets),
                "",
            ]
        if shared := shared_rows([registry.entry(name).options for name in ours]):
            parts += [
                f"### Shared {kind} options",
                "",
                table(HEAD, shared),
                "",
                f"[{kind}]: #shared-{kind}-options",
                "",
            ]
        for name in ours:
            if dataclasses.fields(registry.entry(name).options):
                parts += [
                    f"### {name}",
                    "",
                    options(registry.entry(name).options, shared, kind),
                    "",
                ]
    return "\n".join(parts)


def about_of(summary: str) -> str:
    """Return what a model is, from the summary of the function that builds it."""
    words = re.sub(r"^Build (an? )?", "", summary)
    return words[0].upper() + words[1:]


def errata() -> str:
    """Return the page of faults that are mended."""
    parts = [
        "# Errata",
        MADE,
        "Faults that changed results in silence, and are mended. A fault concerns only the runs "
        "that its section names, by the keys of a run's configuration. `cfljax report`, `cfljax "
        "load` and `cfljax.load` print a line if a results folder has such runs of an earlier "
        "version. A record says how many of these faults were mended when its run was computed. "
        "Run the spec of such a folder again in a new folder.\n",
    ]
    for each in reversed(read_errata()):
        conditions = " ".join(f"`{show(table)}`" for table in each.where)
        parts += [
            f"## {each.id}\n",
            f"**{each.title}.** {each.what}\n",
            f"- How far off: {each.off}",
            f"- Versions: up to {each.until}, before commit `{each.mended}`.",
            f"- Runs: {conditions or 'a record does not tell, so no line is printed'}\n",
        ]
    return "\n".join(parts)


def metrics() -> str:
    """Return the page of metrics with the tables of the summary's quantities. The rest of it is
    written by hand."""
    names = [f"{NEW_CLIENTS}{steps}" for steps in (0, 5, "unlabelled")]
    every = list_quantities([*names, "ari_new"])
    text = (DOCS / "metrics.md").read_text()
    for name, asked in (("summary", False), ("asked", True)):
        rows: dict[str, list[str]] = {}
        for each in every:
            if bool(each.ask) == asked:
                rows.setdefault(each.help, []).append(f"`{each.key}`")
        found = table(
            ("column", "what it is"), [(", ".join(keys), what) for what, keys in rows.items()]
        )
        begin, end = f"<!-- {name}: written by python docs/pages.py -->", f"<!-- {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{found}\n\n{end}{rest.partition(end)[2]}"
    return text


PAGES = {
    "spec.md": spec,
    "commands.md": commands,
    "methods.md": methods,
    "names.md": names,
    "errata.md": errata,
    "metrics.md": metrics,
    "../README.md": readme,
}


def main() -> int:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page().rstrip() + "\n")
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
