"""HOST. The runs of a batch in groups, each of which is computed by one call of the programs: all runs side by side on an
accelerator; on a CPU one run, or one run for each group of devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import put_on_mesh
from cfljax.devices.spread import runs_spec
from cfljax.engine.evaluation import SCORED_NUMBERS
from cfljax.engine.settings import Assembled
from cfljax.lazy import jax
from cfljax.types import Tree


class Group(NamedTuple):
    """What a group of runs starts from: arrays with a leading axis of its runs, where they are computed on."""

    keys: jax.Array
    hyper: Tree
    setup: Tree  # The arrays that the method has prepared

    @property
    def numbers(self) -> Tree:
        """The numbers that an evaluation reads."""
        return {name: self.hyper[name] for name in SCORED_NUMBERS if name in self.hyper}


def group_width(parts: Assembled, runs: int) -> int:
    """Return the number of runs in a group."""
    devices = 1 if parts.mesh is None else int(parts.mesh.shape.get(RUNS, 1))
    return devices if parts.settings.sequential else runs


def split_into_groups(parts: Assembled, group: Group) -> list[Group]:
    """Split the runs of a batch into groups."""
    runs = group.keys.shape[0]
    size = group_width(parts, runs)
    return [place_group(parts, slice_runs(tuple(group), at, size)) for at in range(0, runs, size)]


def place_group(parts: Assembled, arrays: Tree) -> Group:
    """Put a group of these arrays (keys, numbers, set-ups) on its devices."""
    return Group(*(jax.device_put(arrays) if parts.mesh is None else put_on_mesh(arrays, parts.mesh, True)))


def slice_runs(arrays: Tree, first: int, number: int) -> Tree:
    """Select the runs `first` … `first + number − 1` of arrays with a leading axis of runs."""
    return jax.tree.map(lambda a: a if len(a) == number else a[first : first + number], arrays)


def select_runs(arrays: Tree, runs: np.ndarray) -> Tree:
    """Select these runs of arrays with a leading axis of runs."""
    everybody = np.arange(len(runs))
    return jax.tree.map(lambda a: a if len(a) == len(runs) and (runs == everybody).all() else a[runs], arrays)


def scatter_runs(parts: list[Tree], places: list[np.ndarray], runs: int) -> Tree:
    """Combine groups' arrays (on the host) into arrays of `runs` runs. `places`: the runs of each group; others have zeros."""
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


def drop_runs(form: Tree) -> Tree:
    """Remove the leading axis of runs from shapes."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), form)


def add_runs(form: Tree, runs: int) -> Tree:
    """Add a leading axis of runs to shapes of one run."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((runs, *a.shape), a.dtype), form)


def set_runs(form: Tree, runs: int) -> Tree:
    """Replace the leading axis of runs in shapes by this number."""
    return add_runs(drop_runs(form), runs)


def shapes_of(tree: Tree, mesh: jax.sharding.Mesh | None, grouped: bool) -> Tree:
    """Return the shapes and types of arrays placed as `put_on_mesh` does, or, with a federation on a mesh, as they are now."""

    def form(array: Tree) -> jax.ShapeDtypeStruct:
        where = getattr(array, "sharding", None)
        if mesh is None:
            where = None
        elif not isinstance(where, jax.sharding.NamedSharding):
            where = jax.sharding.NamedSharding(mesh, runs_spec(mesh) if grouped and array.size else jax.P())
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)

    return jax.tree.map(form, tree)
