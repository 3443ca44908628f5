"""All that page and figures show, read from the results once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cfljax.report.compare import Row, rows
from cfljax.report.curves import Curves, chosen, curves
from cfljax.report.detail import Detail, detail
from cfljax.report.gather import Collected, Configuration, collect, combine
from cfljax.results.result import Results
from cfljax.store import DamagedWarning, OlderWarning

_TOLD = (DamagedWarning, OlderWarning)
"""What the report tells of its folders."""


class Content(NamedTuple):
    """The table has all configurations, `drawn` those of the figures."""

    collected: Collected
    table: list[Row]
    drawn: list[Configuration]
    curves: list[Curves]
    """One per drawn configuration."""
    details: list[Detail | None]
    problems: list[str]
    """Files that could not be read, and folders with results of older versions; a line each."""
    target: float | None


def read(folders: Sequence[str | os.PathLike[str]], target: float | None = None) -> Content:
    """Everything from the folders; StoreError when one of them is no results folder."""
    return _content(lambda: collect(folders, target), target)


def of(results: Results) -> Content:
    """Everything of results that are read already."""
    return _content(lambda: combine([results]), results.target)


def _content(collecting: Callable[[], Collected], target: float | None) -> Content:
    problems: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for kind in _TOLD:
            warnings.simplefilter("always", kind)
        collected = collecting()
        drawn = chosen(collected.configurations)
        lines = [curves(configuration, problems) for configuration in drawn]
        details = [detail(configuration, problems) for configuration in drawn]
    said = [str(w.message) for w in caught if issubclass(w.category, _TOLD)] + problems
    return Content(collected, rows(collected.configurations), drawn, lines, details, list(dict.fromkeys(said)), target)
