"""HOST. A sharded pool of samples: it is dealt out by client over a mesh's `clients` axis, so that
a federation may be larger than a device's memory. Each device has the samples of its clients and of
no others; it trains these clients, computes their losses and scores them (`Federation.owner`;
devices.spread)."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from cfljax.devices.mesh import CLIENTS
from cfljax.devices.split import split_jit
from cfljax.devices.spread import run_everywhere, runs_spec
from cfljax.lazy import jax
from cfljax.types import Federation, Plan, Split, Tree, on_host

_place: contextvars.ContextVar[tuple[jax.sharding.Mesh, Federation] | None] = (
    contextvars.ContextVar("place", default=None)
)
"""The mesh of a federation with a sharded pool, and that federation."""


def put_on_mesh(arrays: Tree, mesh: jax.sharding.Mesh | None, grouped: bool = False) -> Tree:
    """Put the arrays on every device of the mesh, each run's of `grouped` ones on its group's.
    Without a mesh, leave them."""
    if mesh is None:
        return arrays

    def whole(array: Tree) -> Tree:  # every process has all of it, and takes what its devices need
        # XLA deals out no empty arrays
        spec = runs_spec(mesh) if grouped and array.size else jax.P()
        full = jax.sharding.NamedSharding(mesh, spec)
        if jax.process_count() == 1:
            return jax.device_put(array, full)
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(
                whole(jax.random.key_data(array)), impl=str(jax.random.key_impl(array))
            )
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, full, lambda index: host[index])

    return jax.tree.map(whole, arrays)


def assign_owners(federation: Federation, devices: int) -> np.ndarray:
    """Assign clients to devices, i32[C]. Neighbours stay together, and devices get about equally
    many samples."""
    held = np.asarray(federation.train.count, np.int64) + 1
    for name, other in federation.splits.items():
        if name != "train" and not other.shared:
            held = held + np.asarray(other.count)
    middle = np.cumsum(held) - held / 2
    return np.minimum(middle * devices // held.sum(), devices - 1).astype(np.int32)


def shard_federation(federation: Federation, mesh: jax.sharding.Mesh) -> Federation:
    """Put the federation (of numpy arrays) on the mesh: pool and rows dealt by client, the rest on
    every device."""
    devices = int(mesh.shape[CLIENTS])
    owner = assign_owners(federation, devices)
    rows_of = {name: _split_rows(each, owner, devices) for name, each in federation.splits.items()}
    pools = [np.unique(np.concatenate(each)) for each in zip(*rows_of.values(), strict=True)]
    x = np.asarray(federation.pool.x)
    y = np.asarray(federation.pool.y)

    def split(of: Split, rows: list[np.ndarray]) -> Split:
        local = [
            np.searchsorted(pool, part).astype(np.int32)
            for pool, part in zip(pools, rows, strict=True)
        ]
        start = np.zeros_like(owner) if of.shared else _find_starts(of, owner)
        return dataclasses.replace(
            of, rows=_distribute(local, lambda part: part, mesh), start=on_host(start)
        )

    new = dataclasses.replace(
        federation.with_splits(
            {name: split(each, rows_of[name]) for name, each in federation.splits.items()}
        ),
        pool=federation.pool._replace(
            x=_distribute(pools, lambda rows: x[rows], mesh),
            y=_distribute(pools, lambda rows: y[rows], mesh),
        ),
        owner=on_host(owner),
    )
    return jax.tree.map(
        lambda a: (
            a if isinstance(a, jax.Array) and not a.is_fully_replicated else put_on_mesh(a, mesh)
        ),
        new,
    )


def _split_rows(split: Split, owner: np.ndarray, devices: int) -> list[np.ndarray]:
    """Return for each device the rows of its clients, one client after the other; all rows if every
    client has them."""
    rows, start, count = (np.asarray(a) for a in (split.rows, split.start, split.count))
    if split.shared:
        return [rows] * devices
    ends = np.cumsum(count)
    client = np.repeat(np.arange(len(count)), count)
    line = (
        rows[start[client] + np.arange(len(client)) - (ends - count)[client]]
        if len(client)
        else np.zeros(0, rows.dtype)
    )
    return [line[owner[client] == device] for device in range(devices)]


def _find_starts(split: Split, owner: np.ndarray) -> np.ndarray:
    count = np.asarray(split.count, np.int64)
    start = np.zeros(len(count), np.int64)
    for device in np.unique(owner):
        of_device = owner == device
        start[of_device] = np.cumsum(count[of_device]) - count[of_device]
    return start.astype(np.int32)


def _distribute(
    parts: list[np.ndarray], content: Callable[[np.ndarray], np.ndarray], mesh: jax.sharding.Mesh
) -> jax.Array:
    """Distribute `content(part)` of each device's part, padded to one length: an array of which
    each device has its part."""
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
def use_federation(federation: Federation, mesh: jax.sharding.Mesh | None) -> Iterator[None]:
    """Let functions made by `from_host` compute with the samples of this sharded federation."""
    token = _place.set(None if mesh is None or federation.owner is None else (mesh, federation))
    try:
        yield
    finally:
        _place.reset(token)


def from_host(f: Callable[..., Tree], plan: Plan) -> Callable[..., Tree]:
    """f(key, federation, *rest), compiled, for what methods do on the host: on one device or, where
    the pool is sharded, on all devices, with the samples where they lie. `plan`: how its solver
    trains clients."""
    alone = split_jit(f) if plan.quick else jax.jit(f)
    of_mesh: dict[jax.sharding.Mesh, Callable[..., Tree]] = {}

    def call(key: jax.Array, federation: Federation, /, *rest: Tree) -> Tree:
        place = _place.get()
        if place is None:
            return alone(key, federation, *rest)
        mesh, dealt = place
        if mesh not in of_mesh:
            of_mesh[mesh] = jax.jit(run_everywhere(f, mesh))
        seen = dataclasses.replace(
            federation.with_splits(dealt.splits), pool=dealt.pool, owner=dealt.owner
        )
        return of_mesh[mesh](
            put_on_mesh(key, mesh), put_on_mesh(seen, mesh), *put_on_mesh(rest, mesh)
        )

    return call
