"""The state of a clustered method between two rounds, and what a method makes before the first
one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.lazy import jnp
from cfljax.types import Array, Tree

ROUND_UP = 8
"""Numbers of clusters that data decides are rounded up to a multiple of this, so that most seeds
share a compiled program."""


class State(NamedTuple):
    """The state of a method on `Clustered` between two rounds: K models, and the cluster of each
    client."""

    models: Array
    """f32[K, d]: the models."""
    labels: Array
    """i32[C]: the cluster of each client; −1: none yet."""
    labels_if_joining: Array | None = None
    """i32[C]: the cluster that a client without one will join; −1: none. None: it is found by
    `score` when the client comes."""
    active: Array | None = None
    """bool[K]: which clusters are in use; None: all."""
    memory: Tree = None
    """What else the method remembers."""
    pretrained_count: Array | None = None
    """i32[]: how many clients have trained for the clustering since the last round. The next round
    bills it. None: nobody ever."""
    pretrained_numbers: Array | None = None
    """i32[]: how many numbers of its update each of them sends; None: all."""
    floats: Array | None = None
    """i32[]: how many numbers clients have sent up for the clustering since the last round; None:
    nobody ever."""
    compared: Array | None = None
    """i32[]: how many models clients were sent since the last round to compare them for the
    clustering, for as many of the `floats`; None: none ever."""
    extras: dict[str, Array] = {}
    """Arrays that are kept with the results."""
    global_model: Array | None = None
    """f32[1, d]: a global model, which all participants train as well; None: there is none."""
    velocity: Array | None = None
    """f32[K, d]: the clusters' momentum buffers, of `FromBuffer`; None: there are none."""
    client_params: Array | None = None
    """f32[C, n]: the parameters that stay with each client (`round/parts.py`); None: there are
    none."""
    scored_by: Array | None = None
    """i32[C]: the cluster whose model each client has, or would get; None: `client_params` is
    None."""

    @property
    def clusters(self) -> int:
        """The number K of models that there is room for."""
        return int(self.models.shape[0])

    @property
    def active_mask(self) -> Array:
        """bool[K]: which clusters are in use."""
        return jnp.ones(self.clusters, bool) if self.active is None else self.active

    @property
    def in_use(self) -> int | Array:
        """The number of clusters in use."""
        return self.clusters if self.active is None else jnp.sum(self.active, dtype=jnp.int32)


class InitialClusters(NamedTuple):
    """HOST. What `Clustered.begin` returns: the models and clusters before the first round."""

    models: np.ndarray
    """f32[K, d]: the models. If the clients decide how many there are, `mark_slots(number)` makes
    room for some more, so that other seeds can use the same compiled program; it is `active`."""
    labels: np.ndarray
    """i32[C]: the cluster of each client; −1: none yet."""
    labels_if_joining: np.ndarray | None = None
    """i32[C]: as in `State`."""
    active: np.ndarray | None = None
    """bool[K]: as in `State`."""
    memory: Tree = None
    floats: int = 0
    """The numbers that clients send up for the clustering, besides updates."""
    extras: dict[str, np.ndarray] = {}


class RoundResult(NamedTuple):
    """What a round of training has done, for `Clustered.remember` and
    `Clustered.compute_diagnostics`."""

    which: Array
    """i32[S]: the cluster of each participant."""
    moves: Array
    """f32[S, d]: the participants' updates as they arrived, of methods that compare them; else some
    sketch of them."""
    norms: Array
    """f32[S]: the norms of the updates."""
    finite: Array
    """bool[S]: whether each update is finite."""
    moved: Array
    """bool[K]: which clusters had members with finite updates."""
    losses: Array
    """f32[S]: the mean loss of each participant in its local training, as it would report it;
    billed only if the method uploads it, by `ask.upload(1)`."""
    notes: Array | None = None
    """f32[S, notes]: what the method's own steps have noted, NaN where they have not; or the
    updates of the parameters that stay with the participants; None: there are neither."""


def mark_slots(clusters: int) -> np.ndarray:
    """HOST. bool[K]: True for the first `clusters` slots; K is their number rounded up to a
    multiple of ROUND_UP.

    Args:
        clusters: How many clusters are in use.
    """
    return np.arange(-(-clusters // ROUND_UP) * ROUND_UP) < clusters
