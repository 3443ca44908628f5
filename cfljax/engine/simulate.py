"""HOST. A batch of runs from start to end: chunks of rounds on the device, regrouping between them, and the history."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.devices import distributed
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import lying, placed, sharded
from cfljax.engine import groups, history
from cfljax.engine.clock import Clock
from cfljax.engine.groups import Group, Programs
from cfljax.engine.outputs import Output, Seconds, output_of
from cfljax.engine.resume import Checkpoint, Rows, Spent, check_rows, named, restore
from cfljax.engine.settings import Assembled, Carry, Settings
from cfljax.local.send import as_trained_on, exact_share
from cfljax.types import Federation, Method, Tree

AfterChunk = Callable[[int, np.ndarray], None]
"""Is called after each chunk with (rounds done, accuracy f32[R]: NaN where the chunk did not end with an evaluation)."""
SaveCheckpoint = Callable[[Callable[[], Checkpoint]], None]
"""Is called after each chunk with a function that makes a checkpoint, and calls that where it is time for one."""
Evaluated = tuple[int, Tree, Tree]
"""(rounds done, report, scores): an evaluation of a group, still on the device."""


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
    """The runs of one batch: run r has `seeds[r]` and the numbers `hypers[r]`. `chunk_rounds`: rounds in a chunk; None: as many as
    take about two seconds. How rounds are cut into chunks changes no bit of the result. `resume`: the checkpoint to go on from;
    CheckpointMismatch where it does not fit. `until`: pause after this number of rounds, when `checkpoint` is called; a paused
    batch has no outputs, and goes on from its checkpoint to the same bits as without a pause."""
    settings, runs = parts.settings, len(seeds)
    before = Spent(0.0, 0.0, 0.0, 0.0) if resume is None else resume.spent
    begin = time.perf_counter()
    whole, federation = _inputs(parts, seeds, hypers)
    seconds_setup = before.setup + time.perf_counter() - begin
    batch = Simulation(parts, whole, federation, resume)
    seconds_compile = before.compile + batch.seconds_compile
    done, rows = (0, []) if resume is None else (resume.done, [resume.rows])
    clock = Clock(before.rounds, before.evaluation)
    distributed.meet()
    last = settings.rounds if until is None else min(until, settings.rounds)
    while not rows or done < last:
        if not rows:
            new = batch.first_row(clock)
        else:
            most = min(chunk_rounds or clock.rounds_ahead(), last - done)
            stop = distributed.agree(_next_stop(parts.method, settings, done, most))
            new, done = clock.time(stop - done, batch.advance, done, stop), stop
        rows += new
        check_rows(rows[0], rows[-1])
        if done in _regroup_rounds(parts.method, settings):
            batch.regroup(done)
        if progress is not None:
            progress(done, rows[-1]["accuracy"][:runs, -1] if new else np.full(runs, np.nan))
        if checkpoint is not None and 0 < done < settings.rounds:
            spent = Spent(seconds_setup, seconds_compile, clock.total, clock.evaluation)
            checkpoint(lambda: Checkpoint(done, named(batch.carry()), _joined(rows), spent))  # noqa: B023
    if last <= done < settings.rounds:
        return []
    rows_of_all, carry, accuracy = _joined(rows), batch.carry(), batch.accuracy
    seconds = (seconds_compile, *clock.split(rows_of_all["round"].shape[1]), seconds_setup)
    share = Seconds(*(spent / runs for spent in seconds))
    of_run = lambda tree, r: jax.tree.map(lambda a: a[r], tree)  # noqa: E731
    return [output_of(parts, of_run(carry, r), of_run(rows_of_all, r), accuracy[r], share) for r in range(runs)]


class Simulation:
    """The runs of a batch in their groups, and where they stand."""

    def __init__(self, parts: Assembled, whole: Group, federation: Federation, resume: Checkpoint | None):
        """`whole`: what all runs start from. `federation`: as it lies on the devices."""
        self.parts, self.whole, self.federation = parts, whole, federation
        self.scored_on, self.clients = groups.as_evaluated(federation), history.clients_of(parts.federation)
        self.groups = groups.grouped(parts, whole)
        self.programs: Programs
        self.programs, self.seconds_compile = groups.compile_programs(parts, self.groups[0], federation)
        self.carries = self._first_carries() if resume is None else self._restored(resume)
        self.accuracy = np.zeros(0)
        """f32[R, C]: of each client at the last evaluation."""

    def _first_carries(self) -> list[Carry]:
        return [self.programs.start(*group, self.federation) for group in self.groups]

    def _restored(self, resume: Checkpoint) -> list[Carry]:
        runs, size = self.whole.keys.shape[0], self.groups[0].keys.shape[0]
        return self._dealt(restore(groups.start_form(self.parts, self.groups[0], runs), resume.carry), size)

    def _dealt(self, whole: Carry, size: int) -> list[Carry]:
        """The carry (on the host) of each group of this size."""
        starts = range(0, self.whole.keys.shape[0], size)
        return [placed(groups.part(whole, at, size), self.parts.mesh, True) for at in starts]

    def carry(self) -> Carry:
        """What all runs carry, on the host."""
        carry: Carry = groups.joined([_fetched(each) for each in self.carries])
        return carry

    def first_row(self, clock: Clock) -> list[Rows]:
        """The row of the history before the first round, from an evaluation that is timed."""
        nothing = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self.programs.report)
        first = clock.price(self._evaluated, self.groups[0], self.carries[0], 0)
        others = [self._evaluated(*each, 0) for each in zip(self.groups[1:], self.carries[1:], strict=True)]
        return [self._row(0, [(0, nothing, scored) for scored in (first, *others)])]

    def advance(self, done: int, stop: int) -> list[Rows]:
        """Rounds from `done` to `stop`; the rows of the history after them. Nothing is fetched from the device before the end."""
        found = [self._advance_group(at, done, stop) for at in range(len(self.groups))]
        rows = [self._row(evaluated[0][0], list(evaluated)) for evaluated in zip(*found, strict=True)]
        jax.block_until_ready(self.carries)
        return rows

    def _advance_group(self, at: int, done: int, stop: int) -> list[Evaluated]:
        settings, group, found = self.parts.settings, self.groups[at], []
        while done < stop:
            end = min(stop, settings.rounds, (done // settings.eval_every + 1) * settings.eval_every)
            bounds = placed(np.array([done, end], np.int32), self.parts.mesh)
            self.carries[at], report = self.programs.rounds(self.carries[at], group.keys, group.hyper, self.federation, bounds)
            done = end
            if done % settings.eval_every == 0 or done == settings.rounds:
                found.append((done, report, self._evaluated(group, self.carries[at], done)))
        return found

    def _evaluated(self, group: Group, carry: Carry, done: int) -> Tree:
        at = placed(np.int32(done), self.parts.mesh)
        seen = self.programs.view(carry.state, group.hyper, self.federation, at)
        return self.programs.evaluate(seen, group.numbers, self.scored_on, at)

    def _row(self, round: int, evaluated: list[Evaluated]) -> Rows:
        """[R, 1, …]: a row of the history, from the evaluations of all groups."""
        report, scored = groups.joined([_fetched((report, scored)) for _, report, scored in evaluated])
        self.accuracy = history.client_accuracies(scored)
        row = history.row_of(self.clients, report, scored, self.programs.models, round, self.parts.settings.label_history)
        return {name: each[:, None] for name, each in row.items()}

    def regroup(self, done: int) -> None:
        """Let the method's host step change the state of each run, as process 0 computes it."""
        parts, carry, states = self.parts, self.carry(), []
        assert parts.method.regroup is not None
        with lying(self.federation, parts.mesh):
            for r in range(self.whole.keys.shape[0]):
                state, numbers = jax.tree.map(lambda a, r=r: a[r], (carry.state, self.whole.hyper))
                seen = as_trained_on(parts.settings.sending, numbers, parts.federation)
                states.append(parts.method.regroup(keys.fold(self.whole.keys[r], "regroup", done), state, seen, numbers, done))
        state = jax.tree.map(lambda *each: np.stack([np.asarray(e) for e in each]), *states)
        self.carries = self._dealt(distributed.same(carry._replace(state=state)), self.groups[0].keys.shape[0])


def _inputs(parts: Assembled, seeds: list[int], hypers: list[dict[str, float]]) -> tuple[Group, Federation]:
    """(what all runs start from, the federation where it is computed on)."""
    mesh, federation = parts.mesh, parts.federation
    on_devices = sharded(federation, mesh) if parts.sharded and mesh is not None else placed(federation, mesh)
    with lying(on_devices, mesh):
        return group_of(parts, seeds, hypers), on_devices


def group_of(parts: Assembled, seeds: list[int], hypers: list[dict[str, float]]) -> Group:
    """What all runs start from, on the host."""
    mesh, settings = parts.mesh, parts.settings
    missing = 0 if mesh is None else -len(seeds) % mesh.shape.get(RUNS, 1)
    seeds, hypers = seeds + seeds[-1:] * missing, hypers + hypers[-1:] * missing  # each group of devices has equally many runs
    hypers = [exact_share(settings.sending, each, parts.federation) for each in hypers]
    run_keys = jnp.stack([keys.root(seed) for seed in seeds])
    hyper = {name: np.array([h[name] for h in hypers], np.float32) for name in hypers[0]}
    with jax.default_matmul_precision(settings.precision):
        setup = distributed.same(_setups(parts, run_keys, hypers))
    return Group(run_keys, hyper, setup)


def _setups(parts: Assembled, run_keys: jax.Array, hypers: list[dict[str, float]]) -> Tree:
    """What the method prepares on the host, of all runs: a leading R on every array."""
    if parts.method.setup is None:
        return {}
    each = []
    for r, hyper in enumerate(hypers):
        numbers = {name: jnp.float32(value) for name, value in (hyper | {"participants": parts.settings.participants}).items()}
        each.append(parts.method.setup(run_keys[r], as_trained_on(parts.settings.sending, numbers, parts.federation), numbers))
    return jax.tree.map(_stack, *each)


def _stack(*each: Tree) -> np.ndarray:
    """The runs' arrays as one; where they differ in their first axis (numbers of clusters found), zeros fill up the shorter."""
    arrays = [np.asarray(e) for e in each]
    if arrays[0].ndim:
        longest = max(len(a) for a in arrays)
        arrays = [np.concatenate([a, np.zeros((longest - len(a), *a.shape[1:]), a.dtype)]) for a in arrays]
    return np.stack(arrays)


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


def _regroup_rounds(method: Method, settings: Settings) -> tuple[int, ...]:
    return () if method.regroup_after is None else tuple(method.regroup_after(settings.rounds))


def _next_stop(method: Method, settings: Settings, done: int, most: int) -> int:
    """Where the next chunk must end: at the next regrouping, or when it has made as many rounds or evaluations as it may."""
    ahead = [r for r in _regroup_rounds(method, settings) if r > done]
    room = (done // settings.eval_every + settings.evaluations) * settings.eval_every
    return min([settings.rounds, room, done + most, *ahead])


def _joined(rows: list[Rows]) -> Rows:
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rows)
