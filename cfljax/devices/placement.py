"""HOST. A sharded pool of samples: it is dealt out by client over a mesh's `clients` axis, so that a federation may be larger than
a device's memory. Each device has the samples of its clients and of no others; it trains these clients, computes their losses and
scores them (`Federation.owner`; devices.spread)."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from cfljax.devices.mesh import CLIENTS
from cfljax.devices.split import split_jit
from cfljax.devices.spread import by_runs, everywhere
from cfljax.lazy import jax
from cfljax.types import Federation, Plan, Split, Tree, on_host

_place: contextvars.ContextVar[tuple[jax.sharding.Mesh, Federation] | None] = contextvars.ContextVar("place", default=None)
"""The mesh that a federation with a sharded pool lies on, and that federation."""


def placed(arrays: Tree, mesh: jax.sharding.Mesh | None, grouped: bool = False) -> Tree:
    """The arrays on every device of the mesh. `grouped`: their first axis is that of runs, and each run's are on the devices of its
    group. Without a mesh, as they are."""
    if mesh is None:
        return arrays

    def whole(array: Tree) -> Tree:  # every process has all of it, and takes what its devices need
        spec = by_runs(mesh) if grouped and array.size else jax.P()  # XLA deals out no empty arrays
        full = jax.sharding.NamedSharding(mesh, spec)
        if jax.process_count() == 1:
            return jax.device_put(array, full)
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(whole(jax.random.key_data(array)), impl=str(jax.random.key_impl(array)))
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, full, lambda index: host[index])

    return jax.tree.map(whole, arrays)


def owners(federation: Federation, devices: int) -> np.ndarray:
    """i32[C]: which device each client belongs to. Neighbours stay together, and devices get about equally many samples."""
    held = np.asarray(federation.train.count, np.int64) + 1
    for name, other in federation.splits.items():
        if name != "train" and not other.shared:
            held = held + np.asarray(other.count)
    middle = np.cumsum(held) - held / 2
    return np.minimum(middle * devices // held.sum(), devices - 1).astype(np.int32)


def sharded(federation: Federation, mesh: jax.sharding.Mesh) -> Federation:
    """The federation (of numpy arrays) on the mesh: pool and rows dealt out by client, the rest on every device."""
    devices = int(mesh.shape[CLIENTS])
    owner = owners(federation, devices)
    rows_of = {name: _rows_of(each, owner, devices) for name, each in federation.splits.items()}
    pools = [np.unique(np.concatenate(each)) for each in zip(*rows_of.values(), strict=True)]
    x, y = np.asarray(federation.pool.x), np.asarray(federation.pool.y)

    def split(of: Split, rows: list[np.ndarray]) -> Split:
        local = [np.searchsorted(pool, part).astype(np.int32) for pool, part in zip(pools, rows, strict=True)]
        start = np.zeros_like(owner) if of.shared else _starts(of, owner)
        return dataclasses.replace(of, rows=_dealt(local, lambda part: part, mesh), start=on_host(start))

    new = dataclasses.replace(
        federation.with_splits({name: split(each, rows_of[name]) for name, each in federation.splits.items()}),
        pool=federation.pool._replace(x=_dealt(pools, lambda rows: x[rows], mesh), y=_dealt(pools, lambda rows: y[rows], mesh)),
        owner=on_host(owner),
    )
    return jax.tree.map(lambda a: a if isinstance(a, jax.Array) and not a.is_fully_replicated else placed(a, mesh), new)


def _rows_of(split: Split, owner: np.ndarray, devices: int) -> list[np.ndarray]:
    """For each device the rows of its clients, one client after the other; all rows where everybody has them."""
    rows, start, count = (np.asarray(a) for a in (split.rows, split.start, split.count))
    if split.shared:
        return [rows] * devices
    ends = np.cumsum(count)
    client = np.repeat(np.arange(len(count)), count)
    line = rows[start[client] + np.arange(len(client)) - (ends - count)[client]] if len(client) else np.zeros(0, rows.dtype)
    return [line[owner[client] == device] for device in range(devices)]


def _starts(split: Split, owner: np.ndarray) -> np.ndarray:
    """i32[C]: where each client's rows begin among those of its device."""
    count = np.asarray(split.count, np.int64)
    start = np.zeros(len(count), np.int64)
    for device in np.unique(owner):
        of_device = owner == device
        start[of_device] = np.cumsum(count[of_device]) - count[of_device]
    return start.astype(np.int32)


def _dealt(parts: list[np.ndarray], content: Callable[[np.ndarray], np.ndarray], mesh: jax.sharding.Mesh) -> jax.Array:
    """`content(part)` of each device's part, filled up to one length: an array of which each device has its part."""
    length = max(1, *(len(part) for part in parts))
    form = content(parts[0][:0])

    def of_device(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        part = parts[(index[0].start or 0) // length]
        filled = np.zeros((length, *form.shape[1:]), form.dtype)
        filled[: len(part)] = content(part)
        return filled

    spec = jax.sharding.NamedSharding(mesh, jax.P(CLIENTS))
    return jax.make_array_from_callback((length * len(parts), *form.shape[1:]), spec, of_device)


@contextlib.contextmanager
def lying(federation: Federation, mesh: jax.sharding.Mesh | None) -> Iterator[None]:
    """In this context, functions made by `from_host` compute with the samples of this sharded federation."""
    token = _place.set(None if mesh is None or federation.owner is None else (mesh, federation))
    try:
        yield
    finally:
        _place.reset(token)


def from_host(f: Callable[..., Tree], plan: Plan) -> Callable[..., Tree]:
    """f(key, federation, *rest), compiled, for what methods do on the host: on one device or, where the pool is sharded, on all
    devices, with the samples where they lie. `plan`: how its solver trains clients."""
    alone = split_jit(f) if plan.quick else jax.jit(f)
    of_mesh: dict[jax.sharding.Mesh, Callable[..., Tree]] = {}

    def call(key: jax.Array, federation: Federation, /, *rest: Tree) -> Tree:
        place = _place.get()
        if place is None:
            return alone(key, federation, *rest)
        mesh, dealt = place
        if mesh not in of_mesh:
            of_mesh[mesh] = jax.jit(everywhere(f, mesh))
        seen = dataclasses.replace(federation.with_splits(dealt.splits), pool=dealt.pool, owner=dealt.owner)
        return of_mesh[mesh](placed(key, mesh), placed(seen, mesh), *placed(rest, mesh))

    return call
