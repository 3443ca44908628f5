"""Where cfljax keeps what it may lose."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$CFLJAX_CACHE`, or cfljax's place in the user's cache folder."""
    if "CFLJAX_CACHE" in os.environ:
        return Path(os.environ["CFLJAX_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cfljax"
