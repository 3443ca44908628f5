"""What finding a data set's files gives: something that reads them, and which they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cfljax.types import Source

if TYPE_CHECKING:
    from cfljax.data.files import FileOptions


class Reader(NamedTuple):
    """Files that have been found and not read."""

    read: Callable[[FileOptions], Source]
    files: Callable[[], list[tuple[str, Path]]]
    """(role, file) of all that is read; the role is what the file is for, wherever it lies."""
