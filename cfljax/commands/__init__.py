"""The commands. Each module has `parser(prog)`, its flags, and `run(flags)`, which prints and
returns the exit code."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cfljax.errors import SpecError

if TYPE_CHECKING:
    from cfljax.registry.options import Table

_HELP = tomllib.loads(Path(__file__).with_name("help.toml").read_text("utf-8"))
COMMANDS: dict[str, str] = {name: texts["summary"] for name, texts in _HELP.items()}
"""Name -> what the command does."""
MAX_WORKERS = 10_000


class Parser(argparse.ArgumentParser):
    """The parser of a command: its errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Do as argparse does, without the usage."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def command_parser(
    prog: str, about: str, examples: str, kind: type[Parser] = Parser
) -> argparse.ArgumentParser:
    """Make a parser for the command `prog`, with the examples at the end of its help."""
    form = argparse.RawDescriptionHelpFormatter
    return kind(prog=prog, description=about, epilog=f"examples:\n{examples}", formatter_class=form)


def parser_of(name: str, prog: str, kind: type[Parser] = Parser) -> argparse.ArgumentParser:
    """Make the parser of a command of the package, with its texts in help.toml."""
    return command_parser(prog, _HELP[name]["about"], _HELP[name]["examples"], kind)


def add_plugin_flag(
    flags: argparse.ArgumentParser, help: str = "load your own methods, models, … from it"
) -> None:
    """Add the flag that names plug-ins."""
    flags.add_argument("--plugin", action="append", default=[], metavar="FILE.py", help=help)


def load_plugins(flags: argparse.Namespace) -> None:
    """Load what `--plugin` names."""
    if flags.plugin:
        from cfljax.config import plugins

        plugins.load(flags.plugin)


def add_flags_of_sweeps(flags: argparse.ArgumentParser) -> None:
    """Add the flags that `sweep` and `tune` have in common."""
    add = flags.add_argument
    add("--out", metavar="DIR", help="results folder (default: results/<name of the sweep>)")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override; lists and ranges are grid axes; of two values for one key the last counts",
    )
    add_plugin_flag(flags)
    add(
        "--dry-run",
        action="store_true",
        help="print what would run and what it needs; train nothing",
    )
    add(
        "--keep",
        choices=("state", "models", "labels", "none"),
        default="labels",
        help="what a run keeps in addition to its curves; state: also what it takes to continue it",
    )
    add("--no-report", action="store_true", help="do not write the page DIR/report/index.html")
    add("--no-cache", action="store_true", help="do not cache compiled programs")
    add("--quiet", action="store_true", help="print no progress")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="number of processes (default: one per CPU core, one on an accelerator)",
    )
    add("--as-worker", help=argparse.SUPPRESS)
    add("--processors", help=argparse.SUPPRESS)


def check_workers(flags: argparse.Namespace) -> None:
    """Reject a number of workers that no machine has."""
    if flags.workers is not None and not 1 <= flags.workers <= MAX_WORKERS:
        raise SpecError(f"--workers {flags.workers}: must be from 1 to {MAX_WORKERS}")


def list_sweep_flags(flags: argparse.Namespace, folder: str | Path) -> list[str]:
    """Return the flags of `add_flags_of_sweeps` for a worker on the same folder."""
    words = ["--out", str(folder), "--keep", flags.keep] + ["--no-cache"] * flags.no_cache
    words += [word for flag in flags.set for word in ("--set", flag)]
    return words + [word for flag in flags.plugin for word in ("--plugin", flag)]


def read_starter(name: str) -> str:
    """Read a file in `starter/`, from which users' files are made."""
    return (Path(__file__).parent / "starter" / name).read_text(encoding="utf-8")


def format_link(path: Path) -> str:
    """Format the path of a file, in a terminal as a link to it."""
    return (
        f"\033]8;;{path.resolve().as_uri()}\033\\{path}\033]8;;\033\\"
        if sys.stdout.isatty()
        else str(path)
    )


def warn_of_divergence(records: Iterable[Table]) -> None:
    """Say on standard error, if runs diverged, when they did and what to lower."""
    if lost := [record for record in records if record["status"] == "diverged"]:
        runs = "a run" if len(lost) == 1 else f"{len(lost)} runs"
        rates = ", ".join(
            f"{rate:g}" for rate in sorted({record["config"]["train"]["lr"] for record in lost})
        )
        first = min(record["diverged_at"] for record in lost)
        print(
            f"cfljax: {runs} diverged, the first in round {first}: lower train.lr ({rates})",
            file=sys.stderr,
        )


def accuracy(text: str) -> float:
    """Parse a flag that takes an accuracy: a fraction above 0 and up to 1."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(
            f"{text}: must be a fraction above 0 and up to 1, as in 0.9"
        )
    return value
