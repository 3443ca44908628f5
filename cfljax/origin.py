"""Where something that is not the package's own comes from: the sum of its source is part of a run's identity, so that
results of two versions of a user's method never mix."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


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


def origin_of(make: Callable[..., Any], options: type) -> Origin:
    """Of something that is being registered: the plugin being loaded, the file that defines it, or (in a notebook) its own
    lines."""
    if _loading:
        return _loading[-1]
    file = getattr(sys.modules.get(getattr(make, "__module__", "")), "__file__", None)
    if file and file.endswith(".py") and Path(file).is_file():
        return Origin(sum_of([Path(file)]))
    text = "\n".join(_source(thing) for thing in (make, options))
    return Origin(hashlib.sha256(text.encode()).hexdigest())


def sum_of(files: list[Path]) -> str:
    """SHA-256 over the contents of files, in this order."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed at a prompt
        code = getattr(thing, "__code__", None)
        return _code(code) if code is not None else repr(thing)


def _code(code: types.CodeType) -> str:
    inner = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"
