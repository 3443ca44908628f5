"""The run command: one run, its curve and its summary."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cfljax.commands import Parser, add_plugin_flag, parser_of, warn_of_divergence
from cfljax.errors import ALIASES, SpecError

if TYPE_CHECKING:
    import numpy as np


COLUMNS = ("round", "accuracy", "accuracy_worst10", "rmse", "loss", "ari", "clusters")


class _WithOptions(Parser):
    """Takes a flag that it does not know as an option of the run: `--lr 0.1` is `--set lr=0.1`."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments as argparse does, after unknown flags have become `--set` flags."""
        words = list(sys.argv[1:] if args is None else args)
        known = []
        while words:
            flag, equals, value = words.pop(0).partition("=")
            ours = any(each.startswith(flag) for each in self._option_string_actions)
            if ours or not flag.startswith("--") or not flag[2:].isidentifier():
                known.append(flag + equals + value)
            elif not equals and not words:
                self.error(f"{flag}: its value is missing")
            else:
                known += ["--set", f"{flag[2:]}={value if equals else words.pop(0)}"]
        return super().parse_args(known, namespace)


def parser(prog: str = "python -m cfljax.run") -> argparse.ArgumentParser:
    """Make the parser."""
    flags = parser_of("run", prog, _WithOptions)
    flags.add_argument("method", help="the method; python -m cfljax.methods lists all")
    flags.add_argument("--data", default="digits", help="the data set (digits)")
    flags.add_argument("--model", default="mlp", help="the model (mlp)")
    flags.add_argument("--seed", type=int, default=0, help="random seed (0)")
    flags.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option, as train.lr=0.1 or method.mu=1",
    )
    add_plugin_flag(flags)
    flags.add_argument("--quiet", action="store_true", help="print no progress")
    return flags


def run(flags: argparse.Namespace) -> int:
    """Run, and print the history's last rows and the summary."""
    from cfljax.api import one_run
    from cfljax.config import plugins
    from cfljax.store.quantities import score_of

    plugins.load(flags.plugin)
    names = {
        "data": {"name": flags.data},
        "model": {"name": flags.model},
        "method": [{"name": flags.method}],
    }
    sets = [_complete_key(flag, flags.method) for flag in flags.set]
    result = one_run(names | {"seeds": [flags.seed]}, sets, progress=not flags.quiet)
    print(last_rows(result.history, score=score_of(result.record)))
    print(result)
    warn_of_divergence([result.record])
    return 0


def last_rows(history: Mapping[str, np.ndarray], rows: int = 10, score: str = "accuracy") -> str:
    """Format the last evaluations of a run as a table. `score`: what its scores are called.
    (Importing pandas for it would take a tenth of a short run's time.)"""
    names = [each.replace("accuracy", score) for each in COLUMNS]
    shown = {name: history[name][-rows:] for name in names if name in history}
    texts = {
        name: [name, *(_format_value(name, value) for value in values)]
        for name, values in shown.items()
    }
    columns = [[text.rjust(max(map(len, column))) for text in column] for column in texts.values()]
    return "\n".join(" ".join(line) for line in zip(*columns, strict=True))


def _format_value(name: str, value: float) -> str:
    """Format a value of a history; a value that differs from itself is NaN."""
    if value != value:
        return "NaN"
    return str(value) if name == "round" else f"{value:.4f}"


def _complete_key(flag: str, method: str) -> str:
    """Write the flag as a sweep takes it, which may have several methods: `method.mu=1` and `mu=1`
    become `method.fedprox.mu=1`."""
    from cfljax.config import Train
    from cfljax.config.layers import SETTABLE_KEYS
    from cfljax.config.values import list_fields
    from cfljax.federation import PARTITIONS
    from cfljax.methods import METHODS

    key, equals, value = flag.partition("=")
    parts = key.strip().split(".")
    if len(parts) == 1 and parts[0] not in SETTABLE_KEYS:
        own = list_fields(METHODS.entry(method, "method").options)
        if parts[0] in own and parts[0] in list_fields(Train):
            raise SpecError(
                f"--{parts[0]}: is an option of train and of {method}; write "
                f"train.{parts[0]} or method.{parts[0]}"
            )
        name = ALIASES.get(parts[0], parts[0])
        of_data = any(name in list_fields(PARTITIONS.entry(each).options) for each in PARTITIONS)
        if of_data and not {name, parts[0]} & {*own, *list_fields(Train)}:
            raise SpecError(
                f"--{parts[0]}: is an option of data; write --set data.{name}={value or '…'}"
            )
        parts.insert(0, "train" if name in list_fields(Train) else "method")
    if parts[0] == "method" and len(parts) > 1 and parts[1] not in (method, "train"):
        parts.insert(1, method)
    return ".".join(parts) + equals + value
