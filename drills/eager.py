"""Figure 16's other half: compiled against `jax.disable_jit`, one small round of every method."""

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
    from tests.methods import contract
    from tests.methods.rounds import models_of, run

    for number in tally.trials(min(count, len(list(METHODS)))):
        name = list(METHODS)[(number + seed) % len(list(METHODS))]
        options = dict(contract.OPTIONS.get(name, {}))
        if "clusters" in METHODS.entry(name).options.__dataclass_fields__:
            options.setdefault("clusters", 2)
        federation = jax.device_put(contract.host_federation())
        arguments = {"rounds": 2, "seed": seed, **options}
        states, _, method = run(name, federation, **arguments)
        models, labels = models_of(method, states)
        with jax.disable_jit():
            others, other_labels = models_of(method, run(name, federation, **arguments)[0])
        apart = float(np.max(np.abs(models - others)))
        tally.most("weights apart", apart)
        problems = [] if np.array_equal(labels, other_labels) else ["other labels"]
        problems += [f"weights {apart:.2g} apart"] if not apart <= CLOSE else []
        tally.check([f"{name}: {p}" for p in problems])


if __name__ == "__main__":
    common.compile_less()
    sys.exit(common.main(FIGURE, drill))
