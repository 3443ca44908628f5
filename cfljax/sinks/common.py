"""What sinks share: a run as plain numbers, and packages that may be missing."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.errors import SpecError
from cfljax.results.result import Result

PLACE = "logs"
"""Below the results folder."""


def need(package: str, sink: str) -> Any:
    """The package, or a SpecError that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise SpecError(f'--log {sink}: needs the package {package}, which is not there: pip install "cfljax[{sink}]"') from error


def place(folder: Path, sink: str) -> Path:
    """Where a sink keeps its files."""
    made = folder / PLACE / sink
    made.mkdir(parents=True, exist_ok=True)
    return made


def title(result: Result) -> str:
    """How a run is called: its label, what varies, its seed."""
    varies = (f"{name.rpartition('.')[2]}={value}" for name, value in result.record.get("varies", {}).items())
    return " ".join([result.label, *varies, f"seed={result.seed}"])


def rows(result: Result) -> Iterator[tuple[int, dict[str, float]]]:
    """(round, quantity -> number) per evaluation; what is not finite is left out."""
    history = result.history
    rounds = history.get("round", np.zeros(0))
    curves = {name: values for name, values in history.items() if name != "round" and values.shape == rounds.shape}
    for at, number in enumerate(rounds):
        yield int(number), {name: float(values[at]) for name, values in curves.items() if math.isfinite(values[at])}


def summary(result: Result) -> dict[str, float]:
    """The headline numbers that are known."""
    found = result.summary | {f"seconds_{name}": value for name, value in result.record.get("timings", {}).items()}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables with dotted names."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found
