"""The flags of an import, and the forms in which its readers return what they find."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The flags of the command `data import`."""

    label: str | None = None
    """Column of the labels."""
    user: str | None = None
    """Column of the owners of samples."""
    coarse: str | None = None
    """Column of coarse labels."""
    x: tuple[str, ...] = ()
    """Columns of the samples; empty: all columns but label, owner and `drop`."""
    drop: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    """The shape of one sample: (height, width) for images, any shape for numbers."""
    grey: bool = False
    by_user: bool = False
    """Images and sounds: the first folder level is the owner, the second the class."""
    by_domain: bool = False
    """Images: the first folder level is the domain, which owns its images; the second the class, or train and test."""
    user_in_name: str | None = None
    """Sounds: a pattern of the names of files, with {user} where they name the owner."""
    seconds: float | None = None
    """Sounds: to which length they are cut or filled up; None: that of the longest."""
    log_mel: int = 0
    """Sounds: bands of the features that they become; 0: they stay numbers from −1 to 1."""
    text: str | None = None
    """Column of texts, which become tokens."""
    tokens: str = ""
    """What a token is, of `tokens.KINDS`; "": words where texts have classes, else characters."""
    length: int | None = None
    """Tokens of a sample."""
    vocabulary: int | None = None
    """The most tokens that are learned."""
    vectors: int = 0
    """Numbers of a token's random vector, for models that need one; 0: samples are the tokens' numbers."""
    next_token: bool = False
    """Whether the next token is the label, whatever labels there are."""
    test: str | None = None
    """Another file or folder with the test samples."""
    test_fraction: float = 0.2


class Part(NamedTuple):
    """Training or test samples as they were read: labels and owners are still names."""

    x: np.ndarray
    y: np.ndarray
    user: np.ndarray | None = None
    class_names: list[str] | None = None
    """The names of the classes, if the file has them; then y holds positions in this list."""
    coarse: np.ndarray | None = None
    """The coarse label of each sample, a name as well."""


class Columns(NamedTuple):
    """A table whose columns are read when they are needed."""

    where: str
    names: list[str]
    rows: int
    column: Callable[[str], np.ndarray]
    """(name) -> the values of a column, [n, …]."""
    class_names: dict[str, list[str]]
    """For each label column that holds positions: the list of names."""
    owners: np.ndarray | None = None
    """Who owns each row, where it is the place of the rows that says so, not a column."""
