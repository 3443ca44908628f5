"""HOST. Compile programs in threads, and keep them for later batches of this process of the same
shapes and static options."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from cfljax.files import lock_in_cache
from cfljax.lazy import Transformed, jax, jit
from cfljax.types import Tree

# The number of results that are kept: a program takes some memory maps, whose number per process is
# limited
MAX_KEPT = 96
# The prefix of the names of shared functions in a jaxpr
SHARED_PREFIX = "shared_"
# How many programs this process has compiled
compilations = 0
_threads = ThreadPoolExecutor(16)
_kept: dict[Hashable, Any] = {}
_shared: list[Transformed[..., Any]] = []
Args = ParamSpec("Args")
Out = TypeVar("Out")


def shared_function(
    static: tuple[int, ...] = (),
) -> Callable[[Callable[Args, Out]], Transformed[Args, Out]]:
    """Mark a function as shared: programs that are split (`devices.split`) call it as a separate
    program. It must depend on its arguments only. `static`: the positions of those that are no
    arrays."""

    def mark(f: Callable[Args, Out]) -> Transformed[Args, Out]:
        f.__name__ = SHARED_PREFIX + f.__name__.strip("_")
        shared: Transformed[Args, Out] = jit(static_argnums=static)(f)
        _shared.append(shared)
        return shared

    return mark


def recall(key: Hashable) -> Any:
    """Return what is kept for this key; None: nothing."""
    return _kept.get(key)


def keep(key: Hashable, made: Out) -> Out:
    """Keep `made` for this key, unless the key is None, and return it."""
    if key is not None:
        if len(_kept) >= MAX_KEPT:
            forget()
        _kept[key] = made
    return made


def forget() -> None:
    """Drop the programs that this process keeps, and the traces of shared functions."""
    _kept.clear()
    for f in _shared:
        f.forget()


def shape_key(tree: Tree) -> Hashable:
    """Return the structure of a tree, and the shapes and types of its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def compile_later(
    f: jax.stages.Wrapped, forms: tuple[Tree, ...], key: Hashable = None, quick: bool = False
) -> Future[jax.stages.Compiled]:
    """Trace and lower a jitted function now, for arguments of these shapes, types and shardings,
    and compile it in a thread. `key`: all that is static in f, so that it is compiled once; None:
    it is not kept. `quick`: compiling takes longer than running."""
    global compilations
    whole_key = None if key is None else (key, shape_key(forms), quick)
    kept: Future[jax.stages.Compiled] | None = recall(whole_key)
    if kept is not None and not (kept.done() and kept.exception()):  # else there was no memory then
        return kept
    compilations += 1
    return keep(
        whole_key, _threads.submit(_compile, f.lower(*forms), quick_options() if quick else None)
    )


def _compile(
    lowered: jax.stages.Lowered, options: dict[str, str | bool] | None
) -> jax.stages.Compiled:
    """Compile a program; of processes with one persistent cache, one compiles it and the others
    wait."""
    with lock_in_cache(hashlib.sha256(lowered.as_text().encode()).hexdigest()):
        return lowered.compile(options)


QUICK: dict[str, str | bool] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": "1",
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
"""XLA's options for it, on a CPU: the older way of making the code of a fusion, all code in one
piece, sums in one step instead of two. Measured: half of the time; small programs then run up to
half as long again, larger ones about as long."""


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
    """Compile f for the host's part of a method, which computes little. It cannot be called inside
    of another program."""

    @functools.cache
    def program() -> Callable[
        ..., Tree
    ]:  # not before the first call, since it asks for the devices
        return jax.jit(f, static_argnums=static, compiler_options=quick_options())

    return functools.wraps(f)(lambda *arguments: program()(*arguments))
