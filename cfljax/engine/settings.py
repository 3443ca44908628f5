"""What a program is compiled for, and what a run carries from chunk to chunk."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.local.send import Sending
from cfljax.types import Array, Info, Tree

WORD = 1 << 20
"""Sums of traffic are kept in two words: a million clients send 2³¹ models in some hundred rounds."""
HOPELESS = 1e6
"""A mean test loss above this, or none that is finite, is a run that has diverged."""


class Settings(NamedTuple):
    """What a program is compiled for, besides shapes: static."""

    rounds: int
    participants: int
    eval_every: int = 1
    evaluations: int = 10
    """Evaluations per chunk."""
    sequential: bool = True
    """Runs one after another (each as if alone: the fast way on a CPU), or side by side."""
    score: str = "all"
    discrepancy: str = "after"
    test_choice: str = "holdout"
    eval_clients: int | None = None
    precision: str = "highest"
    label_history: bool = True
    metrics: tuple[str, ...] = ()
    """Names of metrics of the user's own."""
    sending: Sending = Sending()
    vector_up: int | None = None
    """Bytes of an update on its way up; None: four for each number."""


class Carry(NamedTuple):
    """A run between chunks: all that a checkpoint needs, besides the number of rounds done."""

    state: Tree
    info: Info
    """What the last round reported."""
    traffic: Array
    """i32[4, 2]: each number of Traffic since the start, as multiples of WORD and the rest."""
    nonfinite: Array
    """i32[] broken updates since the start."""
    diverged_at: Array
    """i32[] the round after which nothing finite was left, or −1."""
    client_accuracy: Array
    """f32[C] at the last evaluation."""
