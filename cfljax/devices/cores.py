"""The cores of a CPU: which ones a process may use, and how they become JAX's devices or
threads."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

from cfljax.lazy import jax

# The largest number of devices that the cores are divided into: each device holds the data set once
MAX_CORE_DEVICES = 8
ACCELERATORS = {"tpu": ("accel[0-9]*", "vfio/[0-9]*"), "cuda12": ("nvidia[0-9]*",)}
"""What JAX must be installed with -> the device files that Linux has of such accelerators."""
DEVICE_VARIABLES = (
    *("JAX_BACKEND_TARGET", "JAX_PLATFORM_NAME", "JAX_NUM_CPU_DEVICES"),
    *("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH"),
)
"""Variables by which JAX may find other devices than a CPU, or several."""


def list_cores() -> list[int]:
    """List the processors that this process may use."""
    return (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )


PATIENCE = (
    "--xla_cpu_collective_call_terminate_timeout_seconds=1000000 "
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600"
)
"""Flags that let XLA wait for a slow device. It would end the process when one of a CPU's devices
waits 40 seconds for another, as happens with one very large client, or on a laptop that slept."""


def use_cores(count: int | None = None) -> None:
    """Make each core (or `count` of them) a device, so that a round's participants are dealt to
    them. Does nothing if the user has chosen a number of devices, or has computed something
    already."""
    flags = os.environ.get("XLA_FLAGS", "")
    if getattr(jax.config, "jax_num_cpu_devices", -1) > 0 or "device_count" in flags:
        return
    # A flag that a later XLA did not know would end the process, too
    known = jax.__version_info__ < (
        0,
        13,
    )
    if known and "collective_call" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {PATIENCE}".strip()
    with contextlib.suppress(RuntimeError):  # JAX has begun with one device
        jax.config.update("jax_num_cpu_devices", count or min(MAX_CORE_DEVICES, len(list_cores())))


def keep_to(processors: list[int]) -> None:
    """Use these processors only; XLA then has as many threads. Call this before the first
    computation."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)


def find_accelerator(dev: Path = Path("/dev")) -> str | None:
    """Return the JAX extra for the accelerator that has a file in `dev`; None: there is none."""
    return next(
        (
            word
            for word, files in ACCELERATORS.items()
            if any(list(dev.glob(name)) for name in files)
        ),
        None,
    )


def has_only_cpu(dev: Path = Path("/dev")) -> bool:
    """Return whether JAX would find one CPU device and nothing else, without importing it; False:
    JAX must be asked. It is True if JAX_PLATFORMS asks for a CPU, or if nothing is asked for,
    nothing installed brings another platform, and no accelerator has a file in `dev`."""
    platform = os.environ.get("JAX_PLATFORMS") or None
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if (
        "jax" in sys.modules
        or platform not in (None, "cpu")
        or any(os.environ.get(name) for name in DEVICE_VARIABLES)
    ):
        return False
    if flags and (
        flags[0] != "-" or "device_count" in flags
    ):  # what begins otherwise is a file of flags
        return False
    if platform == "cpu":
        return True
    brought = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return not (
        brought or find_accelerator(dev) or importlib.metadata.entry_points(group="jax_plugins")
    )


_threads: int | None = None


def count_threads() -> int:
    """Return the number of threads JAX computes with on a CPU: as many as the process had cores
    when JAX started."""
    return _threads or len(list_cores())


def use_threads(count: int) -> None:
    """Let JAX compute with `count` threads, on any cores: as many as the process may use at the
    start. No effect later."""
    global _threads
    free = list_cores()
    if _has_started() or count >= len(free) or not hasattr(os, "sched_setaffinity"):
        return
    keep_to(free[:count])
    jax.devices()
    _threads = count
    tasks = Path("/proc/self/task")
    threads = [task.name for task in tasks.iterdir()] if tasks.is_dir() else ["0"]
    for thread in threads:
        with contextlib.suppress(OSError):  # a thread may have ended meanwhile
            os.sched_setaffinity(int(thread), free)


def _has_started() -> bool:
    """Return whether JAX has devices already: then their number cannot be changed."""
    before = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_num_cpu_devices", before + 2)
        jax.config.update("jax_num_cpu_devices", before)
    except RuntimeError:
        return True
    return False
