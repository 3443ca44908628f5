"""Runs the jobs of a round: on one device, or dealt to several so that each has about the same
work.

In a program for several devices (`run_everywhere`) all compute the same from the same arrays,
except in `spread` and `sum_devices`: there each does its part, and they exchange results."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from cfljax.devices.mesh import CLIENTS as AXIS
from cfljax.devices.mesh import RUNS
from cfljax.lazy import jax, jnp
from cfljax.types import Array, Federation, Plan, Tree

RESERVE_SLOTS = 16
"""Slots that a device has beyond its even share of the jobs (at most half of that), to take many
small jobs. Measured: the work is then mostly within 2 % of even. More only cost time. Where all
jobs are alike (`Plan.alike`) there are none."""

Out = TypeVar("Out")
Sums = TypeVar("Sums")
_devices: contextvars.ContextVar[int] = contextvars.ContextVar("devices", default=1)


def run_everywhere(
    f: Callable[..., Out], mesh: jax.sharding.Mesh | None, mapped: int = 0
) -> Callable[..., Out]:
    """Return the function f as a program that runs on every device of the mesh, for arguments that
    are on all of them; f itself if the mesh is None. If the mesh has groups of devices (an axis
    "runs"), the first axis of the first `mapped` arguments, and of the results, is dealt to the
    groups."""
    if mesh is None:
        return f
    grouped = runs_spec(mesh)

    def traced(*args: Tree) -> Out:
        token = _devices.set(int(mesh.shape[AXIS]))
        try:
            return f(*args)
        finally:
            _devices.reset(token)

    def on_all(*args: Tree) -> Out:
        specs = tuple(grouped if at < mapped else _specs(arg) for at, arg in enumerate(args))
        out: Out = jax.shard_map(
            traced,
            mesh=mesh,
            in_specs=specs,
            out_specs=grouped if mapped else jax.P(),
            check_vma=False,
        )(*args)
        return out

    return on_all


def _specs(arg: Tree) -> Tree:
    """Return partition specs of an argument: it is on every device, but of a sharded federation
    each device has its own samples."""
    if not isinstance(arg, Federation) or arg.owner is None:
        return jax.P()
    everywhere = jax.tree.map(lambda _: jax.P(), arg)
    dealt = jax.P(AXIS)
    return dataclasses.replace(
        everywhere,
        pool=everywhere.pool._replace(x=dealt, y=dealt),
        **{name: dataclasses.replace(each, rows=dealt) for name, each in everywhere.splits.items()},
    )


def runs_spec(mesh: jax.sharding.Mesh) -> jax.P:
    """Return the partition spec of arrays with a leading axis of runs."""
    return jax.P(RUNS) if RUNS in mesh.axis_names else jax.P()


def devices() -> int:
    """Return the number of devices that a round's participants are spread over."""
    return _devices.get()


class Dealt(NamedTuple):
    """The result of dealing jobs to devices, as one device sees it."""

    # i32[R]: the jobs of this device; −1: a free slot
    jobs: Array
    slot: Array | None
    """i32[S]: where each job's result is in the gathered results; None: results stay on the device
    that did the job."""
    number: Array | None = None
    """i32[]: how many of `jobs`, the first ones, this device does if each must do those whose
    samples it holds; None: all."""
    block: int = 1
    """The number of jobs at a time in that case: about all of a device, as a second block would
    take as long as the first."""

    def collect(self, results: Out) -> Out:
        """Return the results of all jobs in order, from this device's results, one per slot."""
        if self.slot is not None:
            return jax.tree.map(
                lambda each: jax.lax.all_gather(each, AXIS, tiled=True)[self.slot], results
            )
        return jax.tree.map(self._add_up, results)

    def _add_up(self, each: Array) -> Array:
        number = self.jobs.shape[0]
        whole = (
            jnp.zeros_like(each)
            .at[jnp.where(self.jobs >= 0, self.jobs, number)]
            .set(each, mode="drop")
        )
        return (
            jax.lax.psum(whole.astype(jnp.int32), AXIS).astype(bool)
            if each.dtype == bool
            else jax.lax.psum(whole, AXIS)
        )


def deal_out(costs: Array, plan: Plan, owner: Array | None = None) -> Dealt | None:
    """Deal the jobs to the devices; None if one device does them all. `costs` f32[S]: the work of
    each job, in any unit. owner i32[S]: the device that must do each job; None: any device may."""
    number, width = costs.shape[0], devices()
    if width == 1 or (number == 1 and owner is None):
        return None
    even = -(-number // width)
    if owner is not None:
        here = owner == jax.lax.axis_index(AXIS)
        first = (
            jnp.argsort(~here, stable=True) if plan.sequential else jnp.lexsort((-costs, ~here))
        ).astype(jnp.int32)
        return Dealt(
            jnp.where(here[first], first, -1),
            None,
            jnp.sum(here, dtype=jnp.int32),
            min(number, even + even // 2),
        )
    lists, slot = deal(costs, width, even if plan.alike else _count_slots(number, even))
    return Dealt(lists[jax.lax.axis_index(AXIS)], slot)


def _count_slots(number: int, even: int) -> int:
    """Return the slots of a device for jobs of unequal size; `even`: its even share of all jobs."""
    return min(number, even + min(RESERVE_SLOTS, even // 2))


@contextlib.contextmanager
def on_one_device() -> Iterator[None]:
    """Trace code as for one device: it is not shared between devices, because each device does
    other work."""
    token = _devices.set(1)
    try:
        yield
    finally:
        _devices.reset(token)


def spread(
    job: Callable[[Array], Out], costs: Array, plan: Plan, owner: Array | None = None
) -> Out:
    """Return the results of `job(s)` for s = 0 … S − 1, stacked. For a free slot a device calls
    `job(-1)`, which must take almost no time if jobs run one after another. `costs` and `owner`: as
    in `deal_out`."""
    dealt = deal_out(costs, plan, owner)
    if dealt is None:
        return _run_jobs(job, jnp.arange(costs.shape[0]), costs, plan)
    if dealt.number is None:
        return dealt.collect(_run_jobs(job, dealt.jobs, costs, plan))
    some = dealt._replace(block=1) if plan.sequential else dealt
    return dealt.collect(
        map_own_blocks(lambda jobs: ((), _run_jobs(job, jobs, costs, plan)), some)[1]
    )


def map_own_blocks(part: Callable[[Array], tuple[Sums, Out]], dealt: Dealt) -> tuple[Sums, Out]:
    """Call `part(jobs i32[block]) -> (sums, results [block, …])` for one block of this device's
    jobs after another. Returns the sums added up, and the results [S, …] in the order of
    `dealt.jobs`, with zeros after the last one."""
    number, block = dealt.jobs.shape[0], dealt.block
    jobs = jnp.pad(dealt.jobs, (0, -number % block), constant_values=-1)

    def one(i: Array, carry: tuple[Sums, Out]) -> tuple[Sums, Out]:
        total, whole = carry
        sums, each = part(jax.lax.dynamic_slice_in_dim(jobs, i * block, block))

        def write(whole: Array, new: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(whole, new, i * block, 0)

        return jax.tree.map(jnp.add, total, sums), jax.tree.map(write, whole, each)

    sums, each = jax.eval_shape(part, jobs[:block])
    room = jax.tree.map(lambda a: jnp.zeros((jobs.shape[0], *a.shape[1:]), a.dtype), each)
    assert dealt.number is not None
    sums, each = jax.lax.fori_loop(
        0, -(-dealt.number // block), one, (jax.tree.map(jnp.zeros_like, sums), room)
    )
    return sums, jax.tree.map(lambda a: a[:number], each)


def sum_devices(part: Callable[[Array, int], Out]) -> Out:
    """Sum `part(index of the device, number of devices)` over the devices."""
    width = devices()
    if width == 1:
        return part(jnp.int32(0), 1)
    total: Out = jax.lax.psum(part(jax.lax.axis_index(AXIS), width), AXIS)
    return total


def mask_own(owner: Array | None, mask: Array) -> Array:
    """Mask clients whose samples are on another device, bool[C] (owner i32[C]; None: all are
    here)."""
    return mask if owner is None or devices() == 1 else mask & (owner == jax.lax.axis_index(AXIS))


def deal(costs: Array, devices: int, room: int) -> tuple[Array, Array]:
    """Deal jobs to devices, the most costly first, each to the device with the least work so far
    that has a free slot. Returns (i32[devices, room] the jobs of each device, −1 for a free slot;
    i32[S] the index of each job in this array, flattened). `room`: slots per device."""
    order = jnp.argsort(-costs).astype(jnp.int32)

    def give(
        at: Array, carry: tuple[Array, Array, Array, Array]
    ) -> tuple[Array, Array, Array, Array]:
        load, taken, lists, slot = carry
        s = order[at]
        to = jnp.argmin(jnp.where(taken < room, load, jnp.inf)).astype(jnp.int32)
        lists = lists.at[to, taken[to]].set(s)
        slot = slot.at[s].set(to * room + taken[to])
        return load.at[to].add(costs[s]), taken.at[to].add(1), lists, slot

    lists = jnp.full((devices, room), -1, jnp.int32)
    slot = jnp.zeros(costs.shape[0], jnp.int32)
    begin = (jnp.zeros(devices), jnp.zeros(devices, jnp.int32), lists, slot)
    return jax.lax.fori_loop(0, costs.shape[0], give, begin)[2:]


def _run_jobs(job: Callable[[Array], Out], numbers: Array, costs: Array, plan: Plan) -> Out:
    """Return the results of `job` for each of the numbers, stacked. Jobs of about equal cost are
    done side by side."""
    if plan.sequential:
        return jax.lax.map(job, numbers)
    number, lanes = numbers.shape[0], plan.lanes
    if not 0 < lanes < number:
        return jax.vmap(job)(numbers)
    order = jnp.argsort(jnp.where(numbers >= 0, -costs[numbers], jnp.inf))
    blocks = jnp.pad(numbers[order], (0, -number % lanes), constant_values=-1).reshape(-1, lanes)
    back = jnp.argsort(order)
    return jax.tree.map(
        lambda each: each.reshape(blocks.size, *each.shape[2:])[back],
        jax.lax.map(jax.vmap(job), blocks),
    )
