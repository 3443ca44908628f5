"""What sinks share: their protocol, a run as plain numbers, and the import of packages that may be
missing."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol

from cfljax.errors import SpecError
from cfljax.results.frames import curves
from cfljax.results.result import Result

# The folder of the sinks' files, below the results folder
LOGS_FOLDER = "logs"


class Sink(Protocol):
    """Where the curves of finished runs are sent, besides the results folder."""

    def write(self, result: Result, /) -> None:
        """Send a finished run. A run of the same id that was sent before is replaced, where the
        sink can do that."""


MakeSink = Callable[[Path, str], Sink]
"""The function that a registry entry for a sink has: results folder, name of its sweep -> the
sink."""


def need(package: str, sink: str) -> ModuleType:
    """Import a package; raise a SpecError that says how to install it if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        wanted = (
            f'needs the package {package}, which is not installed: pip install ".[{sink}]" in '
            "the checkout"
        )
        raise SpecError(f"--log {sink}: {wanted}") from error


def folder_of(folder: Path, sink: str) -> Path:
    """Create and return the folder for a sink's files."""
    path = folder / LOGS_FOLDER / sink
    path.mkdir(parents=True, exist_ok=True)
    return path


def title(result: Result) -> str:
    """Name a run by its label, its varying options and its seed."""
    varies = (
        f"{name.rpartition('.')[2]}={value}"
        for name, value in result.record.get("varies", {}).items()
    )
    return " ".join([result.label, *varies, f"seed={result.seed}"])


def rows(result: Result) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield (round, quantity -> number) for each evaluation, without numbers that are not
    finite."""
    history = curves(result.history)
    for at, number in enumerate(history.pop("round")):
        yield (
            int(number),
            {
                name: float(values[at])
                for name, values in history.items()
                if math.isfinite(values[at])
            },
        )


def summary(result: Result) -> dict[str, float]:
    """Return the headline numbers and the seconds of a run, without numbers that are missing or not
    finite."""
    numbers = result.summary | {
        f"seconds_{name}": value for name, value in result.record.get("timings", {}).items()
    }
    return {
        name: float(value)
        for name, value in numbers.items()
        if value is not None and math.isfinite(value)
    }
