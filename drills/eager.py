"""Figure 16's other half: compiled against `jax.disable_jit`, two small rounds of every method."""

from __future__ import annotations

import sys

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure("eager", "16", "compiled against `jax.disable_jit`, two rounds", "labels equal, weights within 1e-5", 1000)
CLOSE = 1e-5


def drill(tally: Tally, count: int, seed: int) -> None:
    """Every method, at most `count` of them, beginning with number `seed`."""
    import jax

    from cfljax.methods import METHODS
    from tests import play

    for number in tally.trials(min(count, len(list(METHODS)))):
        name = list(METHODS)[(number + seed) % len(list(METHODS))]
        federation, options = jax.device_put(play.nine_clients()), play.options(name)
        states, _, method = play.rounds(name, federation, 2, seed=seed, **options)
        models, labels = play.models_of(method, states)
        with jax.disable_jit():
            others, other_labels = play.models_of(method, play.rounds(name, federation, 2, seed=seed, **options).states)
        problems = common.apart(tally, models, others, np.array_equal(labels, other_labels), CLOSE)
        tally.check([f"{name}: {p}" for p in problems])


if __name__ == "__main__":
    common.compile_less()
    sys.exit(common.main(FIGURE, drill))
