"""Shell completion, written out from the commands' own parsers."""

from __future__ import annotations

import argparse
import importlib
import shlex
from typing import NamedTuple

from cfljax.commands import COMMANDS


class Words(NamedTuple):
    """The words that may follow a command."""

    flags: dict[str, tuple[str, ...]]
    """Flag -> the values that it takes; () if it takes any."""
    first: tuple[str, ...]
    """Words that may stand in the first place, where other commands take a file."""


def words_of(name: str) -> Words:
    """The flags and words of a command."""
    from cfljax.data import SOURCES
    from cfljax.methods import METHODS

    module = importlib.import_module(f"cfljax.commands.{name}")
    parsers, first = [module.parser()], []
    for action in parsers[0]._actions:
        if isinstance(action, argparse._SubParsersAction):
            first += list(action.choices)
            parsers += list(action.choices.values())
    first += {"run": list(METHODS), "methods": list(METHODS), "data": list(SOURCES)}.get(name, [])
    flags: dict[str, tuple[str, ...]] = {}
    for parser in parsers:
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                flags |= {flag: tuple(map(str, action.choices or ())) for flag in action.option_strings if flag.startswith("--")}
    return Words(flags, tuple(first))


def bash() -> str:
    """The script for bash: source it, or put it where bash-completion looks."""
    lines = ["_cfljax() {", '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words="" values=""']
    lines += ['  if [ "$COMP_CWORD" -eq 1 ]; then', f'    words="{" ".join([*COMMANDS, "completion"])}"', "  else"]
    lines += ['    case "${COMP_WORDS[1]} $before" in']
    every = {name: words_of(name) for name in COMMANDS}
    for name, words in every.items():
        lines += [f'      "{name} {flag}") values="{" ".join(values)}" ;;' for flag, values in words.flags.items() if values]
    lines += ["    esac", '    case "${COMP_WORDS[1]}" in']
    lines += [f'      {name}) words="{" ".join((*words.first, *words.flags))}" ;;' for name, words in every.items()]
    lines += ['      completion) words="bash zsh fish" ;;', "    esac", "  fi"]
    lines += ['  if [ -n "$values" ]; then words="$values"; fi', '  COMPREPLY=($(compgen -W "$words" -- "$current"))']
    lines += ['  if [ "$COMP_CWORD" -gt 1 ] && [ -z "$values" ]; then COMPREPLY+=($(compgen -f -- "$current")); fi', "}"]
    return "\n".join([*lines, "complete -o filenames -F _cfljax cfljax"])


def zsh() -> str:
    """The script for zsh, which runs the one for bash."""
    return "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + bash()


def fish() -> str:
    """The script for fish: put it into ~/.config/fish/completions/cfljax.fish."""
    lines = []
    for name, about in COMMANDS.items():
        lines.append(f"complete -c cfljax -n __fish_use_subcommand -f -a {name} -d {shlex.quote(about)}")
        words, here = words_of(name), f"-n '__fish_seen_subcommand_from {name}'"
        if words.first:
            lines.append(f"complete -c cfljax {here} -a {shlex.quote(' '.join(words.first))}")
        for flag, values in words.flags.items():
            more = f" -x -a {shlex.quote(' '.join(values))}" if values else ""
            lines.append(f"complete -c cfljax {here} -l {flag[2:]}{more}")
    lines.append("complete -c cfljax -n __fish_use_subcommand -f -a completion -d 'completion for a shell'")
    lines.append("complete -c cfljax -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'")
    return "\n".join(lines)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
