"""What the machine can do, measured: float32 matrix products and copying."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def best(f: Callable[[], Any], seconds: float = 1.0, least: int = 5) -> float:
    """The fastest of several calls: what the machine can do when nothing disturbs it."""
    f()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < least or time.perf_counter() - begin < seconds:
        at = time.perf_counter()
        f()
        times.append(time.perf_counter() - at)
    return min(times)


def peaks(size: int = 2048, copied: int = 1 << 26, seconds: float = 1.0) -> dict[str, Any]:
    """Operations per second of a square float32 product, by numpy's library and by XLA, and bytes
    per second read and written by a copy. `flops` is the larger of the two products."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    x, out = np.zeros(copied, np.float32), np.empty(copied, np.float32)
    found: dict[str, Any] = {"numpy_flops": 2 * size**3 / best(lambda: a @ b, seconds)}
    da, db = jnp.asarray(a), jnp.asarray(b)
    with jax.default_matmul_precision("highest"):
        product = jax.jit(jnp.matmul)
        found["jax_flops"] = (
            2 * size**3 / best(lambda: product(da, db).block_until_ready(), seconds)
        )
    found["copy_bytes_per_s"] = 2 * x.nbytes / best(lambda: np.copyto(out, x), seconds)
    found["flops"] = max(found["numpy_flops"], found["jax_flops"])
    return found | describe()


def describe() -> dict[str, Any]:
    """Processor, cores and versions."""
    from cfljax.store import provenance

    return {"cpu": _cpu(), "cores": cores(), **provenance()}


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        import platform

        return platform.processor() or platform.machine()
