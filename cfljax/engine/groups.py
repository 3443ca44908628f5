"""HOST. The runs of a batch in groups, each of which is computed by one call of the programs: all
runs side by side on an accelerator; on a CPU one run, or one run for each group of devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.devices import distributed
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import put_on_mesh, shard_federation, use_federation
from cfljax.devices.spread import runs_spec
from cfljax.engine.evaluation import SCORED_NUMBERS
from cfljax.engine.settings import Assembled
from cfljax.lazy import jax, jnp
from cfljax.local.attacks import exact_share, flip_labels
from cfljax.local.rates import before_rounds
from cfljax.types import Federation, HostHyper, Tree


class Group(NamedTuple):
    """What a group of runs starts from: arrays with a leading axis of its runs, where they are
    computed on."""

    keys: jax.Array
    hyper: Tree
    # The arrays that the method has prepared
    setup: Tree

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
    if parts.mesh is None:
        return Group(*jax.device_put(arrays))
    return Group(*put_on_mesh(arrays, parts.mesh, True))


def slice_runs(arrays: Tree, first: int, number: int) -> Tree:
    """Select the runs `first` … `first + number − 1` of arrays with a leading axis of runs."""
    return jax.tree.map(lambda a: a if len(a) == number else a[first : first + number], arrays)


def select_runs(arrays: Tree, runs: np.ndarray) -> Tree:
    """Select these runs of arrays with a leading axis of runs."""
    in_order = (runs == np.arange(len(runs))).all()
    # Arrays that are wanted whole need no copy
    return jax.tree.map(lambda a: a if len(a) == len(runs) and in_order else a[runs], arrays)


def scatter_runs(parts: list[Tree], members: list[np.ndarray], runs: int) -> Tree:
    """Combine groups' arrays (on the host) into arrays of `runs` runs. `members`: the runs of each
    group; others have zeros."""
    index = np.concatenate(members)
    in_order = len(index) == runs and (index == np.arange(runs)).all()

    def combine(*each: np.ndarray) -> np.ndarray:
        together = each[0] if len(each) == 1 else np.concatenate(each)
        if in_order:
            return together
        spread = np.zeros((runs, *together.shape[1:]), together.dtype)
        spread[index] = together
        return spread

    return jax.tree.map(combine, *parts)


def drop_runs(form: Tree) -> Tree:
    """Remove the leading axis of runs from shapes."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), form)


def add_runs(form: Tree, runs: int) -> Tree:
    """Add a leading axis of runs to shapes of one run."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((runs, *a.shape), a.dtype), form)


def shapes_of(tree: Tree, mesh: jax.sharding.Mesh | None, grouped: bool) -> Tree:
    """Return the shapes and types of arrays placed as `put_on_mesh` does, or, with a federation on
    a mesh, as they are now."""

    def shape_of(array: Tree) -> jax.ShapeDtypeStruct:
        sharding = getattr(array, "sharding", None)
        if mesh is None:
            sharding = None
        elif not isinstance(sharding, jax.sharding.NamedSharding):
            spec = runs_spec(mesh) if grouped and array.size else jax.P()
            sharding = jax.sharding.NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    return jax.tree.map(shape_of, tree)


def fetch(arrays: Tree) -> Tree:
    """Fetch arrays to the host, assembled from the devices of this process, which have all of
    them."""

    def fetch_one(array: Tree) -> Tree:
        if (
            not isinstance(array, jax.Array)
            or array.is_fully_addressable
            or array.is_fully_replicated
        ):
            return jax.device_get(array)
        out = np.empty(array.shape, array.dtype)
        for part in array.addressable_shards:
            out[part.index] = part.data
        return out

    return jax.tree.map(fetch_one, arrays)


@contextlib.contextmanager
def default_flags() -> Iterator[None]:
    """Reset JAX's flags that decide which numbers a program draws to their defaults: a run's id
    does not name the user's."""
    with (
        jax.enable_x64(False),
        jax.threefry_partitionable(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def make_inputs(
    parts: Assembled, seeds: list[int], hypers: list[HostHyper], alike: bool = False
) -> tuple[Group, Federation]:
    """Return the starting point of all runs, and the federation on its devices. `alike`: as for
    `make_group`, in this process."""
    mesh, federation = parts.mesh, parts.federation
    if parts.sharded and mesh is not None:
        on_devices = shard_federation(federation, mesh)
    else:
        on_devices = put_on_mesh(federation, mesh)
    with use_federation(on_devices, mesh):
        group = make_group(parts, seeds, hypers, alike)
    if not alike:
        # Processes may differ in the last bits of what they have prepared; process 0 decides
        group = group._replace(setup=distributed.broadcast(group.setup))
    return group, on_devices


def make_group(
    parts: Assembled, seeds: list[int], hypers: list[HostHyper], alike: bool = False
) -> Group:
    """Return the starting point of all runs, on the host. `alike`: the method prepares the first
    run, and all share the result."""
    mesh, settings = parts.mesh, parts.settings
    # Each group of devices has equally many runs: the last one is computed several times
    missing = 0 if mesh is None else -len(seeds) % mesh.shape.get(RUNS, 1)
    seeds = seeds + seeds[-1:] * missing
    hypers = hypers + hypers[-1:] * missing
    hypers = [exact_share(settings.sending.attack, each, parts.federation) for each in hypers]
    run_keys = keys.root(np.array(seeds))
    if settings.drawn is not None:
        hypers = [each | {"participants": settings.drawn} for each in hypers]
    hyper = {name: np.array([h[name] for h in hypers], np.float32) for name in hypers[0]}
    with jax.default_matmul_precision(settings.precision):
        setup = _set_up(parts, run_keys, hypers[:1] if alike else hypers)
    if alike:
        setup = jax.tree.map(lambda a: np.repeat(a, len(seeds), axis=0), setup)
    return Group(run_keys, hyper, setup)


def _set_up(parts: Assembled, run_keys: jax.Array, hypers: list[HostHyper]) -> Tree:
    """Call the method's setup for all runs: a leading R on every array."""
    if parts.method.setup is None:
        return {}
    each = []
    for r, hyper in enumerate(hypers):
        hyper = {"participants": parts.settings.participants} | hyper
        numbers = {name: jnp.float32(value) for name, value in before_rounds(hyper).items()}
        federation = flip_labels(parts.settings.sending.attack, numbers, parts.federation)
        each.append(parts.method.setup(run_keys[r], federation, numbers))
    return jax.tree.map(_stack, *each)


def _stack(*each: Tree) -> np.ndarray:
    """Stack the runs' arrays; if they differ in their first axis (numbers of clusters found), zeros
    pad the shorter."""
    arrays = [np.asarray(e) for e in each]
    if arrays[0].ndim:
        longest = max(len(a) for a in arrays)
        arrays = [
            np.concatenate([a, np.zeros((longest - len(a), *a.shape[1:]), a.dtype)]) for a in arrays
        ]
    return np.stack(arrays)
