"""HOST. The programs of a batch that trains for less time than they take to compile: cut at the programs that methods share."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from cfljax.devices.cut import Cut, cut
from cfljax.engine.program import over_runs
from cfljax.engine.settings import Assembled
from cfljax.lazy import jax
from cfljax.types import Tree


def is_cut(parts: Assembled) -> bool:
    """Whether the programs of this batch are cut: those of short runs, on one device of a CPU. Longer ones do without the calls
    between the pieces, which cost a tenth of a round of ten milliseconds."""
    return parts.plan.quick and parts.plan.sequential and parts.settings.sequential and parts.mesh is None


def cut_of_runs(parts: Assembled, f: Callable[..., Tree], forms: tuple[Tree, ...], mapped: int, lost: int = 0) -> Cut:
    """The pieces of a function of one run, as a function of runs (`over_runs`). `lost`: as in `cut`."""
    return cut(jax.jit(over_runs(inspect.unwrap(f), parts.settings, mapped)).trace(*forms), lost)


def check_types(before: Tree, after: Tree) -> None:
    """TypeError where what runs carry has other shapes or types after a round than before it."""
    types = lambda of: {jax.tree_util.keystr(at): f"{a.dtype}{list(a.shape)}" for at, a in jax.tree.leaves_with_path(of)}  # noqa: E731
    old, new = types(before), types(after)
    changed = [f"{name}: {old.get(name)}, then {new.get(name)}" for name in old | new if old.get(name) != new.get(name)]
    if changed:
        raise TypeError(f"a round must not change the shapes and types of a state: {'; '.join(changed)}")


def rounds_by(advance: Callable[..., tuple[Tree, Tree]]) -> Callable[..., tuple[Tree, Tree]]:
    """The function of several rounds, from that of one: as `Program.rounds`."""

    def rounds(carry: Tree, keys: jax.Array, hyper: Tree, federation: Tree, bounds: np.ndarray) -> tuple[Tree, Tree]:
        report: Tree = None
        for t in range(int(bounds[0]), int(bounds[1])):
            carry, report = advance(carry, keys, hyper, federation, np.int32(t))
        return carry, report

    return rounds
