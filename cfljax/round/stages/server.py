"""Methods whose clusters are moved by an optimiser of the server (`train.server`) instead of the
mean of their members: FedAvgM, FedAdagrad, FedAdam, FedYogi (Reddi et al. 2021) and what else optax
has.

The method itself is untouched. What its round makes of the model of a cluster is taken for a step
along a gradient: before − after. The optimiser, which has a state for each cluster, takes its step
with this gradient from the model before. With SGD and lr = 1 that is the method itself, but for
rounding.

Readings:
- A cluster that nobody has moved. Paper: one model. Here: one that the round left as it was to the
  bit keeps its model and its state.
- Clusters that are made between rounds. Paper: none. Here: one takes over the optimiser's state of
  the cluster whose model it begins with, of several its own place or the first; one with a model of
  its own begins without.
- FedAdam, FedYogi, FedAdagrad. Paper: no bias correction, b2 = 0.99, v begins at τ², steps m / (√v
  + τ) with τ = 1e-3. Here: the same, in `round/stages/server.py`. Option: `name = "fedadam"`, and
  so on; optax's `adam`, `yogi` and `adagrad` differ.
- Parts (`train.parts`). Paper: whole models. Here: what everybody shares is moved by one optimiser
  of its own, what a cluster shares by the cluster's, and what stays with a client is left alone.

The discrepancy in the history is still the distance from the plain mean, as the method reports it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cfljax.lazy import jax, jnp, optax
from cfljax.local.parts import ALL, CLIENT, CLUSTER, FROZEN, ModelParts
from cfljax.local.solver import Solver
from cfljax.models.flat import mark_statistics
from cfljax.round.config import MethodConfig
from cfljax.round.stages import ModelStage, Stage
from cfljax.types import Array, Federation, Hyper, Info, Model, Tree

# The arrays of a part of a model, each with a leading axis K of clusters or without
Leaves = list[Array]


class Served(NamedTuple):
    """What the server keeps."""

    # The state of the optimiser of each cluster: arrays with a leading axis K; None: no part is a
    # cluster's own
    clusters: Tree
    # The state of the optimiser of what everybody shares; None: there is no such part
    common: Tree


@dataclasses.dataclass(frozen=True)
class Server(ModelStage):
    """An optimiser that moves the models of a method."""

    name: str
    # The optimiser's arguments besides the learning rate, which is `hyper["server.lr"]`
    arguments: tuple[tuple[str, object], ...]
    model: Model
    # Who shares which part of a model; None: all parts are a cluster's
    parts: ModelParts | None = None

    def init(self, state: Tree, federation: Federation, hyper: Hyper) -> Served:
        """Return the state of optimisers that have not moved."""
        optimiser = self._optimiser(hyper)
        pick, _ = _divide(self.model, self.parts)
        rows = getattr(state, self.where)
        own = pick(rows, CLUSTER)
        common = pick(rows[0], ALL)
        return Served(
            jax.vmap(optimiser.init)(own) if own else None,
            optimiser.init(common) if common else None,
        )

    def after(
        self, own: Served, before: Tree, state: Tree, info: Info, hyper: Hyper
    ) -> tuple[Served, Tree]:
        """Take a step along what the round has made of the models."""
        clusters, common = own
        pick, put = _divide(self.model, self.parts)
        step = _make_step(self._optimiser(hyper))
        old = getattr(before, self.where)
        new = getattr(state, self.where)
        moved = new
        if clusters is not None:
            rows, clusters = jax.vmap(step)(pick(old, CLUSTER), pick(new, CLUSTER), clusters)
            moved = put(moved, CLUSTER, rows)
        if common is not None:
            # What everybody shares is the same in all models, so one step is for all
            leaves, common = step(pick(old[0], ALL), pick(new[0], ALL), common)
            number = old.shape[0]
            rows = [jnp.broadcast_to(leaf, (number, *leaf.shape)) for leaf in leaves]
            moved = put(moved, ALL, rows)
        return Served(clusters, common), state._replace(**{self.where: moved})

    def regroup(self, own: Served, before: Tree, state: Tree, hyper: Hyper) -> Served:
        """HOST. Hand the optimisers on to the clusters that begin with the models of old ones."""
        if own.clusters is None:
            return own
        old, new = (np.asarray(getattr(each, self.where)) for each in (before, state))
        pick = _divide(self.model, self.parts)[0]
        slots = range(len(old))
        begun = jax.vmap(self._optimiser(hyper).init)(pick(jnp.asarray(new), CLUSTER))
        of = [
            next((j for j in (k, *slots) if j in slots and np.array_equal(old[j], row)), -1)
            for k, row in enumerate(new)
        ]

        def hand_on(before: Array, fresh: Array) -> Array:
            return jnp.stack(
                [fresh[k] if j < 0 else jnp.asarray(before[j]) for k, j in enumerate(of)]
            )

        return own._replace(clusters=jax.tree.map(hand_on, own.clusters, begun))

    def _optimiser(self, hyper: Hyper) -> Any:
        return maker(self.name)(hyper["server.lr"], **dict(self.arguments))


def stage(name: str, train: Any, options: MethodConfig, solver: Solver) -> Stage | None:
    """Return the stage if the server has an optimiser."""
    if (table := train.server_table) is None:
        return None
    return Server(
        options.moved_by_server,
        table.name,
        tuple((table.arguments or {}).items()),
        solver.model,
        solver.parts,
    )


def _make_step(optimiser: Any) -> Callable[[Leaves, Leaves, Tree], tuple[Leaves, Tree]]:
    """Return a function (parameters before and after a round, state) -> (parameters, state) after
    the step of the server."""

    def move(before: Leaves, after: Leaves, state: Tree) -> tuple[Leaves, Tree]:
        gradient = jax.tree.map(jnp.subtract, before, after)
        updates, stepped = optimiser.update(gradient, state, before)
        still = (
            jnp.all(jnp.stack([jnp.all(a == b) for a, b in zip(before, after, strict=True)]))
            if before
            else jnp.bool_(True)
        )
        keep = functools.partial(jax.tree.map, lambda old, new: jnp.where(still, old, new))
        return keep(before, optax.apply_updates(before, updates)), keep(state, stepped)

    return move


def _divide(
    model: Model, parts: ModelParts | None
) -> tuple[Callable[[Array, str], Leaves], Callable[[Array, str, Leaves], Array]]:
    """(pick, put): `pick(rows, kind)` gives the parts of a kind of models f32[K, d] or f32[d], each
    in its own shape, and `put(rows, kind, parts)` models f32[K, d] in which they are other ones."""
    kinds = np.zeros(model.size, np.float32)
    names = (CLUSTER, ALL, CLIENT, FROZEN)
    if parts is not None:
        for number, kind in enumerate(names):
            kinds[parts.columns(kind)] = number
    with jax.ensure_compile_time_eval():
        of_leaf = [
            names[int(np.asarray(leaf).flat[0])]
            for leaf in jax.tree.leaves(model.unravel(jnp.asarray(kinds)))
        ]
    # Statistics of batches are left as the round averages them
    running = jax.tree.leaves(mark_statistics(model))
    of_leaf = [FROZEN if left else kind for left, kind in zip(running, of_leaf, strict=True)]

    def unravel(rows: Array) -> tuple[Leaves, Any]:
        return jax.tree.flatten(
            model.unravel(rows) if rows.ndim == 1 else jax.vmap(model.unravel)(rows)
        )

    def pick(rows: Array, kind: str) -> Leaves:
        return [leaf for leaf, own in zip(unravel(rows)[0], of_leaf, strict=True) if own == kind]

    def put(rows: Array, kind: str, new: Leaves) -> Array:
        leaves, structure = unravel(rows)
        rest = iter(new)
        changed = [
            next(rest) if own == kind else leaf for leaf, own in zip(leaves, of_leaf, strict=True)
        ]
        return jax.vmap(model.ravel)(jax.tree.unflatten(structure, changed))

    return pick, put


class Moments(NamedTuple):
    """The state of the optimiser."""

    m: Tree
    v: Tree


def fedadam(
    learning_rate: float | Array, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3
) -> Any:
    """FedAdam: v ← b2 · v + (1 − b2) · g²."""
    return _make_optimiser(learning_rate, b1, tau, lambda v, square: b2 * v + (1 - b2) * square)


def fedyogi(
    learning_rate: float | Array, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3
) -> Any:
    """FedYogi: v ← v − (1 − b2) · g² · sign(v − g²)."""
    return _make_optimiser(
        learning_rate, b1, tau, lambda v, square: v - (1 - b2) * square * jnp.sign(v - square)
    )


def fedadagrad(learning_rate: float | Array, b1: float = 0.0, tau: float = 1e-3) -> Any:
    """FedAdagrad: v ← v + g²."""
    return _make_optimiser(learning_rate, b1, tau, lambda v, square: v + square)


PRINTED: dict[str, Callable[..., Any]] = {
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
}


def maker(name: str) -> Callable[..., Any]:
    """Return the function that makes the optimiser with this name: one of `PRINTED`, or optax's."""
    found: Callable[..., Any] = PRINTED[name] if name in PRINTED else getattr(optax, name)
    return found


def _make_optimiser(
    rate: float | Array, b1: float, tau: float, second: Callable[[Array, Array], Array]
) -> Any:
    def init(params: Tree) -> Moments:
        return Moments(
            jax.tree.map(jnp.zeros_like, params),
            jax.tree.map(lambda p: jnp.full_like(p, tau**2), params),
        )

    def update(grads: Tree, state: Moments, params: Tree = None) -> tuple[Tree, Moments]:
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.m, grads)
        v = jax.tree.map(lambda v, g: second(v, g * g), state.v, grads)
        return jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + tau), m, v), Moments(m, v)

    return optax.GradientTransformation(init, update)
