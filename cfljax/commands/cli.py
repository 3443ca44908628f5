"""The console command: `cfljax sweep`, `cfljax run`, … are `python -m cfljax.sweep`, `python -m
cfljax.run`, …"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from cfljax import lazy
from cfljax.commands import COMMANDS, process

_HELP = f"""usage: cfljax COMMAND …

Clustered federated learning, simulated fast.

{chr(10).join(f"  {name:<11} {about}" for name, about in COMMANDS.items())}
  completion  print shell completion

`cfljax COMMAND --help` lists its flags; every command is also `python -m cfljax.COMMAND`.

examples:
  cfljax sweep
  cfljax run ifca --clusters 4 --rounds 5 --set data.partition=rotated
  cfljax completion bash > ~/.local/share/bash-completion/completions/cfljax"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else "--help"
    process.replace_unknown_characters()
    if name in ("--help", "-h"):
        print(_HELP)
        return 0
    if name == "--version":
        from cfljax import __version__

        print(f"cfljax {__version__}")
        return 0
    if name == "completion":
        return _completion(words[1:])
    if name not in COMMANDS:
        from cfljax.errors import suggest

        print(
            f"cfljax: {name}: there is no such command{suggest(name, [*COMMANDS, 'completion'])}",
            file=sys.stderr,
        )
        return 2
    return process.run_command(name, f"cfljax {name}", words[1:])


def run_program() -> NoReturn:
    """Run the command that the words after `cfljax` name, and exit."""
    process.answer_signals()
    lazy.wait()
    sys.exit(main())


def _completion(words: list[str]) -> int:
    """Print the completion script of a shell."""
    from cfljax.commands.completion import SHELLS, write_script

    if len(words) != 1 or words[0] not in SHELLS:
        print(f"cfljax completion: give the shell: {', '.join(SHELLS)}", file=sys.stderr)
        return 2
    print(write_script(words[0]))
    return 0


if __name__ == "__main__":
    run_program()
