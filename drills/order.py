"""Figure 14: the same clients in another order."""

from __future__ import annotations

import sys

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure("order", "14", "clients reordered", "labels move along exactly, models within 1e-6", 100)
CLOSE = 1e-6
METHODS = ("ifca", "fesem", "fedavg", "cfl_mgd")


def drill(tally: Tally, count: int, seed: int) -> None:
    """Random federations in random orders."""
    from drills.rounds import play, random_federation

    for number in tally.trials(count):
        rng = np.random.default_rng([seed, number])
        federation = random_federation(rng)
        order, method = rng.permutation(9), METHODS[number % len(METHODS)]
        a, b = (play.on_nine(method, federation=f, rounds=3, seeds=[number])[0] for f in (federation, federation.take(order)))
        problems = common.apart(tally, a.models, b.models, np.array_equal(a.labels[:, order], b.labels), CLOSE)
        moved = np.array_equal(a.client_accuracy[order], b.client_accuracy, equal_nan=True)
        problems += [] if moved else ["accuracies do not move along"]
        tally.check([f"{number}, {method}: {p}" for p in problems])


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
