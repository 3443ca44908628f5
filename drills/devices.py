"""Figure 15: one device against eight simulated ones, with nine clients of which five take part."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import numpy as np  # noqa: E402

from drills import common  # noqa: E402
from drills.common import Figure, Tally  # noqa: E402

FIGURE = Figure(
    "devices", "15", "1 against 8 simulated devices, client counts not divisible by 8", "within 1e-5, labels equal", 1000
)
CLOSE = 1e-5


def drill(tally: Tally, count: int, seed: int) -> None:
    """Every method, at most `count` of them, beginning with number `seed`."""
    import jax

    from cfljax.methods import METHODS
    from drills.rounds import ten_rounds

    mesh = jax.make_mesh((8,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    names = list(METHODS)
    for number in tally.trials(min(count, len(names))):
        name = names[(number + seed) % len(names)]
        one, eight = (ten_rounds(name, rounds=3, seeds=[1], **more)[0] for more in ({}, {"mesh": mesh}))
        tally.count("the same bits" if np.array_equal(one.models, eight.models) else "other bits")
        problems = common.apart(tally, one.models, eight.models, np.array_equal(one.labels, eight.labels), CLOSE)
        tally.check([f"{name}: {p}" for p in problems])


if __name__ == "__main__":
    common.compile_less()
    sys.exit(common.main(FIGURE, drill))
