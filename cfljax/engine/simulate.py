"""HOST. A batch of runs from start to end: chunks of rounds on the device, regrouping between them, and the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.devices import distributed
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import lying, placed, sharded
from cfljax.devices.spread import everywhere
from cfljax.engine.clock import Clock
from cfljax.engine.compiled import compiled
from cfljax.engine.outputs import Output, Seconds, output_of
from cfljax.engine.program import Program, make_program
from cfljax.engine.resume import Checkpoint, Rows, Spent, check_rows, named, restore
from cfljax.engine.settings import Assembled, Carry, Settings
from cfljax.local.send import as_trained_on, exact_share
from cfljax.types import Federation, Hyper, Method, Tree

AfterChunk = Callable[[int, np.ndarray], None]
"""Is called after each chunk with (rounds done, accuracy f32[R]: NaN where the chunk did not end with an evaluation)."""
SaveCheckpoint = Callable[[Callable[[], Checkpoint]], None]
"""Is called after each chunk with a function that makes a checkpoint, and calls that where it is time for one."""


class Inputs(NamedTuple):
    """What all runs start from: a leading R on every array but the federation's."""

    keys: jax.Array
    hyper: Hyper
    setup: Tree
    """What the method has prepared."""
    federation: Federation
    """As it lies on the devices."""


def simulate(
    parts: Assembled,
    seeds: list[int],
    hypers: list[dict[str, float]],
    *,
    chunk_rounds: int | None = None,
    progress: AfterChunk | None = None,
    resume: Checkpoint | None = None,
    checkpoint: SaveCheckpoint | None = None,
) -> list[Output]:
    """The runs of one batch: run r has `seeds[r]` and the numbers `hypers[r]`. `chunk_rounds`: rounds in a chunk; None: as many as
    take about two seconds. How rounds are cut into chunks changes no bit of the result. `resume`: the checkpoint to go on from;
    CheckpointMismatch where it does not fit."""
    method, settings, mesh, runs = parts.method, parts.settings, parts.mesh, len(seeds)
    before = Spent(0.0, 0.0, 0.0, 0.0) if resume is None else resume.spent
    begin = time.perf_counter()
    inputs = _inputs(parts, seeds, hypers)
    seconds_setup = before.setup + time.perf_counter() - begin
    program = make_program(method, parts.model, settings)
    of_runs = placed((inputs.keys, inputs.hyper, inputs.setup), mesh, True)
    carry, compile_start = _first_carry(parts, program, (*of_runs, inputs.federation), resume)
    done, rows = (0, []) if resume is None else (resume.done, [resume.rows])
    fixed = (*of_runs[:2], inputs.federation)
    bounds = lambda *at: placed(np.array(at, np.int32), mesh)  # noqa: E731 (one array: each costs a tenth of a millisecond)
    args = (carry, *fixed, bounds(0, 0, True))
    chunk, compile_chunk = compiled(everywhere(program.chunk, mesh, 3), args, _name(parts, "chunk"), mesh, (0,))
    seconds_compile = compile_start + compile_chunk
    clock = Clock(before.rounds, before.evaluation)
    distributed.meet()
    while not rows or done < settings.rounds:
        if not rows:  # a chunk that only evaluates changes nothing
            stop = 0
            carry, new = clock.price(chunk, carry, *fixed, bounds(0, stop, True))
        else:
            stop = distributed.agree(_next_stop(method, settings, done, chunk_rounds or clock.rounds_ahead()))
            carry, new = clock.time(stop - done, chunk, carry, *fixed, bounds(done, stop, False))
        reached = _fetched({name: new[name] for name in ("round", "valid")})
        done, evaluated = min(stop, int(reached["round"][0, -1])), bool(reached["valid"].any())
        if evaluated:
            rows.append(_filled(_fetched(new)))
            check_rows(rows[0], rows[-1])
        if done in _regroup_rounds(method, settings):
            carry = _regrouped(parts, inputs, carry, done)
        if progress is not None:
            progress(done, rows[-1]["accuracy"][:runs, -1] if evaluated else np.full(runs, np.nan))
        if checkpoint is not None and 0 < done < settings.rounds:
            spent = Spent(seconds_setup, seconds_compile, clock.total, clock.evaluation)
            checkpoint(lambda: Checkpoint(done, named(_fetched(carry)), _joined(rows), spent))  # noqa: B023
    history, carry = _joined(rows), _fetched(carry)
    seconds = (seconds_compile, *clock.split(history["round"].shape[1]), seconds_setup)
    share = Seconds(*(spent / runs for spent in seconds))
    return [output_of(parts, carry, history, r, share) for r in range(runs)]


def _inputs(parts: Assembled, seeds: list[int], hypers: list[dict[str, float]]) -> Inputs:
    """Keys, numbers, what the method prepares, and the federation where it is computed on."""
    mesh, settings, federation = parts.mesh, parts.settings, parts.federation
    missing = 0 if mesh is None else -len(seeds) % mesh.shape.get(RUNS, 1)
    seeds, hypers = seeds + seeds[-1:] * missing, hypers + hypers[-1:] * missing  # each group of devices has equally many runs
    hypers = [exact_share(settings.sending, each, federation) for each in hypers]
    run_keys = jnp.stack([keys.root(seed) for seed in seeds])
    hyper = {name: jnp.array([h[name] for h in hypers], jnp.float32) for name in hypers[0]}
    on_devices = sharded(federation, mesh) if parts.sharded and mesh is not None else placed(federation, mesh)
    with jax.default_matmul_precision(settings.precision), lying(on_devices, mesh):
        setup = distributed.same(_setups(parts, run_keys, hypers))
    return Inputs(run_keys, hyper, setup, on_devices)


def _setups(parts: Assembled, run_keys: jax.Array, hypers: list[dict[str, float]]) -> Tree:
    """What the method prepares on the host, of all runs: a leading R on every array."""
    if parts.method.setup is None:
        return {}
    each = []
    for r, hyper in enumerate(hypers):
        numbers = {name: jnp.float32(value) for name, value in (hyper | {"participants": parts.settings.participants}).items()}
        each.append(parts.method.setup(run_keys[r], as_trained_on(parts.settings.sending, numbers, parts.federation), numbers))
    return jax.tree.map(_stack, *each)


def _stack(*each: Tree) -> jax.Array:
    """The runs' arrays as one; where they differ in their first axis (numbers of clusters found), zeros fill up the shorter."""
    arrays = [np.asarray(e) for e in each]
    if arrays[0].ndim:
        longest = max(len(a) for a in arrays)
        arrays = [np.concatenate([a, np.zeros((longest - len(a), *a.shape[1:]), a.dtype)]) for a in arrays]
    return jnp.asarray(np.stack(arrays))


def _fetched(arrays: Tree) -> Tree:
    """The arrays on the host, put together from the devices of this process, which have all of them."""

    def whole(array: Tree) -> Tree:
        if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
            return jax.device_get(array)
        out = np.empty(array.shape, array.dtype)
        for part in array.addressable_shards:
            out[part.index] = part.data
        return out

    return jax.tree.map(whole, arrays)


def _name(parts: Assembled, function: str) -> Hashable:
    """What `compiled` keeps a function of the batch's program under."""
    return None if parts.program_key is None else (parts.program_key, parts.plan, parts.settings, function)


def _first_carry(parts: Assembled, program: Program, args: tuple[Tree, ...], resume: Checkpoint | None) -> tuple[Carry, float]:
    """(the carry to go on from, seconds of compiling so far). `args`: of the program's start."""
    if resume is None:
        start, seconds = compiled(everywhere(program.start, parts.mesh, 3), args, _name(parts, "start"), parts.mesh)
        return start(*args), seconds
    like = jax.eval_shape(program.start, *args[:3], parts.federation)  # the structure that the saved arrays go into
    return placed(restore(like, resume.carry), parts.mesh, True), resume.spent.compile


def _regroup_rounds(method: Method, settings: Settings) -> tuple[int, ...]:
    return () if method.regroup_after is None else tuple(method.regroup_after(settings.rounds))


def _next_stop(method: Method, settings: Settings, done: int, most: int) -> int:
    """Where the next chunk must end: at the next regrouping, or when it has made as many rounds or evaluations as it may."""
    ahead = [r for r in _regroup_rounds(method, settings) if r > done]
    room = (done // settings.eval_every + settings.evaluations) * settings.eval_every
    return min([settings.rounds, room, done + most, *ahead])


def _regrouped(parts: Assembled, inputs: Inputs, carry: Carry, done: int) -> Carry:
    """The carry after the method's host step for each run, as process 0 has made it."""
    assert parts.method.regroup is not None
    carry, states = _fetched(carry), []
    with lying(inputs.federation, parts.mesh):
        for r in range(inputs.keys.shape[0]):
            state, numbers = jax.tree.map(lambda a, r=r: a[r], (carry.state, inputs.hyper))
            seen = as_trained_on(parts.settings.sending, numbers, parts.federation)
            states.append(parts.method.regroup(keys.fold(inputs.keys[r], "regroup", done), state, seen, numbers, done))
        state = jax.tree.map(lambda *each: jnp.stack([jnp.asarray(e) for e in each]), *states)
        return placed(distributed.same(carry._replace(state=state)), parts.mesh, True)


def _filled(rows: Rows) -> Rows:
    """The rows of a chunk's history that were filled: [R, E, …] -> [R, E', …]."""
    keep = rows["valid"][0]
    return jax.tree.map(lambda a: a[:, keep], rows)


def _joined(rows: list[Rows]) -> Rows:
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rows)
