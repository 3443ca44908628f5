"""Compiling in less time, for programs that take longer to compile than to run."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cfljax.lazy import jax
from cfljax.types import Tree

QUICK: dict[str, str | bool] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": "1",
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
"""XLA's options for it, on a CPU: the older way of making the code of a fusion, all code in one piece, sums in one step instead
of two. Measured: half of the time; small programs then run up to half as long again, larger ones about as long."""


@functools.cache
def quick_options() -> dict[str, str | bool] | None:
    """Return the options of QUICK that this process's XLA has; None if the device is not a CPU."""
    if jax.default_backend() != "cpu":
        return None
    if _is_known(QUICK):
        return QUICK
    return {name: value for name, value in QUICK.items() if _is_known({name: value})}


def _is_known(options: dict[str, str | bool]) -> bool:
    try:
        jax.jit(lambda: 0).lower().compile(options)
    except jax.errors.JaxRuntimeError:
        return False
    return True


@functools.lru_cache(maxsize=64)
def quick_jit(f: Callable[..., Tree], static: tuple[int, ...] = ()) -> Callable[..., Tree]:
    """Compile f for the host's part of a method, which computes little. It cannot be called inside of another program."""

    @functools.cache
    def program() -> Callable[..., Tree]:  # not before the first call, since it asks for the devices
        return jax.jit(f, static_argnums=static, compiler_options=quick_options())

    return functools.wraps(f)(lambda *arguments: program()(*arguments))
