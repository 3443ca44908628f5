"""HOST. A batch of runs from start to end: chunks of rounds on the device, regrouping between them, and the history."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numpy as np

from cfljax import keys
from cfljax.devices import distributed
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import put_on_mesh, shard_federation, use_federation
from cfljax.engine.afterwards import score_finetuned, score_newcomers
from cfljax.engine.clock import Clock
from cfljax.engine.groups import Group
from cfljax.engine.outputs import Output, Seconds, make_output
from cfljax.engine.resume import Checkpoint, Rows, Spent, check_rows, name_arrays
from cfljax.engine.settings import Assembled, Carry, Settings
from cfljax.engine.simulation import Simulation
from cfljax.lazy import jax, jnp
from cfljax.local.send import exact_share, flip_labels
from cfljax.types import Federation, Method, Tree

AfterChunk = Callable[[int, np.ndarray], None]
"""Is called after each chunk with (rounds done, accuracy f32[R]: NaN where the chunk did not end with an evaluation)."""
SaveCheckpoint = Callable[[Callable[[], Checkpoint]], None]
"""Is called after each chunk with a function that makes a checkpoint, and calls it when a checkpoint is due."""


def simulate(
    parts: Assembled,
    seeds: list[int],
    hypers: list[dict[str, float]],
    *,
    chunk_rounds: int | None = None,
    progress: AfterChunk | None = None,
    resume: Checkpoint | None = None,
    checkpoint: SaveCheckpoint | None = None,
    until: int | None = None,
) -> list[Output]:
    """Run one batch: run r has `seeds[r]` and the numbers `hypers[r]`. How rounds are divided into chunks changes no bit of the
    result.

    Args:
        chunk_rounds: rounds in a chunk; None: as many as take about two seconds.
        resume: the checkpoint to continue from; CheckpointMismatch if it does not fit.
        until: pause after this number of rounds, when `checkpoint` is called; a paused batch has no outputs, and resumes to the
          same bits as without a pause."""
    settings, runs = parts.settings, len(seeds)
    before = Spent(0.0, 0.0, 0.0, 0.0) if resume is None else resume.spent
    begin = time.perf_counter()
    whole, federation = make_inputs(parts, seeds, hypers)
    seconds_setup = before.setup + time.perf_counter() - begin
    batch = Simulation(parts, whole, federation, resume)
    done, rows = (0, []) if resume is None else (resume.done, [resume.rows])
    clock = Clock(before.rounds, before.evaluation)
    distributed.agree(None)  # devices wait for each other for half a minute only
    last = settings.rounds if until is None else min(until, settings.rounds)
    watch = batch.watch
    while not rows or (done < last and watch.live[:runs].any()):
        if not rows:
            new = batch.first_row(clock)
        else:
            most = min(chunk_rounds or clock.rounds_ahead(), last - done)
            stop = distributed.agree(_next_stop(parts.method, settings, done, most))
            new, done = clock.time(stop - done, batch.advance, done, stop), stop
        rows += new
        check_rows(rows[0], rows[-1])
        batch.end(np.concatenate([watch.see(row) for row in new]) if new else np.zeros(0, np.int64))
        if done in _regroup_rounds(parts.method, settings):
            batch.regroup(done)
        if progress is not None:
            progress(done, rows[-1]["accuracy"][:runs, -1] if new else np.full(runs, np.nan))
        if checkpoint is not None and 0 < done < settings.rounds:
            spent = Spent(seconds_setup, before.compile + batch.seconds_compile, clock.total, clock.evaluation)
            checkpoint(lambda: Checkpoint(done, name_arrays(batch.carry()), _concatenate(rows), spent))  # noqa: B023
    if done < settings.rounds and watch.live[:runs].any():
        return []
    if done < settings.rounds and progress is not None:
        progress(settings.rounds, rows[-1]["accuracy"][:runs, -1])
    seconds_compile = before.compile + batch.seconds_compile
    spent_all = Seconds(seconds_compile, *clock.split(sum(row["round"].shape[1] for row in rows)), seconds_setup)
    return _make_outputs(batch, _concatenate(rows), spent_all, runs)


def _make_outputs(batch: Simulation, rows: Rows, seconds: Seconds, runs: int) -> list[Output]:
    """Make each run's output: its rows up to its end, and its share of the seconds."""
    watch, carry, outputs = batch.watch, batch.carry(), []
    ran = np.where(watch.live, int(rows["round"][0, -1]), watch.ended)
    at_end = (batch.parts, batch.whole, carry.state, ran, batch.federation)
    (newcomers, first), (finetuned, second) = score_newcomers(*at_end), score_finetuned(*at_end)
    seconds = seconds._replace(compile=seconds.compile + first + second)
    for r, share in enumerate(watch.shares(int(rows["round"][0, -1]), runs)):
        own = Seconds(seconds.compile / runs, seconds.train * share, seconds.eval * share, seconds.setup / runs)
        history_of_run = {name: each[r, : watch.evaluations[r]] for name, each in rows.items()}
        state: Carry = jax.tree.map(lambda a, r=r: a[r], carry)
        outputs.append(make_output(batch.parts, state, history_of_run, batch.accuracy[r], newcomers[r], finetuned[r], own))
    return outputs


@contextlib.contextmanager
def default_flags() -> Iterator[None]:
    """Reset JAX's flags that decide which numbers a program draws to their defaults: a run's id does not name the user's."""
    with (
        jax.enable_x64(False),
        jax.threefry_partitionable(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def make_inputs(
    parts: Assembled, seeds: list[int], hypers: list[dict[str, float]], alike: bool = False
) -> tuple[Group, Federation]:
    """Return the starting point of all runs, and the federation on its devices. `alike`: as for `make_group`, in this process."""
    mesh, federation = parts.mesh, parts.federation
    on_devices = shard_federation(federation, mesh) if parts.sharded and mesh is not None else put_on_mesh(federation, mesh)
    with use_federation(on_devices, mesh):
        group = make_group(parts, seeds, hypers, alike)
    return (group if alike else group._replace(setup=distributed.broadcast(group.setup))), on_devices


def make_group(parts: Assembled, seeds: list[int], hypers: list[dict[str, float]], alike: bool = False) -> Group:
    """Return the starting point of all runs, on the host. `alike`: the method prepares the first run, and all share the result."""
    mesh, settings = parts.mesh, parts.settings
    missing = 0 if mesh is None else -len(seeds) % mesh.shape.get(RUNS, 1)
    seeds, hypers = seeds + seeds[-1:] * missing, hypers + hypers[-1:] * missing  # each group of devices has equally many runs
    hypers = [exact_share(settings.sending, each, parts.federation) for each in hypers]
    run_keys = keys.root(np.array(seeds))
    hyper = {name: np.array([h[name] for h in hypers], np.float32) for name in hypers[0]}
    with jax.default_matmul_precision(settings.precision):
        setup = _set_up(parts, run_keys, hypers[:1] if alike else hypers)
    if alike:
        setup = jax.tree.map(lambda a: np.repeat(a, len(seeds), axis=0), setup)
    return Group(run_keys, hyper, setup)


def _set_up(parts: Assembled, run_keys: jax.Array, hypers: list[dict[str, float]]) -> Tree:
    """Call the method's setup for all runs: a leading R on every array."""
    if parts.method.setup is None:
        return {}
    each = []
    for r, hyper in enumerate(hypers):
        numbers = {name: jnp.float32(value) for name, value in (hyper | {"participants": parts.settings.participants}).items()}
        each.append(parts.method.setup(run_keys[r], flip_labels(parts.settings.sending, numbers, parts.federation), numbers))
    return jax.tree.map(_stack, *each)


def _stack(*each: Tree) -> np.ndarray:
    """Stack the runs' arrays; if they differ in their first axis (numbers of clusters found), zeros pad the shorter."""
    arrays = [np.asarray(e) for e in each]
    if arrays[0].ndim:
        longest = max(len(a) for a in arrays)
        arrays = [np.concatenate([a, np.zeros((longest - len(a), *a.shape[1:]), a.dtype)]) for a in arrays]
    return np.stack(arrays)


def _regroup_rounds(method: Method, settings: Settings) -> tuple[int, ...]:
    return () if method.regroup_after is None else tuple(method.regroup_after(settings.rounds))


def _next_stop(method: Method, settings: Settings, done: int, most: int) -> int:
    """Return where the next chunk must end: at the next regrouping, or at the limit of its rounds or evaluations."""
    ahead = [r for r in _regroup_rounds(method, settings) if r > done]
    evaluations = settings.evaluations if settings.stop is None else 1  # each may end a run
    room = (done // settings.eval_every + evaluations) * settings.eval_every
    return min([settings.rounds, room, done + most, *ahead])


def _concatenate(rows: list[Rows]) -> Rows:
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rows)
