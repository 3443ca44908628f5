"""HOST. The compiled programs of this process, which batches of the same shapes and static options share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from cfljax.devices.own_program import forget_many_traces, forget_traces
from cfljax.devices.quick import quick_options
from cfljax.files import locked_in_cache
from cfljax.lazy import jax
from cfljax.types import Tree

KEPT = 128
"""Programs that a process keeps, those that it used last: each holds some memory maps, and their number per process is limited."""
REMEMBERED = 32
"""How many results of `remembered` a process keeps, those that it used last: programs of kinds of batches, and evaluations."""
THREADS = 16
"""The most programs that are compiled at the same time."""
compilations = 0
"""How many programs this process has compiled."""
_programs: dict[Hashable, jax.stages.Compiled] = {}
"""Compiled program by (name, mesh, shapes and types of its arguments)."""
_remembered: dict[Hashable, Tree] = {}
"""What `remembered` has made, by name."""
Out = TypeVar("Out")


class Source(NamedTuple):
    """A function that is to be compiled."""

    f: Callable[..., Tree]
    forms: tuple[Tree, ...]
    """The shapes and types of its arguments (and, on a mesh, where they lie), as `jax.ShapeDtypeStruct`."""
    name: Hashable
    """Names everything static that f was made from, so that a program of that name is compiled once; None: it is not kept. A string
    is the sum of a program's bytes (`devices.portable`)."""
    mesh: jax.sharding.Mesh | None
    donate: tuple[int, ...] = ()
    """Positions of arguments whose memory f may reuse."""
    quick: bool = False
    """Whether compiling, and not running, takes the time: see `devices.quick`."""


def forget() -> None:
    """Drop the programs of this process, and the memory that they map."""
    forget_traces()
    _programs.clear()
    _remembered.clear()


def remembered(name: Hashable, make: Callable[[], tuple[Out, float]]) -> tuple[Out, float]:
    """What `make` returns; if it was called for this name before, its first result then, and no seconds."""
    if name in _remembered:
        _remembered[name] = _remembered.pop(name)  # the last one now
        return _remembered[name], 0.0
    result, seconds = make()
    _remembered[name] = result
    _drop_oldest(_remembered, REMEMBERED)
    return result, seconds


def shapes(tree: Tree) -> Hashable:
    """The structure of a tree, and the shapes and types of its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def _drop_oldest(kept: dict[Hashable, Tree], most: int) -> None:
    while len(kept) > most:
        kept.pop(next(iter(kept)))


def compiled(sources: Iterable[Source]) -> tuple[list[jax.stages.Compiled], float]:
    """(the compiled functions, seconds until they were). They are traced one after another, as `sources` gives them, and compiled
    at the same time, each from when it has been traced."""
    global compilations
    begin, keys = time.perf_counter(), []
    made: dict[Hashable, Future[jax.stages.Compiled]] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for at, source in enumerate(sources):
            key = at if source.name is None else _key(source)
            keys.append(key)
            if key in _programs:
                _programs[key] = _programs.pop(key)  # the last one now
            elif key not in made:
                quick_options()  # once, and not in each thread
                made[key] = pool.submit(_compile, _lowered(source), source)
    programs = {key: made[key].result() if key in made else _programs[key] for key in keys}
    if not made:
        return [programs[key] for key in keys], 0.0
    compilations += len(made)
    _programs.update({key: program for key, program in programs.items() if not isinstance(key, int)})
    _drop_oldest(_programs, KEPT)
    forget_many_traces()
    return [programs[key] for key in keys], time.perf_counter() - begin


def _key(source: Source) -> Hashable:
    return (source.name, source.mesh, shapes(source.forms), source.donate, source.quick)


def _lowered(source: Source) -> jax.stages.Lowered:
    return jax.jit(source.f, donate_argnums=source.donate).lower(*source.forms)


def _compile(lowered: jax.stages.Lowered, source: Source) -> jax.stages.Compiled:
    """The program. Of several processes with one cache of compiled programs, one compiles it and the others wait for that."""
    text = f"{source.name} {source.donate} {source.quick}" if isinstance(source.name, str) else lowered.as_text()
    with locked_in_cache(hashlib.sha256(text.encode()).hexdigest()[:32]):
        return lowered.compile(quick_options() if source.quick else None)
