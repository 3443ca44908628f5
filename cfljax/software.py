"""What decides the bits of a result besides the run itself: the sources of this package, the
versions of the packages that compute, and the flags of XLA. Checkpoints, caches of programs and
records all ask here."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = ("jax", "jaxlib", "numpy", "flax", "optax", "scikit-learn", "scipy")
"""The packages that compute results, or that programs are made with. scikit-learn and scipy find
clusters, also between rounds."""


@functools.cache
def software() -> dict[str, str]:
    """Return what decides the bits, by name: for cfljax 16 digits of the SHA-256 of its Python and
    TOML files, for other packages their versions. It is looked up once per process."""
    found = {
        "cfljax sources": _sources(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    found |= {name: version(name) for name in PACKAGES}
    flags = [
        flag for flag in os.environ.get("XLA_FLAGS", "").split() if "collective_call" not in flag
    ]  # those are time limits
    return found | ({"XLA_FLAGS": " ".join(flags)} if flags else {})


@functools.cache
def software_hash() -> str:
    """Return the SHA-256 of `software()`."""
    return hashlib.sha256(json.dumps(software()).encode()).hexdigest()


def version(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _sources() -> str:
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")]):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
