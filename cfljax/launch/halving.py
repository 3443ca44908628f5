"""Successive halving: which settings a method begins with, in which rungs of rounds, and which of them go on. Numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

METRICS = {"val_accuracy": 1, "val_loss": -1, "train_loss": -1}
"""What settings may be chosen by -> 1: the higher the better, −1: the lower. None is measured on test data."""


def rungs(first: int, reduce: int, rounds: int, eval_every: int = 1) -> list[int]:
    """Return the rounds at which settings are compared: first, first · reduce, … and `rounds`, each a round with an evaluation."""
    found, at = [], first
    while (rung := -(-at // eval_every) * eval_every) < rounds:
        found.append(rung)
        at *= reduce
    return [*dict.fromkeys(found), rounds]


def counts(settings: int, steps: int, reduce: int) -> list[int]:
    """Return how many settings are trained to each of the rungs: one of `reduce` goes on, at least one."""
    found = [settings]
    while len(found) < steps:
        found.append(max(1, found[-1] // reduce))
    return found


def cost(settings: int, steps: Sequence[int], reduce: int) -> int:
    """Return the rounds of all settings together, with one seed."""
    lengths = np.diff([0, *steps])
    return int(np.dot(counts(settings, len(steps), reduce), lengths))


def affordable(settings: int, steps: Sequence[int], reduce: int, budget: float) -> int:
    """Return the most settings, up to `settings`, whose rounds are within the budget; 0 if even one is not."""
    return max((n for n in range(1, settings + 1) if cost(n, steps, reduce) <= budget), default=0)


def drawn(settings: int, number: int) -> list[int]:
    """Choose the settings that are tried, in their order: all, or this number of them at random, the same ones each time."""
    if number >= settings:
        return list(range(settings))
    return sorted(np.random.default_rng([settings, number]).permutation(settings)[:number].tolist())


def best(scores: Sequence[float | None], sign: int, number: int) -> list[int]:
    """Return the positions of the best scores, best first; earlier ones first among equals. None and NaN are the worst."""

    def rank(i: int) -> float:
        score = scores[i]
        return math.inf if score is None or math.isnan(score) else -sign * score

    return sorted(range(len(scores)), key=rank)[:number]
