"""Where a result comes from: versions, device, git state."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from typing import Any


def provenance() -> dict[str, Any]:
    """{versions, device, git} for a record; git is None outside a repository or without git. Asked once a process."""
    return {"versions": versions(), "device": device(), "git": git()}


def versions() -> dict[str, str]:
    """Versions of cfljax, jax, jaxlib, numpy and Python."""
    found = {"python": platform.python_version()}
    for name in ("cfljax", "jax", "jaxlib", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@functools.cache
def device() -> str:
    """Backend, kind and number of the devices: "cpu, 1" or "gpu NVIDIA H200, 2"; starts the backend."""
    import jax

    devices = jax.devices()
    platform_name, kind = devices[0].platform, devices[0].device_kind
    return f"{platform_name}{'' if kind.lower() == platform_name else ' ' + kind}, {len(devices)}"


@functools.cache
def git() -> dict[str, Any] | None:
    """{commit, dirty} of the repository around the current folder, or None."""
    commit = _ask("rev-parse", "HEAD")
    changes = _ask("status", "--porcelain", "--untracked-files=no")
    return None if not commit else {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _ask(*words: str) -> str | None:
    try:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8"}
        answer = subprocess.run(["git", *words], timeout=5, check=False, **pipes)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
