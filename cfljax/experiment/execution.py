"""HOST. Which execution plan a run gets on a machine, and why: the predicted time of each
choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.config import Run
from cfljax.config.rules import list_parts
from cfljax.config.train import PlanOptions
from cfljax.devices.machine import TYPICAL, Machine, Speed, speed_file
from cfljax.local import predict, queue
from cfljax.local.gram import first_layer
from cfljax.local.parts import ModelParts, divide_model
from cfljax.local.products import GRAM_SIZES, count_bytes, gram_sizes
from cfljax.local.queue import choose_block, choose_lanes
from cfljax.local.schedule import Work
from cfljax.types import Federation, Model, Plan

# Gram matrices are made beforehand where a client takes part this often or more, on average: then
# their cost pays off
MIN_USES_OF_A_GRAM = 2
# Bytes of a process's memory that Gram matrices which are made beforehand may take
MAX_KEPT_GRAM_BYTES = 1 << 29
# Runs of dense models that are expected to train for fewer seconds than this are compiled quickly
# (`Plan.quick`)
QUICKLY_COMPILED_SECONDS = 0.5
# Clients count as equally large where all samples are at least this share of clients × samples of
# the largest client
EQUAL_SIZE_SHARE = 0.98


class Choice(NamedTuple):
    """A run's execution plan, and the predictions that it was chosen by."""

    plan: Plan
    participants: int  # S: how many places a round has for participants
    work: Work  # A client's work in a round
    # The sizes of the Gram matrices that clients are trained on, the smallest first
    gram_sizes: tuple[int, ...]
    devices: int  # Devices that a round's participants are dealt to
    by_steps: (
        float | None
        # Predicted seconds of the first layer in a round, step by step; None where there is no
        # other
        # way
    )
    by_gram: float | None  # The same with the chosen Gram matrices
    updates: int  # Bytes of all participants' updates
    # i64[S], descending: the steps of a typical round's participants on one device
    steps: np.ndarray
    # Bytes of the Gram matrices that are made once, before the first round; 0: each is made in its
    # client's turn
    kept: int
    # How many of the participants' updates the server waits for (`train.asynchronous`); 0: for all
    buffer: int = 0
    typical: bool = False
    """Whether `by_steps` and `by_gram` are for a typical core, as in short runs: to measure takes
    longer than such a run."""


def choose(
    run: Run, model: Model, federation: Federation, machine: Machine, runs: int = 1
) -> Choice:
    """Choose the plan: `train.plan`, else by measured speed and shapes. `runs`: how many a device
    computes side by side."""
    forced = run.train.plan_options
    epochs = run.train.epochs
    head = run.options.head_epochs
    batch = None if run.train.batch == "full" else int(run.train.batch)
    work = Work(None if epochs is None else epochs + head, run.train.steps, batch, head=head)
    devices = machine.shape(wanted=forced.devices).clients
    participants = run.train.slots(int(np.asarray(federation.trains).sum()), federation.clients)
    # A robust rule needs all updates at once, and those under way are kept
    stream = 0
    if run.train.transit.robust is None and run.train.asynchronous_table is None:
        stream = choose_block(participants, model.size) if forced.stream is None else forced.stream
    plain = run.train.optimizer == "sgd" and not (
        run.options.own_steps or head or run.train.keeps_state
    )
    layer = predict.layer_shape(model, _parts(run, model)) if plain else None
    counts = np.asarray(federation.train.count)
    longest = federation.train.longest
    steps = queue.typical_steps(
        np.where(counts > 0, predict.count_steps(work, counts), 0), -(-participants // devices)
    )
    width = 1 if machine.sequential else queue.choose_width(steps, stream)
    width = width if forced.lanes is None else forced.lanes
    alike = bool(
        not run.train.stragglers and counts.sum() >= EQUAL_SIZE_SHARE * longest * len(counts)
    )
    plan = Plan(
        width, 0, stream, alike, on_cpu=machine.sequential, asks_host=machine.backend == "gpu"
    )
    if not machine.sequential and devices == 1 and forced.lanes is None:
        of_all_runs = queue.typical_steps(
            np.where(counts > 0, predict.count_steps(work, counts), 0), runs * participants
        )
        plan = plan._replace(queue=choose_lanes(of_all_runs.tolist()))
    dense = plan.on_cpu and first_layer(model) is not None
    short = (
        dense
        and run.train.rounds * predict.predict_seconds(model, work, counts, steps)
        < QUICKLY_COMPILED_SECONDS
    )
    plan = plan._replace(quick=plan.on_cpu and (short if forced.quick is None else forced.quick))
    choice = Choice(
        plan, participants, work, (), devices, None, None, 4 * participants * model.size, steps, 0
    )
    choice = choice._replace(
        buffer=0 if run.train.asynchronous_table is None else run.train.asynchronous_table.buffer
    )
    if layer is None:
        return choice
    speed = TYPICAL if short else machine.speed
    often = run.train.rounds * participants >= MIN_USES_OF_A_GRAM * np.count_nonzero(counts)
    wanted = (
        plan.sequential
        and forced.pool != "sharded"
        and (often if forced.keep is None else forced.keep)
    )
    # They are of the samples as a client sees them in round 0
    wanted = wanted and federation.drift is None
    for keep in (True, False) if wanted else (False,):
        making = predict.choose_making(plan.sequential, keep)
        plan = plan._replace(gram=_gram_limit(forced, plan, layer, work, counts, speed, making))
        sizes = gram_sizes(plan, longest, work.batch)
        kept = count_bytes(counts, sizes) if keep else 0
        # What is made, and a copy on each device
        if forced.keep or kept * (devices + 1) <= MAX_KEPT_GRAM_BYTES:
            break
    by_steps, by_gram = (
        share * participants / devices
        for share in _predicted(sizes, layer, work, counts, speed, making)
    )
    return choice._replace(
        plan=plan, gram_sizes=sizes, by_steps=by_steps, by_gram=by_gram, typical=short, kept=kept
    )


def _parts(run: Run, model: Model) -> ModelParts | None:
    """Return which parts of the run's models do not travel, or do not train; None: all do."""
    pairs = list_parts(run.options, run.train)
    return divide_model(model, pairs) if pairs else None


def _gram_limit(
    forced: PlanOptions,
    plan: Plan,
    layer: predict.Layer,
    work: Work,
    counts: np.ndarray,
    speed: Speed,
    making: predict.Making,
) -> int:
    """Choose `Plan.gram`, by the run's options or by its clients: of no size and the sizes up to
    which it pays for a typical client, the one that is predicted to be the fastest for all of them,
    by `predict.MARGIN` at least."""
    if forced.gram is not None:
        return forced.gram
    longest = max(1, int(counts.max()))
    most = predict.gram_limit(speed, layer, work, longest, making)
    if not plan.sequential:
        return most

    def price(limit: int) -> float:
        sizes = gram_sizes(plan._replace(gram=limit), longest, work.batch)
        return _predicted(sizes, layer, work, counts, speed, making)[1] * (
            predict.MARGIN if sizes else 1.0
        )

    return min(
        (0, *(size for size in GRAM_SIZES if size < most), *([most] if most else [])), key=price
    )


def _predicted(
    sizes: tuple[int, ...],
    layer: predict.Layer,
    work: Work,
    counts: np.ndarray,
    speed: Speed,
    making: predict.Making,
) -> tuple[float, float]:
    """Predict the mean seconds of a client that trains in a round: (step by step, on the Gram
    matrices of these sizes)."""
    values, repeats = np.unique(counts[counts > 0], return_counts=True)
    plain = chosen = 0.0
    for n, clients in zip(values.tolist(), repeats.tolist(), strict=True):
        seconds = predict.time_steps(speed, layer, work, n)
        size = next((size for size in sizes if size >= n), None)
        plain += clients * seconds
        chosen += clients * (
            seconds
            if size is None
            else predict.time_gram(speed, layer, work, n, size, making=making)
        )
    trained = max(int(repeats.sum()), 1)
    return plain / trained, chosen / trained


def explain(label: str, choice: Choice) -> str:
    """Explain the choice in words."""
    plan = choice.plan
    lines = [f"{label}:"]
    # The most clients whose updates a device holds at once
    block = min(plan.stream or len(choice.steps), len(choice.steps))
    width = min(plan.lanes or block, block)
    how = "one after another" if plan.sequential else f"{width} at a time side by side"
    widths = [each for each in (width, block, queue.MIN_LANES, 1) if each <= block]
    predicted = "" if plan.sequential else _predicted_rounds(choice, widths)
    lines.append(
        f"  clients {how}, dealt to {choice.devices} "
        f"device{'s' if choice.devices > 1 else ''}{predicted}"
    )
    if choice.by_steps is None or choice.by_gram is None:
        lines.append(
            "  step by step: the Gram form is for plain SGD on a model whose first layer is "
            "dense and trains"
        )
    else:
        which = f"on their Gram matrix up to {plan.gram} samples" if plan.gram else "step by step"
        core = " on a typical core" if choice.typical else ""
        each = f"step by step {_time(choice.by_steps)}, by this plan {_time(choice.by_gram)}"
        times = f"; predicted per round for that layer{core}: {each}"
        # Those are a CPU's
        lines.append(f"  first layer {which}{times if plan.sequential else ''}")
    if plan.quick:
        lines.append(
            "  compiled in half the time, to code that may take half as long again: the run "
            "is short"
        )
    if choice.kept:
        lines.append(
            f"  Gram matrices made once, before the first round: {choice.kept / 1e6:.3g} MB "
            "on each device"
        )
    size = f"{choice.updates / 1e6:.3g} MB of updates"
    if choice.buffer:
        waits = (
            f"{choice.participants} clients train at a time, the server waits for {choice.buffer}"
        )
        lines.append(f"  {waits}; {size}, kept from step to step")
        return "\n".join(lines)
    lines.append(
        f"  {size}, "
        f"{f'summed in blocks of {plan.stream} participants' if plan.stream else 'held at once'}"
    )
    return "\n".join(lines)


def _predicted_rounds(choice: Choice, widths: list[int]) -> str:
    """Predict the steps of a round with these numbers of clients side by side."""
    words = []
    real = max(int(choice.steps.sum()), 1)
    for width in dict.fromkeys(widths):
        packed = queue.pack(choice.steps, width, choice.plan.stream)
        idle = (
            f" (of all that is computed {1 - real / packed.computed:.0%} is for clients that "
            "are done)"
            if packed.computed > real
            else ""
        )
        words.append(f"with {width} at a time {packed.in_a_row}{idle}")
    return "\n  steps after one another in a round: " + "; ".join(words)


def explain_machine(machine: Machine) -> str:
    """Describe the measured speed that predictions are made from."""
    speed = machine.speed
    rates = (
        f"products of mini-batches {2e-9 / speed.small:.3g} GFLOP/s, of large batches "
        f"{2e-9 / speed.large:.3g}"
    )
    pixels = f"{speed.value * 1e9:.2g} ns a pixel"
    kept = speed_file(machine.kind)
    return f"this machine: {speed.step * 1e6:.3g} µs a step, {rates}, {pixels} (kept in {kept})"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
