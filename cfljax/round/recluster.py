"""`every = N`: clients are re-clustered after each N rounds, by the same steps as before round 0,
from where their data are then.

All clients available by then participate, and all draws are new, also the model that they pre-train
from. Each new cluster begins with the trained model that most of its members had, of several the
first one; one whose members had none, as the set-up makes it. The round that follows counts what is
sent for it, as round 0 does. `average_in_new_clusters` does it inside a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfljax.kernels.mix import mix_updates
from cfljax.local.averages import averages
from cfljax.local.rounds import Trained
from cfljax.local.solver import Solver
from cfljax.registry.options import option
from cfljax.types import Array

if TYPE_CHECKING:
    from cfljax.round.ask import Ask
    from cfljax.round.clustered import Clustered
    from cfljax.round.state import State


def every() -> int | None:
    """Return the option of methods that cluster before round 0."""
    return option(None, "rounds between clusterings of all clients (default: cluster once)", low=1)


def hand_on_models(
    models: np.ndarray, before: np.ndarray, fresh: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """HOST. Return f32[K, d]: the models that new clusters begin with. `models` f32[K, d] and
    clusters `before` i32[C]: what clients had; `fresh` f32[K, d] and `after` i32[C]: what the
    set-up has made."""
    given = fresh.copy()
    for k in np.unique(after[(after >= 0) & (before >= 0)]):
        given[k] = models[np.bincount(before[(after == k) & (before >= 0)]).argmax()]
    return given


def average_in_new_clusters(
    config: Clustered, trainer: Solver, ask: Ask, state: State, which: Array, trained: Trained
) -> tuple[Array, Array, Trained]:
    """Return (clusters i32[S], mixing matrix f32[K, S], result) of participants whose trained
    models are averaged in other clusters than those `which` i32[S] that they started from."""
    models = state.models[which] + trained.kept.moves
    which = config.reassign(ask, state, models, which)
    mix = averages(
        trainer, ask.federation, ask.cohort, which, state.clusters, config.average, ask.hyper
    )
    moves = models - state.models[which]
    mixed = mix_updates(mix, moves, state.models, trainer.rule(ask.key, ask.hyper))
    return which, mix, trained._replace(mixed=mixed, kept=trained.kept._replace(moves=moves))
