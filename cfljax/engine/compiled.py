"""HOST. The compiled programs of this process, which batches of the same shapes and static options share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp

from cfljax.types import Tree

KEPT = 64
"""Programs that a process keeps, the newest: each holds some memory maps, and their number per process is limited."""
compilations = 0
"""How many programs this process has compiled."""
_programs: dict[Hashable, Callable[..., Tree]] = {}
"""Compiled program by (name, mesh, shapes and types of its arguments)."""


def forget() -> None:
    """Drop the compiled programs of this process, and the memory that they map."""
    _programs.clear()


def compiled(
    f: Callable[..., Tree], args: tuple[Tree, ...], name: Hashable, mesh: jax.sharding.Mesh | None, donate: tuple[int, ...] = ()
) -> tuple[Callable[..., Tree], float]:
    """(f compiled for arguments like these, seconds of compiling). `name`: of everything static that f was made from, so that a
    program of that name is compiled once; None: it is not kept. `donate`: positions of arguments whose memory f may reuse."""
    global compilations
    shapes = jax.tree.map(lambda a: (jnp.shape(a), str(jnp.result_type(a))), args)
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[1], str))
    key = (name, mesh, tuple(leaves), structure)
    if name is not None and key in _programs:
        return _programs[key], 0.0
    begin = time.perf_counter()
    forms = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a), sharding=None if mesh is None else a.sharding), args
    )
    program = jax.jit(f, donate_argnums=donate).lower(*forms).compile()
    compilations += 1
    seconds = time.perf_counter() - begin
    if name is not None:
        _programs[key] = program
        if len(_programs) > KEPT:
            _programs.pop(next(iter(_programs)))
    return program, seconds
