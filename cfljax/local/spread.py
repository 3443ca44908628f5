"""Jobs on one device, one after another or side by side, or dealt to several devices so that each has about the same work.

The devices are those along the axis "clients" of the mesh in whose context (`over`) a program is traced. Everything outside of
`spread` and `share` is computed by each of them alike.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from cfljax.local.plan import Plan

AXIS = "clients"
"""The mesh axis that a round's participants are spread over."""
ROOM = 1.5
"""A device has room for so many times its share of the jobs, so that few large ones can be set off against many small ones."""


_mesh: contextvars.ContextVar[jax.sharding.Mesh | None] = contextvars.ContextVar("mesh", default=None)
# not jax.set_mesh: under it, a mapped function may no longer close over the arrays of the program around it (JAX 0.10 to 0.12)


@contextlib.contextmanager
def over(mesh: jax.sharding.Mesh | None) -> Iterator[None]:
    """Programs traced in this context use the devices of the mesh; None: one device."""
    token = _mesh.set(mesh)
    try:
        yield
    finally:
        _mesh.reset(token)


def devices() -> int:
    """How many devices a round's participants are spread over."""
    mesh = _mesh.get()
    return 1 if mesh is None else int(mesh.shape.get(AXIS, 1))


def _on_each(f: Callable[..., Any], ins: Any, outs: Any) -> Callable[..., Any]:
    return jax.shard_map(f, mesh=_mesh.get(), in_specs=ins, out_specs=outs, axis_names={AXIS}, check_vma=False)


def spread(job: Callable[[jax.Array], Any], costs: jax.Array, plan: Plan) -> Any:
    """`job(s)` for s = 0 … S − 1, stacked. `costs` f32[S]: the work of each, in any unit. `job(-1)` must cost next to nothing
    where jobs run in turn: a device's free places ask for it."""
    number, width = costs.shape[0], devices()
    if width == 1 or number == 1:
        return _on_one(job, jnp.arange(number), plan)
    lists, place = deal(costs, width, min(number, int(-(-number * ROOM // width))))

    def mine(jobs: jax.Array) -> Any:
        return _on_one(job, jobs[0], plan)

    results = _on_each(mine, jax.P(AXIS), jax.P(AXIS))(lists)
    return jax.tree.map(lambda each: each[place], results)


def share(part: Callable[[jax.Array, int], Any]) -> Any:
    """The sum over the devices of `part(number of the device, how many there are)`."""
    width = devices()
    if width == 1:
        return part(jnp.int32(0), 1)

    def mine() -> Any:
        return jax.lax.psum(part(jax.lax.axis_index(AXIS), width), AXIS)

    return _on_each(mine, (), jax.P())()


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
