"""The registry of data sets that a program makes or reads, and what such a program must look like."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cfljax.registry import Registry
from cfljax.types import Source

SourceArrays = Source | Mapping[str, np.ndarray]
"""A Source, or its arrays by name: `x_train, y_train, x_test, y_test`, and optionally `user_train, user_test, population_train,
population_test, table`."""


class DrawSource(Protocol):
    """A data set that the program draws or brings along."""

    def __call__(self, options: Any, rng: np.random.Generator, /) -> SourceArrays:
        """The data set for an instance of its Options class. `rng` is seeded by the name of the data set and by `data.seed`."""


class ReadSource(Protocol):
    """A data set that the program reads from the user's folders."""

    def __call__(self, options: Any, rng: np.random.Generator, where: list[Path]) -> SourceArrays:
        """As `DrawSource`; `where` lists the folders (or the one file) to look in."""


MakeSource = DrawSource | ReadSource

SOURCES: Registry[MakeSource] = Registry(
    "data set",
    {
        "digits": "cfljax.data.digits:ENTRY",
        "synthetic": "cfljax.data.synthetic:ENTRY",
        "blobs": "cfljax.data.blobs:ENTRY",
        "sent140": "cfljax.data.tweets:ENTRY",
    },
    "cfljax.data",
)


def takes_folders(make: MakeSource) -> bool:
    """Whether the program reads the user's folders: it has a parameter `where`."""
    return "where" in inspect.signature(make).parameters
