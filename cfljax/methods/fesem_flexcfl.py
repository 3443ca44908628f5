"""FeSEM as FedGroup's paper compares with it (programs GrouProx and FlexCFL, Duan et al. 2021);
`fesem` is the authors' own.

The K centres are different random models. A participant joins the centre nearest in l2 to its last
local weights W_i, trains from it, and the centre becomes the mean of the new weights. As all W_i
are w_0 at first, the clients of the first round join one centre. Where everybody takes part in each
round they may all stay with it, and the method is FedAvg; with a draw in each round clients part by
when they came.

Readings:
- W_i of an untrained client. Paper: not said. Here: w_0, as in the program. Option: none.
- Weights of the mean. Paper: uniform in FeSEM's; the program of FedGroup's Table 3 weights by
  samples. Here: uniform. Option: `average = "samples"`.

Communication per participant and round: one model down, one up.

A newcomer has no weights to compare: it takes the centre, of those in use, with the least loss on
its labelled samples.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.blocks import squared_distances
from cfljax.lazy import jnp
from cfljax.round.recipes import (
    AVERAGES,
    Ask,
    Clustered,
    Done,
    State,
    first_model,
    first_models,
    option,
)
from cfljax.types import Array

PAPER = "Duan et al. 2021"


@dataclasses.dataclass(frozen=True)
class FeSEMFlexCFL(Clustered):
    """FeSEM (FedGroup): each client joins the centre nearest to its last weights."""

    chooses, scores_on_server, compares = True, True, True
    vectors_kept = 1  # W_i

    clusters: int = option(4, "number of centres", low=1)
    average: str = option("uniform", "weights of the members", choices=AVERAGES)

    def first(self, ask: Ask, state: State) -> State:
        """Random centres, none of which is w_0; `memory` f32[C, d]: W_i."""
        model, w = ask.solver.model, first_model(ask.key, ask.solver.model)
        own = jnp.tile(w, (ask.federation.clients, 1))
        return state._replace(
            models=first_models(ask.key, model, state.clusters + 1)[1:], memory=own
        )

    def score(self, ask: Ask, state: State) -> Array:
        """f32[K, S]: how far its weights are."""
        return squared_distances(state.memory[ask.cohort.ids], state.models).T

    def remember(self, ask: Ask, before: State, after: State, done: Done) -> Array:
        """Return the weights of those that have trained."""
        into = jnp.where(ask.cohort.mask & done.sane, ask.cohort.ids, len(before.memory))
        return before.memory.at[into].set(before.models[done.which] + done.moves, mode="drop")
