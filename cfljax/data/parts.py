"""What an import is asked for, and what its readers find."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the command's flags say."""

    label: str | None = None
    """Column of the labels."""
    user: str | None = None
    """Column of the owners."""
    x: tuple[str, ...] = ()
    """Columns of the samples; empty: all others."""
    drop: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    """Of one sample: (height, width) for images, any for numbers."""
    grey: bool = False
    by_user: bool = False
    """Images: the first folder level is the owner, the second the class."""
    test: str | None = None
    """Another file or folder with the test samples."""
    test_fraction: float = 0.2


class Part(NamedTuple):
    """Samples as they are found: labels and owners are still names."""

    x: np.ndarray
    y: np.ndarray
    user: np.ndarray | None = None
    class_names: list[str] | None = None
    """Where the file has them: then y holds their positions."""


class Table(NamedTuple):
    """Columns as they are found."""

    where: str
    names: list[str]
    rows: int
    column: Callable[[str], np.ndarray]
    """Reads one, [n, …]; only those that are wanted are read."""
    class_names: dict[str, list[str]]
    """Of label columns that hold positions of names."""
