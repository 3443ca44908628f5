"""FedRC (Guo et al. 2024): FedEM whose clusters are told apart by how labels follow from inputs (concepts), not by which
labels there are.

As in FedEM (see `fedem`) there are K models, and for each client i a mixture π_i of them. The share of model k in a sample is
divided by the weight that label y has in cluster k: q_ijk ∝ π_ik exp(−ℓ_k(x_ij, y_ij)) / C_k(y_ij), where C_k(y) = Σ_ij q_ijk
[y_ij = y] / Σ_ij q_ijk. A cluster that has many samples of a label explains them well for that reason alone, and this is
taken out. Then π_ik = mean_j q_ijk, every model is trained on the loss weighted by q, and each model is averaged. A client is
scored by the mean of the models' probabilities, weighted by π. With `clusters = 1` it is FedAvg.

Readings:
- Sums of C. Paper: over all clients. Here: over all that have been drawn so far, each with its sums of its last round; those
  of a round enter the next round's C (its program does so with all clients, of which those not drawn count 1/M per label).
  Option: none.
- First round. Paper: not said. Here: C is equal for all labels, so that the E-step is FedEM's, as in its program. Option:
  none.
- Label without weight. Paper: nothing; C = 0 would give it to the cluster for certain, and in its program C is at least 1e-8
  before it is divided by its sum. Here: C is at least 1e-6, and all C_k(y) are equal for a label that nobody has had.
  Option: none.
- Weights of the mean. Paper: by samples of all clients. Here: by samples of the round's participants. Option: `average`.
- Mixture of a newcomer. Paper: not said; in its program newcomers get no C, so their E-step is FedEM's. Here: ten E-steps with
  models and C as they are. Option: `newcomer_steps`.

Communication per participant and round: K models and K · M floats (C, M classes) down, K updates and K · M floats (its sums
of q by label) up.

A newcomer, as any client that has not been drawn yet, gets its mixture by `newcomer_steps` E-steps on its own training
samples from equal weights, with the models and C as they are. A client without training samples has one model, the one of
least loss on its test samples.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.lazy import jax, jnp
from cfljax.local.solver import Solver
from cfljax.methods import fedem
from cfljax.methods.shared.choice import need_clients
from cfljax.methods.shared.common import traffic
from cfljax.methods.shared.soft import explain, in_lists, mixtures_of_all, sample_labels, train_all
from cfljax.registry import Entry
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model

PAPER = "Guo et al. 2024"
LEAST = 1e-6
"""The smallest C_k(y)."""
TOGETHER = 16
"""Participants whose labels are summed at a time, so that memory does not hold a number per sample and label of all."""


@dataclasses.dataclass(frozen=True)
class Config(fedem.Config):
    """Options of FedRC."""

    served = "em.models"


class State(NamedTuple):
    """What FedEM has, and the weights of labels."""

    em: fedem.State
    by_label: Array
    """f32[C, K, M]: each client's sums of q over its samples of each label, in its last round; zeros before."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FedRC: FedEM, whose clusters differ in what labels mean and not in which labels there are."""
    base = fedem.make(config, model, solver)
    k = config.clusters

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        need_clients(federation, k, "fedrc")
        return {}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        return State(base.init(key, federation, hyper, setup), jnp.zeros((federation.clients, k, federation.classes)))

    def prior(state: State) -> Array:
        return jnp.log(label_weights(jnp.sum(state.by_label, axis=0)))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        em = state.em
        found = explain(solver, federation, cohort, em.models, em.mixture[cohort.ids], prior(state))
        table = k * federation.classes
        sent = traffic(cohort, k, k, table, table)
        new, info = train_all(solver, key, federation, cohort, em.models, found.q, hyper, config.average, sent)
        sums = _by_label(solver, federation, cohort, found.q)
        there = jnp.where(cohort.mask & jnp.isfinite(sums).all(axis=(1, 2)), cohort.ids, federation.clients)
        em = fedem.after(em, federation, cohort, new, found)
        return State(em, state.by_label.at[there].set(sums, mode="drop")), info

    def mixture(state: State, federation: Federation, hyper: Hyper) -> Array:
        em = state.em
        return mixtures_of_all(solver, federation, em.models, em.mixture, em.drawn, config.newcomer_steps, prior(state))

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        return jnp.argmax(mixture(state, federation, hyper), axis=1).astype(jnp.int32)

    return Method(
        init,
        round,
        models=lambda state: (state.em.models, state.em.labels),
        setup=setup,
        score=score,
        mixture=mixture,
        extras=lambda state: {"mixture": state.em.mixture, "label_weights": label_weights(jnp.sum(state.by_label, axis=0))},
    )


def label_weights(sums: Array) -> Array:
    """f32[K, M]: C_k(y), from the sums of q f32[K, M] over all samples by cluster and label. Labels that nobody has had weigh the
    same in all clusters."""
    shares = sums / jnp.maximum(jnp.sum(sums, axis=1, keepdims=True), LEAST)
    seen = jnp.sum(sums, axis=0) > 0
    return jnp.where(seen, jnp.maximum(shares, LEAST), 1 / sums.shape[1])


def _by_label(solver: Solver, federation: Federation, cohort: Cohort, q: Array) -> Array:
    """f32[S, K, M]: the sums of q f32[S, K, N] over each participant's samples of each label."""
    here = in_lists(federation, cohort)
    labels = jnp.where(here, sample_labels(solver, federation, cohort), -1)

    def of(participant: tuple[Array, Array]) -> Array:
        mine, y = participant
        return jnp.matmul(mine, jax.nn.one_hot(y, federation.classes), precision=jax.lax.Precision.HIGHEST)

    return jax.lax.map(of, (jnp.where(here[:, None, :], q, 0.0), labels), batch_size=TOGETHER)


fedrc = Entry(Config, make)
