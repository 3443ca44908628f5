"""HOST. The output of a run, taken from the arrays of its batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.engine.history import find_divergence
from cfljax.engine.resume import Checkpoint, Rows
from cfljax.engine.settings import WORD, Assembled, Carry
from cfljax.types import Traffic, Tree


class Seconds(NamedTuple):
    """Seconds that a batch has taken, or a run as its even share of one."""

    compile: float
    train: float
    eval: float
    setup: float


class Output(NamedTuple):
    """The output of a run: arrays named as in the results folder, and timings."""

    # f32[T'] per quantity; f32[T', K] for "accuracy_clusters"
    history: dict[str, np.ndarray]
    # i32[T', C], or i32[1, C] where only the last are kept
    labels: np.ndarray
    # f32[C]
    client_accuracy: np.ndarray
    # f32[K, d] at the end
    models: np.ndarray
    # The method's own diagnostics: [T', …] each, and what it keeps once, after the last round
    diag: dict[str, np.ndarray]
    # `accuracy_new_<steps>` and `ari_new`, where there are newcomers
    newcomers: dict[str, float]
    finetuned: dict[str, float]
    """`accuracy_finetuned` and its spread over the clients, where they fine-tune their models in
    the end."""
    # The round after which the run had diverged; −1: it has not
    diverged_at: int
    seconds: Seconds
    # The state after the last round, of this one run
    last: Checkpoint
    # The round in which the user's callback has stopped the run; −1: it has not
    stopped_at: int = -1
    # What scores are called, the accuracies of classes
    score: str = "accuracy"


def vector_bytes(
    travels: tuple[float, int] | None,
    d: int,
    compressed_down: int | None,
    compressed_up: int | None,
) -> tuple[float, float]:
    """Return the bytes of a vector of `Traffic` (down, up).

    Args:
      travels: How many numbers of a vector travel (down, up); None: all.
      d: The numbers of a vector.
      compressed_down, compressed_up: The bytes of a vector that is compressed; None: it is not.
    """
    down, up = travels or (d, d)
    return (
        4 * down if compressed_down is None else compressed_down,
        4 * up if compressed_up is None else compressed_up,
    )


def make_output(
    parts: Assembled,
    carry: Carry,
    accuracy: np.ndarray,
    newcomers: dict[str, float],
    finetuned: dict[str, float],
    seconds: Seconds,
    last: Checkpoint,
) -> Output:
    """Make the Output of a run. `carry`, `last`: its state at the end, whose history has a leading
    axis of one run. `accuracy` f32[C]: each client's final accuracy."""
    rows = {name: each[0] for name, each in last.rows.items()}
    state = carry.state
    models, labels = parts.method.models(state)
    once: dict[str, Tree] = {} if parts.method.extras is None else parts.method.extras(state)
    traffic = rows.pop("traffic")
    diag = {
        name.removeprefix("diag/"): rows.pop(name)
        for name in list(rows)
        if name.startswith("diag/")
    }
    quantities = {
        name: np.asarray(v) for name, v in rows.items() if name not in ("labels", "valid")
    }
    quantities |= _count_bytes(parts, traffic)
    return Output(
        history=quantities,
        labels=np.asarray(rows["labels"]) if "labels" in rows else np.asarray(labels)[None],
        client_accuracy=accuracy,
        models=np.asarray(models),
        diag=diag | {name: np.asarray(v) for name, v in once.items()},
        newcomers=newcomers,
        finetuned=finetuned,
        diverged_at=find_divergence(int(carry.lost_at), rows, parts.model.score),
        seconds=seconds,
        last=last,
        stopped_at=next(iter(last.stopped), -1),
        score=parts.model.score.name,
    )


def _count_bytes(parts: Assembled, traffic: np.ndarray) -> dict[str, np.ndarray]:
    """Return `bytes_up` and `bytes_down` f64[T'] since the start, from the sums i32[T', 4, 2]."""
    sent = Traffic(*(traffic.astype(np.float64) @ np.array([WORD, 1.0])).T)
    settings = parts.settings
    vector = vector_bytes(
        parts.method.travels, parts.model.size, settings.vector_down, settings.vector_up
    )
    down, up = sent.bytes(vector)
    # Parts that several models of a download share come once: its bytes per vector are a fraction
    return {"bytes_up": np.asarray(up), "bytes_down": np.round(down)}


def list_numbers(parts: Assembled, row: Rows, run: int) -> dict[str, float]:
    """Return the numbers of one run at an evaluation, by their names in the history. `row`:
    [R, 1, …] of each quantity."""
    counted = _count_bytes(parts, row["traffic"][run])
    single = {
        name: each[run]
        for name, each in row.items()
        if each.ndim == 2 and name != "round" and not name.startswith("diag/")
    }
    return {name: each.item() for name, each in (single | counted).items()}
