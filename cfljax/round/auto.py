"""`clusters = "auto"`: the number of clusters is found before the first round, from how the first updates of clients differ.

Up to PROBED clients that are there in round 0 train for one epoch from w_0 (methods that pre-train anyway use those updates), and
`kernels.number` chooses from 1 to `most` clusters by the directions of the updates, less what they have in common. Neither test
data nor true groups have a say. The run keeps `most` models, so that runs with different choices share a program; those beyond
the chosen number are never joined. Kept with the results: `auto_clusters` and `auto_curve`, the criterion of each number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from cfljax import keys
from cfljax.kernels.number import CRITERIA, choose_number
from cfljax.lazy import jnp
from cfljax.local.solver import Solver
from cfljax.registry.options import option
from cfljax.round.choice import need_clients
from cfljax.round.common import first_model_on_host
from cfljax.round.config import MethodConfig
from cfljax.round.pretrain import all_updates, pretrainer, ready, solver_before
from cfljax.round.state import Number
from cfljax.types import Array, Federation, Hyper, Model, Tree, on_host

PROBED = 256
"""The most clients whose updates are compared."""


@dataclasses.dataclass(frozen=True)
class CountedConfig(MethodConfig):
    """The base class of the options of methods whose number of clusters may be found."""

    auto: str = option("silhouette", 'how a number that is "auto" is found', choices=CRITERIA)
    most: int = option(8, 'the most clusters that "auto" finds', low=2)


class Finder(Protocol):
    """HOST. A function that finds the number of clusters of a run."""

    def __call__(self, key: Array, federation: Federation, hyper: Hyper) -> Number | None:
        """Return the number; None where the options give it."""


def finder(config: CountedConfig, model: Model, solver: Solver, name: str) -> Finder:
    """HOST. The function that probes clients for the method `name`. It raises SpecError if fewer clients train than there are
    clusters."""
    moves_of = first_moves(model, solver, name)

    def find(key: Array, federation: Federation, hyper: Hyper) -> Number | None:
        if isinstance(config.clusters, int):
            need_clients(federation, config.clusters, name)
            return None
        moves = moves_of(key, federation, hyper)
        return number_of(config, moves, len(moves))

    return find


def first_moves(model: Model, solver: Solver, name: str) -> Callable[[Array, Federation, Hyper], np.ndarray]:
    """HOST. The function (key, federation, hyper) -> the updates of the probed clients for the method `name`, or sketches of them,
    f32[n, min(d, 4096)]."""
    train = pretrainer(solver_before(solver, 1))

    def moves(key: Array, federation: Federation, hyper: Hyper) -> np.ndarray:
        ids, start = probed(key, federation, name), first_model_on_host(key, model)
        return all_updates(train(key, federation, hyper, start, ids), "sketch")

    return moves


def probed(key: Array, federation: Federation, name: str) -> np.ndarray:
    """HOST. i32[n]: positions of the clients that are probed, sorted by identity: all that can train in round 0, or PROBED random
    ones of them."""
    ids = ready(federation, name)
    drawn = np.asarray(keys.scores(key, "auto", federation.uid))[ids]
    return ids[np.sort(np.argsort(drawn, kind="stable")[:PROBED])]


def number_of(config: CountedConfig, moves: np.ndarray, trained: int = 0) -> Number | None:
    """HOST. The number of clusters of updates f32[n, d], sorted by identity, of which `trained` were made for it alone; None where
    the options give it."""
    if not config.counts_clusters:
        return None
    found = choose_number(moves, config.most, config.auto)
    clusters, probed = (np.array(each, np.int32) for each in (found.clusters, trained))
    return Number(on_host(clusters), on_host(found.curve.astype(np.float32)), on_host(probed))


def setup_of(number: Number | None) -> dict[str, Tree]:
    """HOST. What `Method.setup` returns for `init`."""
    return {} if number is None else {"number": number}


def count(number: Number | None, clusters: int) -> int | Array:
    """Return the number of clusters: the one that was found, or `clusters`."""
    return clusters if number is None else number.clusters


def allowed(number: Number | None, clusters: int) -> Array | None:
    """bool[K]: which of `clusters` models may be chosen; None: all."""
    return None if number is None else jnp.arange(clusters) < number.clusters


def extras_of(number: Number | None) -> dict[str, Array]:
    """Return what is kept with the results: i32[] the number that was found, and f32[2, 2 · most] the numbers 1, 2, … and the
    criterion of each."""
    if number is None:
        return {}
    numbers = jnp.arange(1, number.curve.shape[0] + 1, dtype=jnp.float32)
    return {"auto_clusters": number.clusters, "auto_curve": jnp.stack([numbers, number.curve])}
