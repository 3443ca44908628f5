"""HOST. A federation dealt out by client over a mesh's `clients` axis: each device has the samples of its own clients and of no
others, so that a federation may be larger than a device's memory. Samples stay where they are: whoever has a client's samples
trains it, computes its losses and scores it (`owner` of the Federation; local.spread)."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from cfljax.devices.mesh import CLIENTS
from cfljax.devices.spread import by_runs, everywhere
from cfljax.types import Federation, Split, on_host


class _Place(NamedTuple):
    """Where a sharded federation lies."""

    mesh: jax.sharding.Mesh
    federation: Federation


_place: contextvars.ContextVar[_Place | None] = contextvars.ContextVar("place", default=None)


def placed(arrays: Any, mesh: jax.sharding.Mesh | None, grouped: bool = False) -> Any:
    """The arrays on every device of the mesh, or (`grouped`) each run's on those of its group."""
    if mesh is None:
        return arrays

    def whole(array: Any) -> Any:  # every process has all of it, and takes what its devices need
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
    if not federation.test.shared:
        held = held + np.asarray(federation.test.count)
    middle = np.cumsum(held) - held / 2
    return np.minimum(middle * devices // held.sum(), devices - 1).astype(np.int32)


def sharded(federation: Federation, mesh: jax.sharding.Mesh) -> Federation:
    """The federation (of numpy arrays) on the mesh: pool and rows dealt out by client, the rest on every device."""
    devices = int(mesh.shape[CLIENTS])
    owner = owners(federation, devices)
    train, test = (_rows_of(split, owner, devices) for split in (federation.train, federation.test))
    pools = [np.unique(np.concatenate(both)) for both in zip(train, test, strict=True)]
    x, y = np.asarray(federation.pool.x), np.asarray(federation.pool.y)

    def split(of: Split, rows: list[np.ndarray]) -> Split:
        local = [np.searchsorted(pool, mine).astype(np.int32) for pool, mine in zip(pools, rows, strict=True)]
        start = np.zeros_like(owner) if of.shared else _starts(of, owner)
        return dataclasses.replace(of, rows=_dealt(local, lambda part: part, mesh), start=on_host(start))

    new = dataclasses.replace(
        federation,
        pool=federation.pool._replace(x=_dealt(pools, lambda rows: x[rows], mesh), y=_dealt(pools, lambda rows: y[rows], mesh)),
        train=split(federation.train, train),
        test=split(federation.test, test),
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
        mine = owner == device
        start[mine] = np.cumsum(count[mine]) - count[mine]
    return start.astype(np.int32)


def _dealt(parts: list[np.ndarray], made: Callable[[np.ndarray], np.ndarray], mesh: jax.sharding.Mesh) -> jax.Array:
    """`made(part)` of each device's part, as one array of which each device has its own, all filled up to one length."""
    length = max(1, *(len(part) for part in parts))
    form = made(parts[0][:0])

    def one(index: Any) -> np.ndarray:
        part = parts[(index[0].start or 0) // length]
        filled = np.zeros((length, *form.shape[1:]), form.dtype)
        filled[: len(part)] = made(part)
        return filled

    spec = jax.sharding.NamedSharding(mesh, jax.P(CLIENTS))
    return jax.make_array_from_callback((length * len(parts), *form.shape[1:]), spec, one)


@contextlib.contextmanager
def lying(federation: Federation, mesh: jax.sharding.Mesh | None) -> Iterator[None]:
    """What methods do on the host in this context, they do with the samples of this sharded federation."""
    token = _place.set(None if mesh is None or federation.owner is None else _Place(mesh, federation))
    try:
        yield
    finally:
        _place.reset(token)


def from_host(f: Callable[..., Any]) -> Callable[..., Any]:
    """f(key, federation, …), compiled, for what methods do on the host: on one device, or, where the federation is sharded, on
    all, with the samples where they lie."""
    alone, made = jax.jit(f), {}

    def call(key: jax.Array, federation: Federation, *rest: Any) -> Any:
        place = _place.get()
        if place is None:
            return alone(key, federation, *rest)
        mesh, there = place
        if mesh not in made:
            made[mesh] = jax.jit(everywhere(f, mesh))
        here = placed(dataclasses.replace(federation, pool=there.pool, train=there.train, test=there.test, owner=there.owner), mesh)
        return made[mesh](placed(key, mesh), here, *placed(rest, mesh))

    return call
