"""HOST. A batch of runs from start to end: chunks of rounds on the device, regrouping between them,
and the history."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np

from cfljax import keys
from cfljax.devices import distributed
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import put_on_mesh, use_federation
from cfljax.engine import groups, history
from cfljax.engine.afterwards import score_finetuned, score_newcomers
from cfljax.engine.evaluation import strip_training
from cfljax.engine.groups import Group, fetch, make_inputs
from cfljax.engine.history import Watch
from cfljax.engine.outputs import Output, Seconds, list_numbers, make_output
from cfljax.engine.program import compile_programs, start_form
from cfljax.engine.resume import (
    Checkpoint,
    CheckpointMismatch,
    ChunkTimer,
    End,
    Rows,
    Spent,
    check_rows,
    name_arrays,
    restore,
)
from cfljax.engine.settings import Assembled, Carry, Settings
from cfljax.lazy import jax
from cfljax.local.attacks import flip_labels
from cfljax.types import Federation, HostHyper, Method, Tree

# Is called after each chunk with (rounds done, accuracy f32[R]: NaN where the chunk did not end
# with an evaluation)
AfterChunk = Callable[[int, np.ndarray], None]
# Is called after each chunk with a function that makes a checkpoint, and calls it when a checkpoint
# is due
SaveCheckpoint = Callable[[Callable[[], Checkpoint]], None]
# Is called at each evaluation of each run with (position of the run in the batch, round, numbers by
# their names in the history); True stops the run
AtEvaluation = Callable[[int, int, dict[str, float]], bool]
# (report, scores): an evaluation of a group, still on the device
Evaluated = tuple[Tree, Tree]


def simulate(
    parts: Assembled,
    seeds: list[int],
    hypers: list[HostHyper],
    *,
    chunk_rounds: int | None = None,
    progress: AfterChunk | None = None,
    resume: Checkpoint | None = None,
    checkpoint: SaveCheckpoint | None = None,
    until: int | None = None,
    callback: AtEvaluation | None = None,
) -> list[Output]:
    """Run one batch: run r has `seeds[r]` and the numbers `hypers[r]`. How rounds are divided into
    chunks changes no bit of the result.

    Args:
      parts: The batch, besides seeds and numbers.
      seeds: The seed of each run.
      hypers: The numbers of each run.
      chunk_rounds: Rounds in a chunk; None: as many as take about two seconds.
      progress: Is called after each chunk.
      resume: The checkpoint to continue from; CheckpointMismatch if it does not fit.
      checkpoint: Is called after each chunk.
      until: Pause after this number of rounds, when `checkpoint` is called; a paused batch has no
        outputs, and resumes to the same bits as without a pause.
      callback: Is called at each evaluation, and may stop runs.
    """
    settings = parts.settings
    score = parts.model.score.name
    runs = len(seeds)
    before = Spent(0.0, 0.0, 0.0, 0.0) if resume is None else resume.spent
    begin = time.perf_counter()
    whole, federation = make_inputs(parts, seeds, hypers)
    seconds_setup = before.setup + time.perf_counter() - begin
    batch = Simulation(parts, whole, federation, resume)
    done, rows = (0, []) if resume is None else (resume.done, [resume.rows])
    if resume is not None and resume.end is not None:
        batch.catch_up(done, resume.end)
    timer = ChunkTimer(before.rounds, before.evaluation)
    # Processes meet here, as devices wait for each other for half a minute only
    distributed.agree(None)
    last = settings.rounds if until is None else min(until, settings.rounds)
    watch = batch.watch
    while not rows or (done < last and watch.live[:runs].any()):
        if not rows:
            new = batch.first_row(timer)
        else:
            most = min(chunk_rounds or timer.rounds_ahead(), last - done)
            # Each evaluation may end a run
            one = settings.stop is not None or callback is not None
            stop = distributed.agree(_next_stop(parts.method, settings, done, most, one))
            new = timer.time(stop - done, batch.advance, done, stop)
            done = stop
        rows += new
        check_rows(rows[0], rows[-1])
        if callback is not None:
            for row in new:
                _show_evaluation(batch, row, runs, callback)
        batch.end(np.concatenate([watch.see(row) for row in new]) if new else np.zeros(0, np.int64))
        if done in _regroup_rounds(parts.method, settings.rounds):
            batch.regroup(done)
        if progress is not None:
            progress(done, rows[-1][score][:runs, -1] if new else np.full(runs, np.nan))
        if checkpoint is not None and 0 < done < settings.rounds:
            spent = Spent(
                seconds_setup, before.compile + batch.seconds_compile, timer.total, timer.evaluation
            )
            checkpoint(functools.partial(_make_checkpoint, done, batch, rows, spent))
    if done < settings.rounds and watch.live[:runs].any():
        return []
    if done < settings.rounds and progress is not None:
        progress(settings.rounds, rows[-1][score][:runs, -1])
    evaluations = sum(row["round"].shape[1] for row in rows)
    seconds_train, seconds_eval = timer.split(evaluations)
    seconds = Seconds(
        before.compile + batch.seconds_compile, seconds_train, seconds_eval, seconds_setup
    )
    return _make_outputs(batch, _concatenate(rows), seconds, timer.evaluation, runs)


def _make_outputs(
    batch: Simulation, rows: Rows, seconds: Seconds, evaluation: float, runs: int
) -> list[Output]:
    """Make each run's output: its rows up to its end, and its share of the seconds. `evaluation`:
    the seconds of one evaluation of the batch."""
    watch = batch.watch
    carry = batch.carry()
    rounds = batch.parts.settings.rounds
    regrouped = rounds in _regroup_rounds(batch.parts.method, rounds)
    arrays = {name: np.asarray(each) for name, each in name_arrays(carry).items()}
    outputs = []
    ran = np.where(watch.live, int(rows["round"][0, -1]), watch.ended)
    at_end = (batch.parts, batch.whole, carry.state, ran, batch.federation)
    newcomers, first = score_newcomers(*at_end)
    finetuned, second = score_finetuned(*at_end)
    seconds = seconds._replace(compile=seconds.compile + first + second)
    for r, share in enumerate(watch.shares(int(rows["round"][0, -1]), runs)):
        own = Seconds(
            seconds.compile / runs,
            seconds.train * share,
            seconds.eval * share,
            seconds.setup / runs,
        )
        last = Checkpoint(
            int(ran[r]),
            {name: each[r : r + 1] for name, each in arrays.items()},
            {name: each[r : r + 1, : watch.evaluations[r]] for name, each in rows.items()},
            Spent(own.setup, own.compile, own.train + own.eval, evaluation / runs),
            # A run that has ended early is left as it was before the host step
            End(rounds, regrouped and r not in batch.frozen),
            (int(watch.stopped[r]),) if watch.stopped[r] >= 0 else (),
        )
        state: Carry = jax.tree.map(lambda a, r=r: a[r], carry)
        outputs.append(
            make_output(
                batch.parts, state, batch.accuracy[r], newcomers[r], finetuned[r], own, last
            )
        )
    return outputs


def _regroup_rounds(method: Method, rounds: int) -> tuple[int, ...]:
    """Return after which rounds the method's host step is due in a run of so many rounds."""
    return () if method.regroup_after is None else tuple(method.regroup_after(rounds))


def _show_evaluation(batch: Simulation, row: Rows, runs: int, callback: AtEvaluation) -> None:
    """Show the numbers of each live run to the user's callback, and note which runs it stops. A run
    that has done all its rounds cannot be stopped any more."""
    at = int(row["round"][0, 0])
    for r in np.flatnonzero(batch.watch.live[:runs]).tolist():
        if callback(r, at, list_numbers(batch.parts, row, r)) and at < batch.parts.settings.rounds:
            batch.watch.stopped[r] = at


def _next_stop(method: Method, settings: Settings, done: int, most: int, one: bool) -> int:
    """Return where the next chunk must end: at the next regrouping, or at the limit of its rounds
    or evaluations. `one`: a chunk has one evaluation at most."""
    ahead = [r for r in _regroup_rounds(method, settings.rounds) if r > done]
    evaluations = 1 if one else settings.evaluations
    room = (done // settings.eval_every + evaluations) * settings.eval_every
    return min([settings.rounds, room, done + most, *ahead])


def _make_checkpoint(
    done: int, simulation: Simulation, rows: list[Rows], spent: Spent
) -> Checkpoint:
    """Return the state after `done` rounds, with the history so far and the seconds spent."""
    stopped = tuple(simulation.watch.stopped.tolist())
    return Checkpoint(
        done,
        name_arrays(simulation.carry()),
        _concatenate(rows),
        spent,
        stopped=stopped if max(stopped) >= 0 else (),
    )


def _concatenate(rows: list[Rows]) -> Rows:
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rows)


class Simulation:
    """The runs of a batch in their groups, and their progress."""

    def __init__(
        self, parts: Assembled, whole: Group, federation: Federation, resume: Checkpoint | None
    ):
        """`whole`: the starting point of all runs. `federation`: on the devices."""
        self.parts = parts
        self.whole = whole
        self.federation = federation
        self.scored_on = strip_training(federation)
        self.clients = history.extract_clients(parts.federation, parts.model.score)
        self.groups = groups.split_into_groups(parts, whole)
        self.runs = whole.keys.shape[0]
        size = self.groups[0].keys.shape[0]
        # Which runs are in each group
        self.members = [np.arange(at, at + size) for at in range(0, self.runs, size)]
        programs, self.seconds_compile = compile_programs(parts, self.groups[0], federation)
        self.programs = [programs] * len(self.groups)
        self.watch = Watch(parts.settings.stop, self.runs)
        # What the runs that have ended carry: [1, …] on the host
        self.frozen: dict[int, Carry] = {}
        # The last row of the history
        self.row: Rows = {}
        # f32[R, C]: of each client at the last evaluation
        self.accuracy = np.zeros(0)
        if resume is None:
            self.carries = [programs.start(*group, federation) for group in self.groups]
        else:
            self.carries = self._restore(resume)

    def _restore(self, resume: Checkpoint) -> list[Carry]:
        """Restore the groups' carries from a checkpoint; runs that had ended are evaluated again,
        for their clients' scores."""
        form = start_form(self.parts, self.groups[0])
        whole = restore(groups.add_runs(form, self.runs), resume.carry)
        self.carries = self._deal(whole)
        self.row = {name: each[:, -1:] for name, each in resume.rows.items()}
        if resume.stopped:
            self.watch.stopped[:] = resume.stopped
        ended = self.watch.see(resume.rows)
        if len(ended):
            self.accuracy = np.full((self.runs, len(self.clients.group)), np.nan, np.float32)
        for r in ended:
            at, slot = self._locate(r)
            _, scored = fetch(self._evaluate(at, int(self.watch.ended[r])))
            scored = history.to_scores(self.clients, scored)
            self.accuracy[r] = history.client_accuracies(scored)[slot]
        self.end(ended)
        return self.carries

    def _deal(self, whole: Carry) -> list[Carry]:
        return [
            put_on_mesh(groups.select_runs(whole, members), self.parts.mesh, True)
            for members in self.members
        ]

    def _locate(self, run: int) -> tuple[int, int]:
        at = next(at for at, members in enumerate(self.members) if run in members)
        return at, int(np.argmax(self.members[at] == run))

    def carry(self) -> Carry:
        """Return the carry of all runs, on the host."""
        carry: Carry = groups.scatter_runs(
            [fetch(each) for each in self.carries], self.members, self.runs
        )
        for r, own in self.frozen.items():
            carry = jax.tree.map(
                lambda a, one, r=r: np.concatenate([a[:r], one, a[r + 1 :]]), carry, own
            )
        return carry

    def end(self, ended: np.ndarray) -> None:
        """Freeze these runs. Groups that are computed side by side shrink to the live runs whenever
        half of them have ended."""
        for r in ended:
            at, slot = self._locate(r)
            self.frozen[int(r)] = fetch(groups.slice_runs(self.carries[at], slot, 1))
        if len(ended) and not self.parts.settings.sequential:
            for at in range(len(self.groups)):
                self._shrink_group(at)

    def _shrink_group(self, at: int) -> None:
        members = self.members[at]
        devices = 1 if self.parts.mesh is None else int(self.parts.mesh.shape.get(RUNS, 1))
        live = members[self.watch.live[members]]
        size = len(members)
        while size % 2 == 0 and size // 2 >= max(len(live), 1) and size // 2 % devices == 0:
            size //= 2
        if size == len(members) or not len(live):
            return
        # The last live run fills the room that is left
        slots = [int(np.argmax(members == r)) for r in live]
        slots += slots[-1:] * (size - len(slots))
        carry = groups.select_runs(fetch(self.carries[at]), np.array(slots))
        self.members[at] = members[slots]
        self.groups[at] = groups.place_group(
            self.parts, groups.select_runs(tuple(self.whole), self.members[at])
        )
        self.programs[at], seconds = compile_programs(self.parts, self.groups[at], self.federation)
        self.seconds_compile += seconds
        self.carries[at] = put_on_mesh(carry, self.parts.mesh, True)

    def first_row(self, timer: ChunkTimer) -> list[Rows]:
        """Return the row of the history before the first round, from a timed evaluation."""
        first = timer.price(self._evaluate, 0, 0)
        others = [self._evaluate(at, 0) for at in range(1, len(self.groups))]
        return [self._row(0, dict(enumerate((first, *others))))]

    def advance(self, done: int, stop: int) -> list[Rows]:
        """Run the rounds from `done` to `stop`, and return their rows. Nothing is fetched from the
        device before the end."""
        going_on = [at for at, members in enumerate(self.members) if self.watch.live[members].any()]
        found = {at: self._advance_group(at, done, stop) for at in going_on}
        evaluations = [each[0] for each in found[going_on[0]]]
        rows = [
            self._row(t, {at: each[i][1] for at, each in found.items()})
            for i, t in enumerate(evaluations)
        ]
        jax.block_until_ready(self.carries)
        return rows

    def _advance_group(self, at: int, done: int, stop: int) -> list[tuple[int, Evaluated]]:
        """Return (round, evaluation) of each evaluation."""
        settings = self.parts.settings
        group = self.groups[at]
        found = []
        while done < stop:
            end = min(
                stop, settings.rounds, (done // settings.eval_every + 1) * settings.eval_every
            )
            bounds = put_on_mesh(np.array([done, end], np.int32), self.parts.mesh)
            program = self.programs[at].rounds
            self.carries[at], report = program(
                self.carries[at], group.keys, group.hyper, self.federation, bounds
            )
            done = end
            if done % settings.eval_every == 0 or done == settings.rounds:
                found.append((done, (report, self._evaluate(at, done)[1])))
        return found

    def _evaluate(self, at: int, done: int) -> Evaluated:
        """Evaluate a group after this number of rounds: (a report of zeros, the scores)."""
        programs = self.programs[at]
        group = self.groups[at]
        state = self.carries[at].state
        at_round = put_on_mesh(np.int32(done), self.parts.mesh)
        seen = programs.view(state, group.hyper, self.federation, at_round)
        nothing = {name: np.zeros(a.shape, a.dtype) for name, a in programs.report.items()}
        scored = programs.evaluate(
            seen._replace(shares=None), group.numbers, self.scored_on, at_round
        )
        mixed = seen.mixture if seen.shares is None else seen.shares
        return nothing, scored | ({} if mixed is None else {"shares": mixed})

    def _row(self, round: int, evaluated: dict[int, Evaluated]) -> Rows:
        """Make a row of the history, [R, 1, …], from the evaluations of groups. Runs that have
        ended keep their values."""
        settings = self.parts.settings
        found = [fetch(each) for each in evaluated.values()]
        report, scored = groups.scatter_runs(
            found, [self.members[at] for at in evaluated], self.runs
        )
        scored = history.to_scores(self.clients, scored)
        accuracy = history.client_accuracies(scored)
        clients = self.clients.at(round)
        row = history.make_row(
            clients, report, scored, self.programs[0].models, round, settings.label_history
        )
        row |= history.count_moves(self.clients, len(accuracy), round, settings.eval_every)
        row = {name: each[:, None] for name, each in row.items()}
        ended = list(self.frozen)
        if ended:
            accuracy[ended] = self.accuracy[ended]
            for name in row.keys() - {"round"}:
                row[name][ended] = self.row[name][ended]
        self.accuracy = accuracy
        self.row = row
        return row

    def catch_up(self, done: int, end: End) -> None:
        """Do what a run that ended after `done` rounds has left out, because no round followed;
        CheckpointMismatch if it was another run before."""
        method = self.parts.method
        wanted = _regroup_rounds(method, self.parts.settings.rounds)
        earlier = _regroup_rounds(method, end.rounds)
        if [r for r in wanted if r < done] != [r for r in earlier if r < done] or (
            end.regrouped and done not in wanted
        ):
            raise CheckpointMismatch(
                "the rounds in which the method clusters again depend on train.rounds"
            )
        if done in wanted and not end.regrouped:
            self.regroup(done)

    def regroup(self, done: int) -> None:
        """Let the method's host step change the state of each live run, as process 0 computes
        it."""
        parts = self.parts
        carry = self.carry()
        states = []
        assert parts.method.regroup is not None
        with use_federation(self.federation, parts.mesh):
            for r in range(self.runs):
                state, numbers = jax.tree.map(lambda a, r=r: a[r], (carry.state, self.whole.hyper))
                if r not in self.frozen:
                    seen = flip_labels(
                        parts.settings.sending.attack, numbers, parts.federation.at(done)
                    )
                    state = parts.method.regroup(
                        keys.fold(self.whole.keys[r], "regroup", done), state, seen, numbers, done
                    )
                states.append(state)
        state = jax.tree.map(lambda *each: np.stack([np.asarray(e) for e in each]), *states)
        self.carries = self._deal(distributed.broadcast(carry._replace(state=state)))
