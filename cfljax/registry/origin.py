"""Where something that is not the package's own comes from: the sum of its source is part of a run's identity, so that
results of two versions of a user's method never mix."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cfljax.registry.meaning import meaning
from cfljax.registry.sources import own, program, program_of


class Origin(NamedTuple):
    """What a registry remembers of a user's entry."""

    code: str
    """SHA-256 of the source, 64 hexadecimal digits."""
    plugin: str = ""
    """The file or module that another process loads to have it, too; "" where that is not known."""


_loading: list[Origin] = []


@contextlib.contextmanager
def loading(origin: Origin) -> Iterator[None]:
    """What is registered inside comes from there."""
    _loading.append(origin)
    try:
        yield
    finally:
        _loading.pop()


_looks = [0]
"""How often configurations were read: what is live is looked at once each time."""


def look_again() -> None:
    """A configuration is read: what was registered without a file may mean something else since the last one."""
    _looks[0] += 1


class Live:
    """What is registered by a notebook, a script or a module that no plugin names. It means what its functions, and what they refer
    to, mean now; a module's file counts as a whole, too."""

    def __init__(self, make: Callable[..., Any], options: type):
        self.things = (make, options)
        self.file = sum_of(_program_around(getattr(make, "__module__", None) or ""))
        self.last: Origin | None = None
        self.unknown: list[str] = []
        self._look = -1

    def now(self) -> Origin:
        """The sum of it."""
        if self.last is None or self._look != _looks[0]:
            self._look = _looks[0]
            code, self.unknown = meaning(*self.things)
            self.last = Origin(hashlib.sha256(f"{self.file} {code}".encode()).hexdigest())
        return self.last


def _program_around(module: str) -> list[Path]:
    """The files of the program that a module is part of; none of a notebook, and of cfljax."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or not Path(file).is_file() or module.partition(".")[0] == "cfljax":
        return []
    return program([Path(file)]) if own(file) else [] if module == "__main__" else program_of(module)


def origin_of(make: Callable[..., Any], options: type) -> Origin | Live:
    """Of something that is being registered: the plugin being loaded, or its own meaning."""
    return _loading[-1] if _loading else Live(make, options)


def sum_of(files: list[Path]) -> str:
    """SHA-256 over the contents of files, in this order."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()
