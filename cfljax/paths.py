"""Where cfljax keeps what it may lose."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$CFLJAX_CACHE`, or cfljax's place in the user's cache folder."""
    named = os.environ.get("CFLJAX_CACHE")
    return Path(named).expanduser() if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cfljax"


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
