"""Where a registered entry comes from that is not part of the package. The sum of its source is part of a run's id, so that results
of two versions of a user's method never mix."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cfljax.registry.meaning import meaning
from cfljax.registry.sources import is_users, program, program_of


class Origin(NamedTuple):
    """Where a user's entry comes from."""

    code: str
    """SHA-256 of the source, 64 hexadecimal digits."""
    plugin: str = ""
    """The file or module that another process must load to have the entry; "" where none is known."""


_loading: list[Origin] = []


@contextlib.contextmanager
def loading(origin: Origin) -> Iterator[None]:
    """Give this origin to everything that is registered in this context."""
    _loading.append(origin)
    try:
        yield
    finally:
        _loading.pop()


_looks = [0]
"""How often specs were read. A live entry is summed again once for each of them."""


def look_again() -> None:
    """Tell live entries that a spec is read: since the last one, what was registered without a file may mean something else."""
    _looks[0] += 1


class Live:
    """The origin of an entry that a notebook, a script or a module registers without being named as a plugin. Its sum is made of
    what the entry's functions, and all that they refer to, mean now, and of the files of the module that it is defined in."""

    def __init__(self, make: Callable[..., object], options: type):
        self.things = (make, options)
        self.file = sum_of(_program_around(getattr(make, "__module__", None) or ""))
        self.last: Origin | None = None
        self.unknown: list[str] = []
        self._look = -1

    def now(self) -> Origin:
        """The origin as of now."""
        if self.last is None or self._look != _looks[0]:
            self._look = _looks[0]
            code, self.unknown = meaning(*self.things)
            self.last = Origin(hashlib.sha256(f"{self.file} {code}".encode()).hexdigest())
        return self.last


def _program_around(module: str) -> list[Path]:
    """The files of the program that a module is part of; no files for a notebook and for cfljax itself."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or not Path(file).is_file() or module.partition(".")[0] == "cfljax":
        return []
    return program([Path(file)]) if is_users(file) else [] if module == "__main__" else program_of(module)


def origin_of(make: Callable[..., object], options: type) -> Origin | Live:
    """The origin of an entry that is being registered: the plugin that is being loaded, else what the entry means."""
    return _loading[-1] if _loading else Live(make, options)


def sum_of(files: list[Path]) -> str:
    """SHA-256 over the contents of files, in this order."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()
