"""HOST. Compile programs in threads, and keep them for later batches of this process of the same shapes and static options."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from cfljax.devices.quick import quick_options
from cfljax.files import lock_in_cache
from cfljax.lazy import Transformed, jax, jit
from cfljax.types import Tree

MAX_KEPT = 96
"""The number of results that `remember` keeps: a program takes some memory maps, whose number per process is limited."""
SHARED_PREFIX = "shared_"
"""The prefix of the names of shared functions in a jaxpr."""
compilations = 0
"""How many programs this process has compiled."""
_threads = ThreadPoolExecutor(16)
_kept: dict[Hashable, Any] = {}
_shared: list[Transformed[..., Any]] = []
Args = ParamSpec("Args")
Out = TypeVar("Out")


def shared_function(static: tuple[int, ...] = ()) -> Callable[[Callable[Args, Out]], Callable[Args, Out]]:
    """Mark a function as shared: programs that are split (`devices.split`) call it as a separate program. It must depend on its
    arguments only. `static`: the positions of those that are no arrays."""

    def mark(f: Callable[Args, Out]) -> Callable[Args, Out]:
        f.__name__ = SHARED_PREFIX + f.__name__.strip("_")
        _shared.append(jit(static_argnums=static)(f))
        return _shared[-1]

    return mark


def remember(key: Hashable, make: Callable[[], Out]) -> Out:
    """Return what `make` returned for this key before, or call it. With the key None, always call it."""
    if key is None:
        return make()
    if key not in _kept:
        if len(_kept) >= MAX_KEPT:
            forget()
        _kept[key] = make()
    made: Out = _kept[key]
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
    """Trace and lower a jitted function now, for arguments of these shapes, types and shardings, and compile it in a thread. `key`:
    all that is static in f, so that it is compiled once; None: it is not kept. `quick`: compiling takes longer than running."""
    whole_key = None if key is None else (key, shape_key(forms), quick)
    if whole_key in _kept and _kept[whole_key].done() and _kept[whole_key].exception():
        del _kept[whole_key]  # there was no memory then

    def start() -> Future[jax.stages.Compiled]:
        global compilations
        compilations += 1
        options = quick_options() if quick else None
        return _threads.submit(_compile, f.lower(*forms), options)

    return remember(whole_key, start)


def _compile(lowered: jax.stages.Lowered, options: dict[str, str | bool] | None) -> jax.stages.Compiled:
    """Compile a program; of processes with one persistent cache, one compiles it and the others wait."""
    with lock_in_cache(hashlib.sha256(lowered.as_text().encode()).hexdigest()):
        return lowered.compile(options)
