"""FeSEM as FedGroup's paper compares with it (programs GrouProx and FlexCFL, Duan et al. 2021);
`fesem` is the authors' own.

The K centres are different random models. A participant joins the centre nearest in l2 to its last
local weights W_i, trains from it, and the centre becomes the mean of the new weights. As all W_i
are w_0 at first, the clients of the first round join one centre. Where everybody takes part in each
round they may all stay with it, and the method is FedAvg; with a draw in each round clients part by
when they came.

A newcomer has no weights to compare: it takes the centre, of those in use, with the least loss on
its labelled samples.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.blocks import squared_distances
from cfljax.lazy import jnp
from cfljax.methods.fesem import Centres
from cfljax.round.about import About, Reading
from cfljax.round.recipes import Ask, RoundResult, State, first_model, first_models
from cfljax.types import Array

ABOUT = About(
    title="FeSEM (FedGroup)",
    family="clustered",
    authors="Duan et al.",
    year=2021,
    paper="FedGroup: efficient clustered federated learning via decomposed data-driven measure",
    venue="arXiv (ISPA under another title)",
    link="https://arxiv.org/abs/2010.06870",
)
READINGS = (
    Reading(
        "W_i of an untrained client",
        paper="not said",
        here="w_0, as in the program",
    ),
    Reading(
        "Weights of the mean",
        paper="uniform in FeSEM's; the program of FedGroup's Table 3 weights by samples",
        here="uniform",
        option='average = "samples"',
    ),
)


@dataclasses.dataclass(frozen=True)
class FeSEMFlexCFL(Centres):
    """FeSEM (FedGroup): each client joins the centre nearest to its last weights.

    The `clusters` centres f32[K, d] are different random models. A participant joins the centre
    nearest in l2 to its last weights W_i, a row of f32[C, d], which are w_0 before it has trained.
    It trains from that centre, and the centre becomes the mean of its members' models by `average`.
    """

    def first(self, ask: Ask, state: State) -> State:
        """Random centres, none of which is w_0; `memory` f32[C, d]: W_i, at first w_0."""
        model = ask.solver.model
        centres = first_models(ask.key, model, state.clusters + 1)[1:]
        own = jnp.tile(first_model(ask.key, model), (ask.federation.clients, 1))
        return state._replace(models=centres, memory=own)

    def score(self, ask: Ask, state: State) -> Array:
        """Return f32[K, S]: how far each participant's weights are from the centres."""
        return squared_distances(state.memory[ask.cohort.ids], state.models).T

    def remember(self, ask: Ask, before: State, after: State, done: RoundResult) -> Array:
        """Return the weights of those that have trained."""
        return self.with_trained(before.memory, ask, before, done)
