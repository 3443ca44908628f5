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

# The maximum size of compiled programs in the cache folder when a process starts
MAX_CACHE_BYTES = 2 << 30


def cache_folder() -> Path:
    """Return `$CFLJAX_CACHE`, or cfljax's folder in the user's cache folder. Everything in it can
    be regenerated."""
    if named := os.environ.get("CFLJAX_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cfljax"


@contextlib.contextmanager
def write_whole(file: Path) -> Iterator[Path]:
    """Write a file atomically: in `with write_whole(file) as part`, what is written to `part`
    becomes `file` at the end, safely on disk; after an error `file` is unchanged. For files that
    can be regenerated; files of a results folder go through `store.atomic`."""
    part = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def read_table(file: Path, good: Callable[[object], bool]) -> dict[str, Any]:
    """Read what `write_table` wrote to the cache; return {} if the file is missing or has a value
    that is not `good`."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and all(map(good, found.values())) else {}


def write_table(file: Path, kept: dict[str, Any]) -> None:
    """Write a table of numbers that can be regenerated. If two processes write at once, the last
    one wins; in a read-only home nothing is written."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as part:
            part.write_text(json.dumps(kept), encoding="utf-8")


def programs_folder() -> Path | None:
    """Return JAX's folder of compiled programs; None if it keeps none, as with an empty
    JAX_COMPILATION_CACHE_DIR."""
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    return Path(str(folder)) if folder else None


@contextlib.contextmanager
def lock_in_cache(name: str) -> Iterator[None]:
    """Hold a lock of this name among the processes of this machine that share the cache of compiled
    programs. Without such a cache, or if files cannot be locked, nothing is locked."""
    folder = programs_folder()
    if folder is None:
        yield
        return
    try:
        import fcntl

        place = folder / "locks"
        place.mkdir(exist_ok=True)
        # Few files: programs with equal first letters wait for each other
        file = (place / name[:2]).open("w", encoding="utf-8")
    except (ImportError, OSError):
        yield
        return
    with file:
        with contextlib.suppress(OSError):  # a network's disk on which nothing can be locked
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def drop_oldest(folder: Path, most: int) -> None:
    """Remove the least recently used compiled programs until all together have at most this many
    bytes. A program that another process needs at this moment is compiled again there."""
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
    """Remove the compiled programs of this name from the cache, because one of them cannot be read.
    JAX would leave it there and compile it at each start."""
    if folder := programs_folder():
        for file in folder.glob(f"{glob.escape(name)}-*-cache"):
            with contextlib.suppress(OSError):
                file.unlink()


def use_compilation_cache() -> None:
    """Keep compiled programs between processes in the cache folder, unless the user has chosen
    another one. The setting is JAX's own, and holds for all that the process compiles from then
    on."""
    lazy.when_loaded(_use_compilation_cache)


def _use_compilation_cache() -> None:
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = cache_folder() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        # A read-only home: programs are compiled again each time
        return
    drop_oldest(folder, MAX_CACHE_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
