"""HOST. Which execution plan a run gets, and why: the predicted time of each choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.config import Run
from cfljax.config.train import Forced
from cfljax.local import lanes, speed
from cfljax.local.products import memory
from cfljax.local.schedule import Work
from cfljax.local.sizes import block_of, gram_sizes
from cfljax.types import Federation, Model, Plan

OFTEN = 2
"""Gram matrices are made beforehand where a client takes part so many times or more, on average: what they cost then pays."""
ROOM = 1 << 29
"""Bytes of memory of a process up to which they are."""

ALIKE = 0.98
"""Clients have equally many samples, about, if they have such a share of those that they would all have as the largest has."""


class Choice(NamedTuple):
    """A plan, and what speaks for it."""

    plan: Plan
    devices: int
    by_steps: float | None
    """Predicted seconds of the first layer in a round, step by step; None where there is no other way."""
    by_gram: float | None
    """The same with the chosen Gram matrices."""
    updates: int
    """Bytes of all participants' updates."""
    steps: np.ndarray | None = None
    """i64[S], descending: the steps of a typical round's participants on one device."""
    kept: int = 0
    """Bytes of the Gram matrices that are made once, before the first round; 0: each is made in its client's turn."""


def work_of(run: Run) -> Work:
    """A client's work in a round."""
    return Work(run.train.epochs, run.train.steps, None if run.train.batch == "full" else int(run.train.batch))


def choose(run: Run, model: Model, federation: Federation, in_turn: bool, devices: int = 1) -> Choice:
    """The run's plan: as it says, else as the machine's measured speed and the shapes suggest."""
    forced, work = run.train.forced, work_of(run)
    participants = run.train.places(int(federation.trains.sum()), federation.clients)
    updates = 4 * participants * model.size
    stream = 0  # a robust rule needs all updates at once
    if run.train.transit.robust is None:
        stream = block_of(participants, model.size) if forced.stream is None else forced.stream
    layer = speed.layer_of(model) if run.train.optimizer == "sgd" else None
    counts, longest = np.asarray(federation.train.count), federation.train.longest
    steps = lanes.typical(np.where(counts > 0, speed.steps_of(work, counts), 0), -(-participants // devices))
    width = _lanes(forced, in_turn, steps, stream)
    sequential = width == 1
    alike = bool(not run.train.stragglers and counts.sum() >= ALIKE * longest * len(counts))
    if layer is None:
        return Choice(Plan(width, 0, stream, alike), devices, None, None, updates, steps)
    often = run.train.rounds * participants >= OFTEN * np.count_nonzero(counts)
    wanted = sequential and forced.pool != "sharded" and (often if forced.keep is None else forced.keep)
    for keep in (True, False) if wanted else (False,):
        made = speed.made(sequential, keep)
        limit = forced.gram
        if limit is None:
            limit = speed.gram_limit(speed.known(speed.kept()), layer, work, longest, made)
        plan = Plan(width, limit, stream, alike)
        sizes = gram_sizes(plan, longest, work.batch)
        kept = memory(counts, sizes) if keep else 0
        if forced.keep or kept * (devices + 1) <= ROOM:  # what is made, and a copy on each device
            break
    return Choice(plan, devices, *_predicted(sizes, layer, work, counts, participants / devices, made), updates, steps, kept)


def _lanes(forced: Forced, in_turn: bool, steps: np.ndarray, stream: int) -> int:
    """`Plan.lanes`, as the run says or as suits the participants' steps."""
    if forced.lanes is not None:
        return forced.lanes
    if forced.side_by_side is not None:
        return 0 if forced.side_by_side else 1
    return 1 if in_turn else lanes.best(steps, stream)


def _predicted(
    sizes: tuple[int, ...], layer: speed.Layer, work: Work, counts: np.ndarray, participants: float, made: speed.Made
) -> tuple[float, float]:
    """Seconds per round (step by step, by the plan): the mean over the clients, times the participants of a device."""
    machine = speed.known()
    values, repeats = np.unique(counts[counts > 0], return_counts=True)
    plain = sum(r * speed.by_steps(machine, layer, work, int(n)) for n, r in zip(values, repeats, strict=True))
    chosen = 0.0
    for n, r in zip(values, repeats, strict=True):
        size = next((size for size in sizes if size >= n), None)
        there = (machine, layer, work, int(n))
        chosen += r * (speed.by_steps(*there) if size is None else speed.by_gram(*there, size, made=made))
    share = participants / max(int(repeats.sum()), 1)
    return float(plain * share), float(chosen * share)


def explain(label: str, choice: Choice) -> str:
    """The choice in words."""
    plan = choice.plan
    lines = [f"{label}:"]
    how = "one after another" if plan.sequential else f"{_at_a_time(choice)} at a time side by side"
    lines.append(f"  clients {how}, dealt to {choice.devices} device{'s' if choice.devices > 1 else ''}{_rows(choice)}")
    if choice.by_steps is None or choice.by_gram is None:
        lines.append("  step by step: the Gram form is for plain SGD on a model whose first layer is dense")
    else:
        which = f"on their Gram matrix up to {plan.gram} samples" if plan.gram else "step by step"
        times = f"step by step {_time(choice.by_steps)}, by this plan {_time(choice.by_gram)}"
        lines.append(f"  first layer {which}; predicted per round for that layer: {times}")
    if choice.kept:
        lines.append(f"  Gram matrices made once, before the first round: {choice.kept / 1e6:.3g} MB on each device")
    size = f"{choice.updates / 1e6:.3g} MB of updates"
    lines.append(f"  {size}, {f'summed in blocks of {plan.stream} participants' if plan.stream else 'held at once'}")
    return "\n".join(lines)


def _block(choice: Choice) -> int:
    """How many clients a device has to train at once, at most."""
    number = 1 if choice.steps is None else len(choice.steps)
    return min(choice.plan.stream or number, number)


def _at_a_time(choice: Choice) -> int:
    return min(choice.plan.lanes or _block(choice), _block(choice))


def _rows(choice: Choice) -> str:
    """What a round takes with the chosen lanes, and with others."""
    if choice.steps is None or choice.plan.sequential:
        return ""
    words, real = [], max(int(choice.steps.sum()), 1)
    for width in dict.fromkeys((_at_a_time(choice), _block(choice), lanes.LEAST, 1)):
        if width <= _block(choice):
            found = lanes.packed(choice.steps, width, choice.plan.stream)
            words.append(f"{width} at a time {found.in_a_row} steps in a row, {found.computed / real:.3g} times those there are")
    return "\n  predicted per round: " + "; ".join(words)


def machine() -> str:
    """The measured speed that predictions are made from."""
    found = speed.known(speed.kept())
    rates = f"products of mini-batches {2e-9 / found.small:.3g} GFLOP/s, of large batches {2e-9 / found.large:.3g}"
    return f"this machine: {found.step * 1e6:.3g} µs a step, {rates}, {found.value * 1e9:.2g} ns a pixel (kept in {speed.kept()})"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
