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
from cfljax.local.products import GRAM_SIZES, count_gram_bytes, gram_sizes
from cfljax.local.queue import choose_block, choose_lanes
from cfljax.local.schedule import Work
from cfljax.types import Federation, Model, Plan

# Gram matrices are made before the first round if a client takes part this often or more, on
# average: only then their cost pays off
MIN_USES_OF_A_GRAM = 2
# Bytes of a process's memory that Gram matrices which are made beforehand may take
MAX_KEPT_GRAM_BYTES = 1 << 29
# Runs of dense models that are expected to train for fewer seconds than this are compiled quickly
# (`Plan.quick`)
QUICKLY_COMPILED_SECONDS = 0.5
# Clients count as equally large if there are at least this share of clients × samples of the
# largest client
EQUAL_SIZE_SHARE = 0.98


class PlanChoice(NamedTuple):
    """A run's execution plan, and the predictions that it was chosen by."""

    plan: Plan
    # How many clients take part in a round
    participants: int
    # S: how many slots a round has for them. With `train.plan.clients` each client has its own
    slots: int
    # A client's work in a round
    work: Work
    # The sizes of the Gram matrices that clients are trained on, the smallest first
    gram_sizes: tuple[int, ...]
    # Devices that a round's participants are dealt to
    devices: int
    # Predicted seconds of the first layer in a round, step by step; None if there is no other way
    by_steps: float | None
    # The same with the chosen Gram matrices
    by_gram: float | None
    # Bytes of all participants' updates
    updates: int
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


def choose_plan(
    run: Run, model: Model, federation: Federation, machine: Machine, runs: int = 1
) -> PlanChoice:
    """Choose the execution plan: by `train.plan`, else by measured speed and shapes.

    Args:
        run, model, federation: what is trained.
        machine: what it is trained on.
        runs: how many runs a device computes side by side."""
    forced = run.train.plan_options
    table = run.train.asynchronous
    work = _make_work(run)
    devices = machine.shape(wanted=forced.devices).clients
    # Dummies are no participants
    clients = int((np.asarray(federation.uid) >= 0).sum())
    participants = run.train.slots(int(np.asarray(federation.trains).sum()), clients)
    counts = np.asarray(federation.train.count)
    steps_of_clients = np.where(counts > 0, predict.count_all_steps(work, counts), 0)
    steps = queue.typical_steps(steps_of_clients, -(-participants // devices))
    plan = _choose_lanes(run, model, federation, machine, steps, participants)
    if not machine.sequential and devices == 1 and forced.lanes is None:
        # A queue is shared by all runs of the device
        of_all_runs = queue.typical_steps(steps_of_clients, runs * participants)
        plan = plan._replace(queue=choose_lanes(of_all_runs.tolist()))
    short = _is_short(run, model, plan, work, counts, steps)
    plan = plan._replace(quick=plan.on_cpu and (short if forced.quick is None else forced.quick))
    slots = participants if forced.clients is None else federation.clients
    choice = PlanChoice(
        plan,
        participants,
        slots,
        work,
        gram_sizes=(),
        devices=devices,
        by_steps=None,
        by_gram=None,
        updates=4 * slots * model.size,
        steps=steps,
        kept=0,
        buffer=0 if table is None else table.buffer,
    )
    layer = _find_gram_layer(run, model)
    if layer is None:
        return choice
    speed = TYPICAL if short else machine.speed
    return _choose_grams(run, federation, choice, layer, speed)._replace(typical=short)


def _make_work(run: Run) -> Work:
    """Return a client's work in a round; the epochs of its head come in addition to its others."""
    epochs = run.train.epochs
    head = run.options.head_epochs
    batch = None if run.train.batch == "full" else int(run.train.batch)
    return Work(None if epochs is None else epochs + head, run.train.steps, batch, head=head)


def _choose_lanes(
    run: Run,
    model: Model,
    federation: Federation,
    machine: Machine,
    steps: np.ndarray,
    participants: int,
) -> Plan:
    """Choose how many participants are trained at a time, and how many of them side by side.

    Args:
        steps: i64[S]: the steps of a typical round's participants on one device.
        participants: S, of all devices."""
    forced = run.train.plan_options
    # A robust rule needs all updates at once, and an asynchronous server keeps those in flight
    stream = 0
    if run.train.transit.robust is None and run.train.asynchronous is None:
        stream = choose_block(participants, model.size) if forced.stream is None else forced.stream
    lanes = 1 if machine.sequential else queue.choose_width(steps, stream)
    lanes = lanes if forced.lanes is None else forced.lanes
    counts = np.asarray(federation.train.count)
    equal = counts.sum() >= EQUAL_SIZE_SHARE * federation.train.longest * len(counts)
    alike = bool(not run.train.stragglers and equal)
    return Plan(
        lanes, 0, stream, alike, on_cpu=machine.sequential, asks_host=machine.backend == "gpu"
    )


def _is_short(
    run: Run, model: Model, plan: Plan, work: Work, counts: np.ndarray, steps: np.ndarray
) -> bool:
    """Return whether the run is expected to train for so few seconds that it is compiled quickly.
    Only the time of dense models on a CPU can be predicted."""
    if not plan.on_cpu or first_layer(model) is None:
        return False
    a_round = predict.predict_seconds(model, work, counts, steps)
    return run.train.rounds * a_round < QUICKLY_COMPILED_SECONDS


def _find_gram_layer(run: Run, model: Model) -> predict.Layer | None:
    """Return the shape of the first layer, if it can be trained on Gram matrices; else None. They
    hold for plain SGD from the start of a round alone."""
    plain = run.train.optimizer == "sgd" and not (
        run.options.own_steps or run.options.head_epochs or run.train.keeps_state
    )
    return predict.layer_shape(model, _divide(run, model)) if plain else None


def _choose_grams(
    run: Run, federation: Federation, choice: PlanChoice, layer: predict.Layer, speed: Speed
) -> PlanChoice:
    """Choose which clients are trained on Gram matrices, and whether these are made once, before
    the first round."""
    forced = run.train.plan_options
    plan = choice.plan
    counts = np.asarray(federation.train.count)
    uses = run.train.rounds * choice.participants
    pays_off = uses >= MIN_USES_OF_A_GRAM * np.count_nonzero(counts)
    may_keep = (
        plan.sequential
        and forced.pool != "sharded"
        and (pays_off if forced.keep is None else forced.keep)
        # Kept matrices are of the samples as a client sees them in round 0
        and federation.drift is None
    )
    # Kept matrices are tried first; if they need too much memory, each is made in its client's turn
    for keep in [True, False] if may_keep else [False]:
        making = predict.choose_making(plan.sequential, keep)
        limit = _choose_gram_limit(forced, plan, layer, choice.work, counts, speed, making)
        plan = plan._replace(gram=limit)
        sizes = gram_sizes(plan, federation.train.longest, choice.work.batch)
        kept = count_gram_bytes(counts, sizes) if keep else 0
        # The process holds the matrices that it makes, and a copy on each device
        if forced.keep or kept * (choice.devices + 1) <= MAX_KEPT_GRAM_BYTES:
            break
    of_a_client = _predict_seconds(sizes, layer, choice.work, counts, speed, making)
    by_steps, by_gram = (each * choice.participants / choice.devices for each in of_a_client)
    return choice._replace(
        plan=plan, gram_sizes=sizes, by_steps=by_steps, by_gram=by_gram, kept=kept
    )


def _divide(run: Run, model: Model) -> ModelParts | None:
    """Return which parts of the run's models do not travel, or do not train; None: all do."""
    pairs = list_parts(run.options, run.train)
    return divide_model(model, pairs) if pairs else None


def _choose_gram_limit(
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
        return _predict_seconds(sizes, layer, work, counts, speed, making)[1] * (
            predict.MARGIN if sizes else 1.0
        )

    return min(
        (0, *(size for size in GRAM_SIZES if size < most), *([most] if most else [])), key=price
    )


def _predict_seconds(
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


def explain_plan(label: str, choice: PlanChoice) -> str:
    """Explain in lines which plan was chosen for the runs of this label, and why."""
    plan = choice.plan
    lines = [f"{label}:"]
    # The most clients whose updates a device holds at once
    block = min(plan.stream or len(choice.steps), len(choice.steps))
    width = min(plan.lanes or block, block)
    how = "one after another" if plan.sequential else f"{width} at a time side by side"
    widths = [each for each in (width, block, queue.MIN_LANES, 1) if each <= block]
    predicted = "" if plan.sequential else _describe_widths(choice, widths)
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
        by_steps = _format_time(choice.by_steps)
        by_gram = _format_time(choice.by_gram)
        times = (
            f"; predicted per round for that layer{core}: step by step {by_steps}, "
            f"by this plan {by_gram}"
        )
        # The predictions are made for a CPU
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
    held = f"summed in blocks of {plan.stream} participants" if plan.stream else "held at once"
    lines.append(f"  {size}, {held}")
    return "\n".join(lines)


def _describe_widths(choice: PlanChoice, widths: list[int]) -> str:
    """Predict the steps of a round with these numbers of clients side by side."""
    words = []
    real = max(int(choice.steps.sum()), 1)
    for width in dict.fromkeys(widths):
        packed = queue.count_round_cost(choice.steps, width, choice.plan.stream)
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


def _format_time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
