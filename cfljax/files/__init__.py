"""The cache folder, and files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cfljax import lazy
from cfljax.lazy import jax

MOST_BYTES = 2 << 30
"""The most that compiled programs take up in the cache folder when a process begins."""


def cache_folder() -> Path:
    """`$CFLJAX_CACHE`, or the folder of cfljax in the user's cache folder. Everything in it can be made again."""
    if named := os.environ.get("CFLJAX_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cfljax"


@contextlib.contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """`with written_whole(file) as part`: what is written to `part` becomes `file` at the end, safely on disk; after an error,
    `file` is unchanged. It is for files that can be made again; files of a results folder go through `store.atomic`."""
    part = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def read_table(file: Path, good: Callable[[object], bool]) -> dict[str, Any]:
    """What `write_table` has kept in the cache; nothing where the file is not there or has a value that is not `good`."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and all(map(good, found.values())) else {}


def write_table(file: Path, kept: dict[str, Any]) -> None:
    """Keep a table of numbers that can be made again: of two processes at once the last one's counts, in a read-only home none."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as part:
            part.write_text(json.dumps(kept), encoding="utf-8")


def programs_folder() -> Path | None:
    """The folder in which JAX keeps compiled programs; None where it keeps none, as with an empty JAX_COMPILATION_CACHE_DIR."""
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    return Path(str(folder)) if folder else None


@contextlib.contextmanager
def locked_in_cache(name: str) -> Iterator[None]:
    """In this context, no other process of this machine that uses the cache of compiled programs is in one with the same name.
    Without such a cache, and where files cannot be locked, nothing is locked."""
    folder = programs_folder()
    if folder is None:
        yield
        return
    try:
        import fcntl

        place = folder / "locks"
        place.mkdir(exist_ok=True)
        file = (place / name[:2]).open("w", encoding="utf-8")  # few files: programs with equal first letters wait for each other
    except (ImportError, OSError):
        yield
        return
    with file:
        with contextlib.suppress(OSError):  # a network's disk on which nothing can be locked
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def drop_oldest(folder: Path, most: int) -> None:
    """Remove the compiled programs that have not been used for the longest time, while all together have more bytes than this. One
    that another process wants at this moment is compiled again there."""
    files = []
    for file in folder.glob("*-cache"):
        with contextlib.suppress(OSError):
            about = file.stat()
            files.append((max(about.st_atime, about.st_mtime), about.st_size, file))
    excess = sum(size for _, size, _ in files) - most
    for _, size, file in sorted(files):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            file.unlink()
        excess -= size


def drop_programs(name: str) -> None:
    """Remove the compiled programs with this name from the cache, as one of them cannot be read. JAX would leave it there, and so
    compile it at each start."""
    if folder := programs_folder():
        for file in folder.glob(f"{glob.escape(name)}-*-cache"):
            with contextlib.suppress(OSError):
                file.unlink()


def use_compilation_cache() -> None:
    """Keep compiled programs between processes in the cache folder, unless the user has chosen another one. The setting is
    JAX's own, and holds for all that the process compiles from then on."""
    lazy.when_loaded(_use_compilation_cache)


def _use_compilation_cache() -> None:
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = cache_folder() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home: programs are compiled again each time
    drop_oldest(folder, MOST_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
