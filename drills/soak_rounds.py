"""Figure 20: as many rounds as a sweep of eight hours has."""

from __future__ import annotations

import sys

from drills import common
from drills.common import Figure, Tally
from drills.soak import LOOKS, sweeps

EIGHT_HOURS = 1_920_000
"""Rounds of 15 ms, which is what a round of the benchmark's W1 takes on two cores."""
FIGURE = Figure(
    "soak_rounds",
    "20",
    "the rounds of an eight-hour sweep of short rounds, in one process",
    "one compile per shape; memory growth under 1 %, no file left open",
    EIGHT_HOURS,
)


def drill(tally: Tally, count: int, seed: int) -> None:
    """Ten sweeps of four long runs."""
    rounds = max(100, count // (4 * LOOKS))
    sets = [f"train.rounds={rounds}", "train.eval_every=100"]
    sweeps(tally, seed, 1, sets, each=rounds, per="round")


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
