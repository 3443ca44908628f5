"""Jobs on one device, one after another or side by side, or dealt to several devices so that each has about the same work.

A program that is made for several devices (`everywhere`) runs on each of them with the same arrays, and all do the same, but for
`spread` and `share`: there each does its part, and they exchange results.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.local.plan import Plan
from cfljax.mesh import CLIENTS as AXIS
from cfljax.mesh import RUNS

ROOM = 1.5
"""A device has room for so many times its share of the jobs, so that few large ones can be set off against many small ones."""


_devices: contextvars.ContextVar[int] = contextvars.ContextVar("devices", default=1)


def everywhere(f: Callable[..., Any], mesh: jax.sharding.Mesh | None, mapped: int = 0) -> Callable[..., Any]:
    """f on every device of the mesh, for arguments that lie on all of them; None: on one. Where the mesh has groups of devices
    (an axis "runs"), the first axis of the first `mapped` arguments, and of the results, is dealt to the groups."""
    if mesh is None:
        return f
    grouped = by_runs(mesh)

    def traced(*args: Any) -> Any:
        token = _devices.set(int(mesh.shape[AXIS]))
        try:
            return f(*args)
        finally:
            _devices.reset(token)

    def on_all(*args: Any) -> Any:
        specs = tuple(grouped if at < mapped else jax.P() for at in range(len(args)))
        return jax.shard_map(traced, mesh=mesh, in_specs=specs, out_specs=grouped, check_vma=False)(*args)

    return on_all


def by_runs(mesh: jax.sharding.Mesh) -> Any:
    """How arrays with a leading axis of runs lie on the mesh."""
    return jax.P(RUNS) if RUNS in mesh.axis_names else jax.P()


def devices() -> int:
    """How many devices a round's participants are spread over."""
    return _devices.get()


class Dealt(NamedTuple):
    """Jobs dealt to the devices."""

    mine: jax.Array
    """i32[R]: which ones this device does; −1: none, a free place."""
    place: jax.Array
    """i32[S]: where each job's result is in those of all devices."""

    def collect(self, results: Any) -> Any:
        """The results of all jobs in their order, from those of this device's, one for each place."""
        return jax.tree.map(lambda each: jax.lax.all_gather(each, AXIS, tiled=True)[self.place], results)


def deal_out(costs: jax.Array) -> Dealt | None:
    """The jobs, dealt; `costs` f32[S]: the work of each, in any unit. None: one device does them all."""
    number, width = costs.shape[0], devices()
    if width == 1 or number == 1:
        return None
    lists, place = deal(costs, width, min(number, int(-(-number * ROOM // width))))
    return Dealt(lists[jax.lax.axis_index(AXIS)], place)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """What is traced in this context is not shared: each device does something else."""
    token = _devices.set(1)
    try:
        yield
    finally:
        _devices.reset(token)


def spread(job: Callable[[jax.Array], Any], costs: jax.Array, plan: Plan) -> Any:
    """`job(s)` for s = 0 … S − 1, stacked. `job(-1)` must cost next to nothing where jobs run in turn: a device's free places
    ask for it."""
    dealt = deal_out(costs)
    if dealt is None:
        return _on_one(job, jnp.arange(costs.shape[0]), plan)
    return dealt.collect(_on_one(job, dealt.mine, plan))


def share(part: Callable[[jax.Array, int], Any]) -> Any:
    """The sum over the devices of `part(number of the device, how many there are)`."""
    width = devices()
    if width == 1:
        return part(jnp.int32(0), 1)
    return jax.lax.psum(part(jax.lax.axis_index(AXIS), width), AXIS)


def deal(costs: jax.Array, devices: int, room: int) -> tuple[jax.Array, jax.Array]:
    """(i32[devices, room] which jobs each device does, −1 for none; i32[S] where each job's result then is): the longest
    first, each to the device with the least work so far that has room."""
    order = jnp.argsort(-costs)

    def give(carry: tuple[jax.Array, jax.Array], s: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        load, taken = carry
        to = jnp.argmin(jnp.where(taken < room, load, jnp.inf)).astype(jnp.int32)
        return (load.at[to].add(costs[s]), taken.at[to].add(1)), (to, taken[to])

    begin = (jnp.zeros(devices), jnp.zeros(devices, jnp.int32))
    _, (device, row) = jax.lax.scan(give, begin, order)
    lists = jnp.full((devices, room), -1, jnp.int32).at[device, row].set(order.astype(jnp.int32))
    return lists, jnp.zeros_like(row).at[order].set(device * room + row)


def _on_one(job: Callable[[jax.Array], Any], numbers: jax.Array, plan: Plan) -> Any:
    return jax.lax.map(job, numbers) if plan.sequential else jax.vmap(job)(numbers)
