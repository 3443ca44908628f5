"""What all readers of data files share: the options that they take, and the form in which they offer files that were found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cfljax.registry.options import option
from cfljax.types import Source


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Options of data sets that are read from files."""

    classes: int | None = option(None, "number of classes; default: the largest label + 1", low=1)
    checksums: bool = option(True, "compare files of well-known data sets with their published checksums")


class Reader(NamedTuple):
    """A data set whose files have been found and not read."""

    read: Callable[[FileOptions], Source]
    files: Callable[[], list[tuple[str, Path]]]
    """(role, file) of all that is read; the role says what the file is for, and does not depend on where it lies."""
