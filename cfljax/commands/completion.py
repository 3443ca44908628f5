"""Shell completion, written out from the commands' own parsers. What follows `--set` is asked for
when it is typed."""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from cfljax.commands import COMMANDS, read_starter
from cfljax.config.values import Field, list_fields
from cfljax.data import SOURCES
from cfljax.federation import PARTITIONS
from cfljax.federation.views import PRESETS
from cfljax.methods import METHODS
from cfljax.models import MODELS

NAMES: dict[str, Iterable[str]] = {
    "data.name": SOURCES,
    "data.partition": [*PARTITIONS, *PRESETS],
    "model.name": MODELS,
    "method": METHODS,
}
"""Key of a spec -> the names that it takes."""


class Words(NamedTuple):
    """The words that may follow a command."""

    flags: dict[str, tuple[str, ...]]  # Flag -> the values that it takes; () if it takes any
    first: tuple[str, ...]  # Words that may come first, where other commands take a file


def words_of(name: str) -> Words:
    """Return the flags and words of a command."""
    from cfljax.launch import LAUNCHERS
    from cfljax.launch.search_plan import METRICS
    from cfljax.sinks import SINKS

    known: dict[str, Iterable[str]] = {
        "data": SOURCES,
        "model": MODELS,
        "log": SINKS,
        "launcher": LAUNCHERS,
        "metric": METRICS,
    }
    module = importlib.import_module(f"cfljax.commands.{name}")
    parsers, first = [module.parser()], []
    for action in parsers[0]._actions:
        if isinstance(action, argparse._SubParsersAction):
            first += list(action.choices)
            parsers += list(action.choices.values())
    first += {"run": list(METHODS), "methods": list(METHODS), "data": list(SOURCES)}.get(name, [])
    actions = [
        action
        for parser in parsers
        for action in parser._actions
        if action.help != argparse.SUPPRESS
    ]
    flags = {
        flag: tuple(map(str, a.choices or known.get(a.dest, ())))
        for a in actions
        for flag in a.option_strings
        if flag[:2] == "--"
    }
    return Words(flags, tuple(first))


def set_words(begun: str) -> list[str]:
    """List what may stand after `--set` after this has been typed: keys, or after a key each of its
    values."""
    from cfljax.config import Train
    from cfljax.config.data import DataOptions

    key, equals, _ = begun.partition("=")
    table = key.partition(".")[0]
    inside: dict[str, list[type]] = {
        "data": [DataOptions],
        "train": [Train],
        "model": [],
        "method": [],
    }
    if table in ("data", "model") and "." in key:
        inside[table] += [
            registry.entry(name).options for registry in NAMED[table] for name in registry
        ]
    if key.count(".") == 2 and key.split(".")[1] in METHODS:
        table = key.rpartition(".")[0]
        inside[table] = [METHODS.entry(key.split(".")[1]).options]
    fields: dict[str, Field] = {
        f"{at}.{name}": f
        for at, kinds in inside.items()
        for kind in kinds
        for name, f in list_fields(kind).items()
    }
    if equals:
        field = fields.get(key)
        values = NAMES.get(key) or (
            ()
            if field is None
            else field.meta.get("choices") or (("true", "false") if field.hint is bool else ())
        )
        found = [f"{key}={value}" for value in values]
    else:
        found = [f"{each}=" for each in ("seeds", *NAMES, *fields)] + [
            f"method.{name}." for name in METHODS if key.startswith("method.")
        ]
    return [word for word in found if word.startswith(begun) and word != begun]


NAMED = {
    "data": (SOURCES, PARTITIONS),
    "model": (MODELS,),
}  # Table of a spec -> the registries whose entries have options in it


def bash() -> str:
    """Return the script for bash: source it, or put it where bash-completion looks."""
    every = {name: words_of(name) for name in COMMANDS}
    taken = {
        f"{name} {flag}": values
        for name, words in every.items()
        for flag, values in words.flags.items()
        if values
    }
    parts = {"COMMANDS": " ".join([*COMMANDS, "completion"])}
    parts["VALUES"] = "\n".join(
        f'      "{flag}") values="{" ".join(values)}" ;;' for flag, values in taken.items()
    )
    lines = {name: (*words.first, *words.flags) for name, words in every.items()} | {
        "completion": tuple(SHELLS)
    }
    parts["WORDS"] = "\n".join(
        f'      {name}) words="{" ".join(words)}" ;;' for name, words in lines.items()
    )
    script = read_starter("completion.bash").rstrip()
    for name, text in parts.items():
        script = script.replace(f"@{name}", text)
    return script


def zsh() -> str:
    """Return the script for zsh, which runs the one for bash."""
    return (
        "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
        + bash()
    )


def fish() -> str:
    """Return the script for fish: put it into ~/.config/fish/completions/cfljax.fish."""
    lines = []
    for name, about in (COMMANDS | {"completion": "completion for a shell"}).items():
        lines.append(
            f"complete -c cfljax -n __fish_use_subcommand -f -a {name} -d {shlex.quote(about)}"
        )
        words = words_of(name) if name in COMMANDS else Words({}, tuple(SHELLS))
        here = f"complete -c cfljax -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{here} -a {shlex.quote(' '.join(words.first))}"] if words.first else []
        for flag, values in words.flags.items():
            asked = (
                "'(cfljax completion words (commandline -ct))'"
                if flag == "--set"
                else shlex.quote(" ".join(values))
            )
            lines.append(
                f"{here} -l {flag[2:]}" + (f" -x -a {asked}" if values or flag == "--set" else "")
            )
    return "\n".join(lines)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
