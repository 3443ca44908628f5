"""Adaptive-FedAvg (Canonaco et al. 2021): FedAvg whose learning rate falls as 1 / t, and rises when
the global model moves more than before, as it does when the clients' data drift.

After round t = 1, 2, … the server has running means (with the share β, each divided by 1 − βᵗ) of
the global model w, by β₁: m; of mean((w − m before)²), by β₂: v; and of v / v before, by β₃: r, to
which round 1 adds a 1. Clients then train at min(η, η · r / t), η being the run's learning rate.
"""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import Ask, RoundResult, State, option
from cfljax.types import Array, Hyper, Quantity

ABOUT = About(
    title="Adaptive-FedAvg",
    family="global",
    authors="Canonaco et al.",
    year=2021,
    paper="Adaptive federated learning in presence of concept drift",
    venue="IJCNN",
    link="https://ieeexplore.ieee.org/document/9533710",
)
READINGS = (
    Reading(
        "Who gets the rate",
        paper="all clients; the program of FedCCFA's authors, which has the equations, gives it "
        "to the participants of the round before",
        here="all",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class AdaptiveFedAvg(FedAvg):
    """Adaptive-FedAvg: FedAvg whose learning rate follows how the global model moves.

    A round is FedAvg's, at the learning rate η · min(1, r / t) instead of η. `beta1`, `beta2` and
    `beta3` are β₁, β₂ and β₃ of the running means m f32[d], v f32[] and r f32[], which the server
    updates by the new global model f32[d] after each round.
    """

    diagnostics = {
        "rate": Quantity("factor of the next round's learning rate"),
    }

    beta1: float = option(0.7, "weight of the past in the mean model", low=0.0, high=0.999)
    beta2: float = option(0.3, "weight of the past in the mean squared update", low=0.0, high=0.999)
    beta3: float = option(
        0.7, "weight of the past in the mean ratio of two updates", low=0.0, high=0.999
    )

    def first(self, ask: Ask, state: State) -> State:
        """Remember m f32[d], v and r as they are before the division, the number of rounds t, and
        the rate's factor f32[] each."""
        zero = jnp.float32(0)
        memory = {
            "m": jnp.zeros_like(state.models[0]),
            "v": zero,
            "r": zero,
            "t": zero,
            "rate": jnp.float32(1),
        }
        return state._replace(memory=memory)

    def numbers(self, hyper: Hyper, state: State) -> Hyper:
        """Return the numbers of the round, with its learning rate."""
        return hyper | {"lr": hyper["lr"] * state.memory["rate"]}

    def remember_after_server_step(self, before: State, after: State) -> dict[str, Array]:
        """Return the new means, and the next rate."""
        old = before.memory
        w = after.models[0]
        b1 = self.beta1
        b2 = self.beta2
        b3 = self.beta3
        t = old["t"] + 1
        v = b2 * old["v"] + (1 - b2) * jnp.mean(
            (w - old["m"] / jnp.where(t > 1, 1 - b1 ** old["t"], 1.0)) ** 2
        )
        grown = v / (1 - b2**t) * (1 - b2 ** old["t"]) / old["v"]
        r = b3 * old["r"] + (1 - b3) * jnp.where((t > 1) & (old["v"] > 0), grown, 1.0)
        rate = jnp.minimum(1.0, r / (1 - b3**t) / t)
        return {"m": b1 * old["m"] + (1 - b1) * w, "v": v, "r": r, "t": t, "rate": rate}

    def compute_diagnostics(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> dict[str, Array]:
        """Return what the rate of the next round is multiplied by."""
        return {"rate": after.memory["rate"]}
