"""Ditto (Li et al. 2021): FedAvg, plus a personal model per client with a proximal pull lam/2 ·
‖v_i − w‖² towards the global model w that the client was sent. The personal model is scored; the
accuracy of w is the diagnostic `accuracy_global`.

Both models are trained in the same round on the same stream of batches, for the run's epochs or
steps, so that lam = 0 is local training and the global model is FedAvg's. A client that holds no
training data, or has not been drawn yet, has no personal model and is scored with w.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cfljax.lazy import jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import AVERAGES, AtHome, option
from cfljax.types import Array, Hyper, Quantity

ABOUT = About(
    title="Ditto",
    family="personal",
    authors="Li et al.",
    year=2021,
    paper="Ditto: fair and robust federated learning through personalization",
    venue="ICML",
    link="https://arxiv.org/abs/2012.04221",
)
READINGS = (
    Reading(
        "Training of the personal model",
        paper="its own number of steps and its own rate",
        here="the same steps, rate and batches as the global model's training",
    ),
    Reading(
        "Weights of the global mean",
        paper="by samples or uniform (its program's default)",
        here="by samples",
        option='average = "uniform"',
    ),
    Reading(
        "lam",
        paper="one number; its program also tries 0.1, 1 and 2 for each client by validation",
        here="one number",
        option="lam",
    ),
)


@dataclasses.dataclass(frozen=True)
class Ditto(AtHome):
    """Ditto: FedAvg plus a personal model per client, regularised towards the global one.

    A participant gets w f32[d] and trains it as in FedAvg. On the same batches it trains its own
    model v_i f32[d] with the gradient of f_i(v) + lam/2 · ‖v − w‖². `lam` is the strength of this
    pull, and `average` says how the trained w are averaged. The v_i, f32[C, d], stay with the
    clients.
    """

    diagnostics = {
        "personal_distance": Quantity("mean distance of personal models from the global one"),
    }
    publishes_one_sum_per_round = True

    average: str = option("samples", "weights of the participants", choices=AVERAGES)
    lam: float = option(
        0.1,
        "strength of the pull of personal models to the global one",
        low=0.0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )

    def pull(self, hyper: Hyper) -> Array:
        """Return the strength of the pull lam/2 · ‖v_i − w‖² of the personal training."""
        return hyper["lam"]

    def compute_diagnostics(
        self, w: Array, home: Array, mean: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """How far personal models are from the global one."""
        return {"personal_distance": mean(jnp.linalg.norm(home - w, axis=1))}
