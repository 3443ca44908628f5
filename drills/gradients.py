"""Numerical trust: the gradient of every model against finite differences in float64."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "gradients", "gradients", "gradient of each model against central differences in float64", "relative error under 1e-5", 5
)
STEP = 1e-5
CLOSE = 1e-5


def drill(tally: Tally, count: int, seed: int) -> None:
    """For every model, `count` random weights, batches and directions."""
    import jax

    from cfljax.models import MODELS
    from tests.models.test_models import SMALL, batch, small, weights

    built = {name: small(name) for name in MODELS if name in SMALL}  # their weights are float32 where they are built
    jax.config.update("jax_enable_x64", True)
    for name, (model, shape, classes) in built.items():
        samples, labels = batch(shape, classes)

        def loss(w, x, model=model, labels=labels):  # noqa: ANN001, ANN202
            return model.loss(model.forward(model.unravel(w), x), labels).mean()

        value, slope = jax.jit(loss), jax.jit(jax.grad(loss))
        for number in tally.trials(count):
            rng = np.random.default_rng([seed, number])
            w = weights(model, seed + number).astype(np.float64)
            x = (samples + rng.normal(size=samples.shape)).astype(np.float64)
            gradient = np.asarray(slope(w, x), np.float64)
            single = np.asarray(slope(w.astype(np.float32), x.astype(np.float32)), np.float64)
            tally.most(f"{name}: float32 gradient, relative", np.linalg.norm(single - gradient) / np.linalg.norm(gradient))
            direction = rng.normal(size=model.size)
            direction /= np.linalg.norm(direction)
            exact = float(value(w + STEP * direction, x) - value(w - STEP * direction, x)) / (2 * STEP)
            error = abs(exact - gradient @ direction) / max(np.linalg.norm(gradient), 1e-12)
            tally.most(f"{name}: relative error", error)
            tally.check(None if error < CLOSE else f"{name}: {error:.2g}")


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
