"""`every = N`: clients are re-clustered after each N rounds, by the same steps as before round 0,
from where their data are then.

All clients available by then participate, and all draws are new, also the model that they pre-train
from. Each new cluster begins with the trained model that most of its members had, of several the
first one; one whose members had none, as the set-up makes it. The round that follows counts what is
sent for it, as round 0 does.
"""

from __future__ import annotations

import numpy as np

from cfljax.registry.options import option


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
