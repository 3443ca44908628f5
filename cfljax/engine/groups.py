"""HOST. The runs of a batch in groups, each of which is computed by one call of the programs: all runs side by side on an
accelerator; on a CPU one run, or one run for each group of devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import placed
from cfljax.devices.spread import by_runs
from cfljax.engine.evaluation import NUMBERS
from cfljax.engine.settings import Assembled
from cfljax.lazy import jax
from cfljax.types import Tree


class Group(NamedTuple):
    """What a group of runs starts from: arrays with a leading axis of its runs, where they are computed on."""

    keys: jax.Array
    hyper: Tree
    setup: Tree
    """What the method has prepared."""

    @property
    def numbers(self) -> Tree:
        """The numbers that an evaluation reads."""
        return {name: self.hyper[name] for name in NUMBERS if name in self.hyper}


def width(parts: Assembled, runs: int) -> int:
    """How many runs are in a group."""
    devices = 1 if parts.mesh is None else int(parts.mesh.shape.get(RUNS, 1))
    return devices if parts.settings.sequential else runs


def grouped(parts: Assembled, group: Group) -> list[Group]:
    """The runs of a batch in groups."""
    runs = group.keys.shape[0]
    size = width(parts, runs)
    return [placed_group(parts, part(tuple(group), at, size)) for at in range(0, runs, size)]


def placed_group(parts: Assembled, arrays: Tree) -> Group:
    """The group of these arrays (keys, numbers, set-ups), where it is computed on."""
    return Group(*(jax.device_put(arrays) if parts.mesh is None else placed(arrays, parts.mesh, True)))


def part(arrays: Tree, first: int, number: int) -> Tree:
    """The runs `first` … `first + number − 1` of arrays with a leading axis of runs."""
    return jax.tree.map(lambda a: a if len(a) == number else a[first : first + number], arrays)


def picked(arrays: Tree, runs: np.ndarray) -> Tree:
    """These runs of arrays with a leading axis of runs."""
    everybody = np.arange(len(runs))
    return jax.tree.map(lambda a: a if len(a) == len(runs) and (runs == everybody).all() else a[runs], arrays)


def scattered(parts: list[Tree], places: list[np.ndarray], runs: int) -> Tree:
    """The arrays (on the host) of groups as those of `runs` runs. `places`: the runs of each group; other runs have zeros."""
    where = np.concatenate(places)
    in_order = len(where) == runs and (where == np.arange(runs)).all()

    def whole(*each: np.ndarray) -> np.ndarray:
        together = each[0] if len(each) == 1 else np.concatenate(each)
        if in_order:
            return together
        spread = np.zeros((runs, *together.shape[1:]), together.dtype)
        spread[where] = together
        return spread

    return jax.tree.map(whole, *parts)


def of_one(form: Tree) -> Tree:
    """Shapes whose leading axis counts runs, without it."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), form)


def for_each_run(form: Tree, runs: int) -> Tree:
    """Shapes of one run, with a leading axis of runs."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((runs, *a.shape), a.dtype), form)


def with_runs(form: Tree, runs: int) -> Tree:
    """Shapes whose leading axis counts runs, with this number of them."""
    return for_each_run(of_one(form), runs)


def forms(tree: Tree, mesh: jax.sharding.Mesh | None, grouped: bool) -> Tree:
    """The shapes and types of arrays that lie as `placed` puts them, or, with a federation on a mesh, as they lie now."""

    def form(array: Tree) -> jax.ShapeDtypeStruct:
        where = getattr(array, "sharding", None)
        if mesh is None:
            where = None
        elif not isinstance(where, jax.sharding.NamedSharding):
            where = jax.sharding.NamedSharding(mesh, by_runs(mesh) if grouped and array.size else jax.P())
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)

    return jax.tree.map(form, tree)
