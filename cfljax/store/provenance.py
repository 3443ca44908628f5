"""Where a result comes from: versions, device, git state."""

from __future__ import annotations

import functools
import subprocess

from cfljax.lazy import jax
from cfljax.registry.options import Table
from cfljax.software import software, version
from cfljax.store import errata


def provenance() -> Table:
    """Return {versions, device, git, errata} for a record; git is None without it. Each is looked
    up once per process."""
    return {
        "versions": {"cfljax": version("cfljax"), **software()},
        "device": device(),
        "git": git(),
        errata.RECORD_KEY: len(errata.read_errata()),
    }


@functools.cache
def device() -> str:
    """Return backend, kind and number of the devices: "cpu, 1" or "gpu NVIDIA H200, 2"; starts the
    backend."""
    devices = jax.devices()
    platform_name = devices[0].platform
    kind = devices[0].device_kind
    return f"{platform_name}{'' if kind.lower() == platform_name else ' ' + kind}, {len(devices)}"


@functools.cache
def git() -> Table | None:
    """Return {commit, dirty} of the repository around the current folder, or None."""
    commit = _run_git("rev-parse", "HEAD")
    changes = _run_git("status", "--porcelain", "--untracked-files=no")
    if not commit:
        return None
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _run_git(*words: str) -> str | None:
    """Return what git prints; None if it is missing, fails or hangs."""
    try:
        answer = subprocess.run(
            ["git", *words],
            timeout=5,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
