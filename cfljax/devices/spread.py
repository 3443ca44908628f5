"""Jobs on one device, one after another or side by side, or dealt to several devices so that each has about the same work.

A program that is made for several devices (`everywhere`) runs on each of them with the same arrays, and all do the same, but for
`spread` and `share`: there each does its part, and they exchange results.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.devices.mesh import CLIENTS as AXIS
from cfljax.devices.mesh import RUNS
from cfljax.types import Federation, Plan

SPARE = 16
"""So many places to spare a device has, or half its share of the jobs where that is less, so that few large ones can be set off
against many small ones: its work is then within 2 in 100 of even, mostly, whatever the spread of sizes. More only cost time: what
is done with all updates is done with the places to spare, too. Where all jobs are alike (`Plan.alike`) there are none."""

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
        specs = tuple(grouped if at < mapped else _lies(arg) for at, arg in enumerate(args))
        out = grouped if mapped else jax.P()
        return jax.shard_map(traced, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(*args)

    return on_all


def _lies(arg: Any) -> Any:
    """On every device; the samples of a sharded federation each on its own."""
    if not isinstance(arg, Federation) or arg.owner is None:
        return jax.P()
    everywhere, dealt = jax.tree.map(lambda _: jax.P(), arg), jax.P(AXIS)
    return dataclasses.replace(
        everywhere,
        pool=everywhere.pool._replace(x=dealt, y=dealt),
        train=dataclasses.replace(everywhere.train, rows=dealt),
        test=dataclasses.replace(everywhere.test, rows=dealt),
    )


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
    place: jax.Array | None
    """i32[S]: where each job's result is in those of all devices; None: only the device that has done a job has its result."""
    own: jax.Array | None = None
    """i32[]: how many this device does, the first of `mine`, where any number may be its own."""
    block: int = 1
    """So many at a time, then: about all that are its own, as a second block of clients side by side would cost as much again."""

    def collect(self, results: Any) -> Any:
        """The results of all jobs in their order, from those of this device's, one for each place."""
        if self.place is not None:
            return jax.tree.map(lambda each: jax.lax.all_gather(each, AXIS, tiled=True)[self.place], results)
        return jax.tree.map(self._add_up, results)

    def _add_up(self, each: jax.Array) -> jax.Array:
        number = self.mine.shape[0]
        mine = jnp.zeros_like(each).at[jnp.where(self.mine >= 0, self.mine, number)].set(each, mode="drop")
        return jax.lax.psum(mine.astype(jnp.int32), AXIS).astype(bool) if each.dtype == bool else jax.lax.psum(mine, AXIS)


def deal_out(costs: jax.Array, plan: Plan, owner: jax.Array | None = None) -> Dealt | None:
    """The jobs, dealt; `costs` f32[S]: the work of each, in any unit. owner i32[S]: the device that must do each; None: any may.
    None is returned where one device does them all."""
    number, width = costs.shape[0], devices()
    if width == 1 or (number == 1 and owner is None):
        return None
    even = -(-number // width)
    if owner is not None:
        own = owner == jax.lax.axis_index(AXIS)
        first = (jnp.argsort(~own, stable=True) if plan.sequential else jnp.lexsort((-costs, ~own))).astype(jnp.int32)
        return Dealt(jnp.where(own[first], first, -1), None, jnp.sum(own, dtype=jnp.int32), min(number, even + even // 2))
    lists, place = deal(costs, width, even if plan.alike else _places(number, even))
    return Dealt(lists[jax.lax.axis_index(AXIS)], place)


def _places(number: int, even: int) -> int:
    """How many of unequal jobs a device has room for, whose even share is known."""
    return min(number, even + min(SPARE, even // 2))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """What is traced in this context is not shared: each device does something else."""
    token = _devices.set(1)
    try:
        yield
    finally:
        _devices.reset(token)


def spread(job: Callable[[jax.Array], Any], costs: jax.Array, plan: Plan, owner: jax.Array | None = None) -> Any:
    """`job(s)` for s = 0 … S − 1, stacked. `job(-1)` must cost next to nothing where jobs run in turn: a device's free places
    ask for it. owner i32[S]: the devices that must do them."""
    dealt = deal_out(costs, plan, owner)
    if dealt is None:
        return _on_one(job, jnp.arange(costs.shape[0]), costs, plan)
    if dealt.own is None:
        return dealt.collect(_on_one(job, dealt.mine, costs, plan))
    some = dealt._replace(block=1) if plan.sequential else dealt
    return dealt.collect(in_own_blocks(lambda mine: ((), _on_one(job, mine, costs, plan)), some)[1])


def in_own_blocks(part: Callable[[jax.Array], tuple[Any, Any]], dealt: Dealt) -> tuple[Any, Any]:
    """`part(jobs i32[block]) -> (sums, results [block, …])` of this device's own jobs, as many blocks as there are: all sums added
    up, and the results [S, …] in the order of `dealt.mine`, zeros where they end."""
    number, block = dealt.mine.shape[0], dealt.block
    jobs = jnp.pad(dealt.mine, (0, -number % block), constant_values=-1)

    def one(i: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        sums, each = part(jax.lax.dynamic_slice_in_dim(jobs, i * block, block))
        write = lambda whole, new: jax.lax.dynamic_update_slice_in_dim(whole, new, i * block, 0)  # noqa: E731
        return jax.tree.map(jnp.add, carry[0], sums), jax.tree.map(write, carry[1], each)

    sums, each = jax.eval_shape(part, jobs[:block])
    room = jax.tree.map(lambda a: jnp.zeros((jobs.shape[0], *a.shape[1:]), a.dtype), each)
    assert dealt.own is not None
    sums, each = jax.lax.fori_loop(0, -(-dealt.own // block), one, (jax.tree.map(jnp.zeros_like, sums), room))
    return sums, jax.tree.map(lambda a: a[:number], each)


def share(part: Callable[[jax.Array, int], Any]) -> Any:
    """The sum over the devices of `part(number of the device, how many there are)`."""
    width = devices()
    if width == 1:
        return part(jnp.int32(0), 1)
    return jax.lax.psum(part(jax.lax.axis_index(AXIS), width), AXIS)


def mine(owner: jax.Array | None, mask: jax.Array) -> jax.Array:
    """bool[C]: mask, for the clients whose samples this device has."""
    return mask if owner is None or devices() == 1 else mask & (owner == jax.lax.axis_index(AXIS))


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


def _on_one(job: Callable[[jax.Array], Any], numbers: jax.Array, costs: jax.Array, plan: Plan) -> Any:
    """`job` of each of the numbers; those of about equal cost side by side, as none there ends before the longest."""
    if plan.sequential:
        return jax.lax.map(job, numbers)
    number, lanes = numbers.shape[0], plan.lanes
    if not 0 < lanes < number:
        return jax.vmap(job)(numbers)
    order = jnp.argsort(jnp.where(numbers >= 0, -costs[numbers], jnp.inf))
    blocks = jnp.pad(numbers[order], (0, -number % lanes), constant_values=-1).reshape(-1, lanes)
    back = jnp.argsort(order)
    return jax.tree.map(lambda each: each.reshape(blocks.size, *each.shape[2:])[back], jax.lax.map(jax.vmap(job), blocks))
