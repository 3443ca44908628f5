"""The registry of data sets that a program makes or reads, and the form in which readers offer data
files that were found."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from cfljax.registry import Registry
from cfljax.registry.options import option
from cfljax.types import Source

# A Source, or its arrays by name: `x_train, y_train, x_test, y_test`, and optionally `user_train,
# user_test, population_train, population_test, y_coarse_train, y_coarse_test, table`
SourceArrays = Source | Mapping[str, np.ndarray]


class DrawSource(Protocol):
    """A data set that the program draws or brings along."""

    def __call__(self, options: Any, rng: np.random.Generator, /) -> SourceArrays:
        """Make the data set for an instance of its Options class. `rng` is seeded by the data set's
        name and `data.seed`."""


class ReadSource(Protocol):
    """A data set that the program reads from the user's folders."""

    def __call__(self, options: Any, rng: np.random.Generator, where: list[Path]) -> SourceArrays:
        """Read the data set; `where` lists the folders (or the one file) to search."""


MakeSource = DrawSource | ReadSource

SOURCES: Registry[MakeSource] = Registry(
    "data set",
    {
        "digits": "cfljax.data.generated:DIGITS",
        "synthetic": "cfljax.data.generated:SYNTHETIC",
        "blobs": "cfljax.data.generated:BLOBS",
    },
    "cfljax.data",
)


def reads_folders(make: MakeSource) -> bool:
    """Return whether the program reads the user's folders: it has a parameter `where`."""
    return "where" in inspect.signature(make).parameters


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Options of data sets that are read from files."""

    classes: int | None = option(None, "number of classes; default: the largest label + 1", low=1)
    checksums: bool = option(
        True, "compare files of well-known data sets with their published checksums"
    )


class Reader(NamedTuple):
    """A data set whose files have been found and not read."""

    read: Callable[[FileOptions], Source]
    files: Callable[[], list[tuple[str, Path]]]
    """(role, file) of all that is read; the role says what the file is for, and does not depend on
    its path."""
