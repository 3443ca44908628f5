"""Longer runs continue from the last states of shorter ones (`--keep state`): a sweep whose
`train.rounds` was raised, runs that a callback has stopped, and `Result.more`.

A continued run has the same bits as one that was never shorter. So it begins anew if it would be
computed in another way, and one line says why."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cfljax.config import Run
from cfljax.engine.resume import Checkpoint, join_runs
from cfljax.errors import SpecWarning, StoreError
from cfljax.experiment.batching import Batch, list_hyper
from cfljax.launch.checkpoints import Checkpoints, Saved, from_arrays, list_differences, to_arrays
from cfljax.registry.options import Table
from cfljax.store import Store
from cfljax.store.units import STATE_PREFIX


class Shorter(NamedTuple):
    """A run on record that differs from another in its number of rounds alone."""

    run: Run
    record: Table


def pack_state(last: Checkpoint, plan: str) -> Saved:
    """Return the last state of a run as its unit keeps it: (arrays, the record's `state`).
    `plan`: the run's execution plan, in words."""
    assert last.end is not None
    arrays, meta = to_arrays(last._replace(end=last.end._replace(plan=plan), stopped=()))
    return {f"{STATE_PREFIX}{name}": array for name, array in arrays.items()}, meta


def unpack_state(record: Table, arrays: dict[str, np.ndarray]) -> Checkpoint:
    """Return the last state of a run that has kept it, without the evaluation that it had only
    because it was its last round."""
    of_state = {
        name.removeprefix(STATE_PREFIX): array
        for name, array in arrays.items()
        if name.startswith(STATE_PREFIX)
    }
    last = from_arrays(of_state, record["state"])
    if last.done % record["config"]["train"]["eval_every"] == 0:
        return last
    return last._replace(rows={name: each[:, :-1] for name, each in last.rows.items()})


def continue_batch(
    batch: Batch, parts: list[Shorter], states: list[Checkpoint]
) -> tuple[Saved | None, str]:
    """Return (the checkpoint that a batch continues from, ""), or (None, why it cannot).

    Args:
        batch: the longer runs.
        parts: the shorter run of each.
        states: the last state of each shorter run."""
    for run, part in zip(batch.runs, parts, strict=True):
        numbers = list_hyper(run)
        shorter = list_hyper(part.run)
        if differing := [name for name in numbers if numbers[name] != shorter.get(name)]:
            return None, f"train.{', '.join(differing)} depends on train.rounds"
    if len({(state.done, state.end) for state in states}) > 1:
        return None, "the runs of its batch have ended in different rounds or by different plans"
    written = [part.record["state"]["made_by"] for part in parts]
    if differences := next(filter(None, map(list_differences, written)), ""):
        return None, f"the shorter run was made by {differences}"
    arrays, meta = to_arrays(join_runs(states, batch.width))
    return (arrays, meta), ""


def prepare_states(todo: list[Batch], units: Iterable[Run], store: Store) -> None:
    """Write the checkpoints from which batches continue that have none, if the folder has kept the
    last states of shorter runs, or of the same runs that a callback has stopped; say what is
    continued, and what begins anew.

    Args:
        todo: the batches that are to be computed.
        units: all runs of the spec.
        store: the results folder."""
    lengths = _list_lengths(store, {run.id for run in units})
    continued: Counter[int] = Counter()
    anew: Counter[str] = Counter()
    for batch in todo:
        if store.has_checkpoint(batch.id):
            continue
        found = [_find_shorter(run, lengths, store) for run in batch.runs]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            if parts:
                anew["their batch has runs of which the folder has no shorter ones"] += len(parts)
            continue
        rounds = _count_rounds(parts[0].record)
        if any("state" not in part.record for part in parts):
            why = f"{store.folder} has what was computed until round {rounds}, but no state to "
            anew[f"{why}continue from, which --keep state keeps"] += len(batch.runs)
            continue
        try:
            states = [
                unpack_state(part.record, store.read(part.record["id"], (STATE_PREFIX,)).arrays)
                for part in parts
            ]
        except StoreError as error:
            anew[str(error)] += len(batch.runs)
            continue
        saved, why = continue_batch(batch, parts, states)
        if saved is None:
            anew[why] += len(batch.runs)
            continue
        store.save_checkpoint(batch.id, *saved)
        continued[rounds] += len(batch.runs)
    for rounds, count in continued.items():
        runs = "1 run" if count == 1 else f"{count} runs"
        print(f"cfljax: {runs} continued from round {rounds}", file=sys.stderr)
    for why, count in anew.items():
        runs = "1 run starts" if count == 1 else f"{count} runs start"
        warnings.warn(f"{runs} from round 0: {why}", SpecWarning, stacklevel=2)


def _list_lengths(store: Store, units: set[str]) -> dict[tuple[str, int], set[int]]:
    """Map (method, seed) to the numbers of rounds of the folder's runs that are not of the spec."""
    lengths: dict[tuple[str, int], set[int]] = {}
    for name in store.ids():
        record = None if name in units else store.record(name)
        if record is not None and record["status"] != "failed":
            rounds = record["config"].get("train", {}).get("rounds")
            lengths.setdefault((record["method"], int(record["seed"])), set()).add(rounds)
    return lengths


def _find_shorter(
    run: Run, lengths: dict[tuple[str, int], set[int]], store: Store
) -> Shorter | None:
    """Return the longest run of the folder that is the same but for fewer rounds, or was stopped by
    a callback; None if there is none."""
    if (record := store.record(run.id)) is not None:
        return Shorter(run, record) if "stopped_at" in record else None
    known = lengths.get((run.method, run.seed), set())
    for rounds in sorted((n for n in known if isinstance(n, int)), reverse=True):
        if 1 <= rounds < run.train.rounds:
            shorter = shorten(run, rounds)
            record = store.record(shorter.id)
            if record is not None and record["status"] != "failed":
                return Shorter(shorter, record)
    return None


def shorten(run: Run, rounds: int) -> Run:
    """Return the run with another number of rounds."""
    shorter = dataclasses.replace(run, train=dataclasses.replace(run.train, rounds=rounds))
    # A copy would read the data once more for their checksums
    vars(shorter)["_seeded_data"] = run._seeded_data
    return shorter


def _count_rounds(record: Table) -> int:
    """Return how many rounds a run on record has done."""
    return int(record["summary"].get("rounds") or 0)


class KeptState:
    """The state of one run in memory, as checkpoints are loaded from a folder. Nothing is saved."""

    def __init__(self, saved: Saved):
        self.saved = saved

    def save_checkpoint(self, name: str, arrays: dict[str, np.ndarray], meta: Table) -> None:
        """Keep nothing: the run is computed at one go."""

    def load_checkpoint(self, name: str) -> Saved | None:  # noqa: ARG002
        """Return the state."""
        return self.saved

    def set_aside_checkpoint(self, name: str, why: str) -> None:  # noqa: ARG002
        """Say why the state cannot be used."""
        warnings.warn(f"the run starts from round 0: {why}", SpecWarning, stacklevel=2)

    def log(self, event: Table) -> None:
        """Log nothing: there is no folder."""


def load_in_memory(saved: Saved) -> Checkpoints:
    """Return checkpoints that begin with this state and are not saved."""
    return Checkpoints(KeptState(saved), "run", every=float("inf"))
