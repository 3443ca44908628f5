"""What claims are decided from, and to: the numbers of a cell, and a verdict with its word."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

REPRODUCES, DIRECTION, LARGER, PART = (
    "reproduces",
    "reproduces in direction",
    "larger than published",
    "less than half of the effect",
)
UNDECIDED, FAILS, AT_SIZE, NOT_RUN = (
    "not decided",
    "does not reproduce",
    "not run at size",
    "not run",
)
AGAIN, NO_TEST = "to be run again", "no test"
WORDS = (REPRODUCES, DIRECTION, LARGER, PART, FAILS, UNDECIDED, AT_SIZE, AGAIN, NO_TEST, NOT_RUN)

DECIDED = (REPRODUCES, DIRECTION, LARGER, PART, FAILS)
"""Verdicts that runs have given."""


class Verdict(NamedTuple):
    """What became of a claim."""

    word: str
    """One of WORDS."""
    ours: str
    """What was measured, with its interval."""
    published: str = ""
    """What was published, in the same words."""
    why: str = ""
    """What the verdict rests on, where the numbers do not say it."""
    cost: str = ""
    """Of fewer rounds: what they cost in bytes and seconds."""

    @property
    def numbers(self) -> str:
        """All that it rests on, in one line."""
        parts = (
            self.ours,
            f"published {self.published}" if self.published else "",
            self.cost,
            self.why,
        )
        return "; ".join(part for part in parts if part)


class Measured(NamedTuple):
    """The numbers of a cell."""

    values: dict[Hashable, float]
    """Draw (the seed, and the data's seed) → number, in the published unit; inf: never reached."""
    rounds: dict[Hashable, int] = {}
    """Draw → the number of rounds that were run, if the quantity is a round."""
    flat: dict[Hashable, bool] = {}
    """Draw → whether the curve had stopped rising, if the quantity is the round that reaches a
    value."""

    @property
    def mean(self) -> float:
        """The mean over draws; NaN without any."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample; NaN for fewer than two draws."""
        known = list(self.values.values())
        return (
            float(np.std(known, ddof=1))
            if len(known) > 1 and np.isfinite(known).all()
            else math.nan
        )
