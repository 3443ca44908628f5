"""Where cfljax keeps what it may lose, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """`$CFLJAX_CACHE`, or cfljax's place in the user's cache folder."""
    if named := os.environ.get("CFLJAX_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cfljax"


@contextlib.contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """`with written_whole(file) as part`: what is written to `part` is then safely on disk as `file`; nothing where it fails.
    For files that can be made again; those of a results folder go through `store.atomic`."""
    part = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def use_compilation_cache() -> None:
    """Keep compiled programs between processes, unless the user has chosen a cache of their own."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = cache_folder() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home: programs are compiled again each time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
