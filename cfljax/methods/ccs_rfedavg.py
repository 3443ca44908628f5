"""CCS + RFedAvg: one global model; in each round the participants are clustered by the directions of their gradients, and the
clusters are weighted so that together they look class-balanced. The greedy cover is Algorithm 1, the imbalance levels are eq. 17,
the best weights eq. 16 (Q1), the reshaped balance vector is eq. 14.

A participant whose message is not finite is left out of the clustering, and counted. With `similarity = "sketch"` participants are
clustered by sketches of their messages, and send once more when the weights are known: no more messages are held than a block's.

Readings:
- Message. Paper: one gradient on all local data per round. Here: the same; or −Δ/η of the local solver. Option: `local =
  "update"`.
- Loss in the threshold (eq 7). Paper: unweighted over devices (eq. 1). Here: weighted by samples, as eq. 4 weights the
  gradients. Option: none.
- Angle of the threshold. Paper: no bounds. Here: the fraction is clipped to [0, 1], as a loss above l_0 would shrink the angle
  below θ, and one below l_* push it past a right angle. Option: none.
- 1/I_C. Paper: may divide by 0. Here: max(I_C, 1). Option: none.
- Numbers. Paper: none for θ, l_* and K-means' N. Here: ours. Option: `theta`, `l_star`, `clusters`.

Communication per participant and round: one model down, one gradient up, and for the server's choices one float for the loss
(`clustering = "ccs"`), one for I_k (`weights = "rfedavg"`) or M class counts (`"optimal"`). With `weights = "fedavg"` nothing more.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.federation.common import count_labels
from cfljax.kernels import simplex
from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.cover import ccs_threshold, cover
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.mix import members, mix_updates, usable, weights_by
from cfljax.lazy import jax, jnp
from cfljax.local.one_gradient import OneGradient
from cfljax.local.reports import report, report_trained
from cfljax.local.rounds import Mixing, jobs_from, sizes, train_and_mix
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.round.common import first_model, traffic
from cfljax.round.config import MethodConfig, TrainOptions
from cfljax.round.similarity import similarity, train_and_compare
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, LocalStep, Method, Model, Updates

PAPER = "Wang, Zhang and Tao, “Adaptive clustering-based model aggregation for federated learning with imbalanced data”"


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """Options of CCS + RFedAvg."""

    served = "models"

    local: str = option("gradient", "participants send a full-batch gradient, or a local update", choices=("gradient", "update"))
    weights: str = option("rfedavg", "weights of the clusters", choices=("rfedavg", "optimal", "fedavg"))
    clustering: str = option("ccs", "how participants are clustered", choices=("ccs", "kmeans"))
    clusters: int = option(10, 'clusters of clustering = "kmeans"', low=1)
    theta: float = option(0.1, "smallest angle of the threshold, in radians (eq. 7)", low=0.0, high=float(np.pi / 2), traced=True)
    l_star: float = option(0.05, "the loss that training aims at (eq. 7)", traced=True)
    similarity: str = similarity()

    @property
    def no_feedback(self) -> str:
        """Gradients are sent with `local = "gradient"`."""
        return 'it sends gradients with local = "gradient"' if self.local == "gradient" else ""

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Local training has no say where one gradient is sent."""
        if self.local == "gradient":
            for name, off in (("momentum", 0.0), ("weight_decay", 0.0), ("optimizer", "sgd")):
                if getattr(train, name) != off:
                    raise SpecError(f'{where}.local = "gradient": one plain gradient step; train.{name} needs local = "update"')


class State(NamedTuple):
    """The global model, and what the server remembers."""

    models: Array
    """f32[1, d]."""
    labels: Array
    """i32[C] all zeros: every client is scored with the global model."""
    loss0: Array
    """f32[] l_0 of eq. 7; NaN before the first round that had participants."""
    reached: Array
    """bool[] whether l_0 ≤ l_*, so that the threshold of eq. 7 is not defined."""
    counts: Array
    """f32[C, M] samples of each class (D_k^m)."""


class Heard(NamedTuple):
    """What the server receives from the participants."""

    sent: Array
    """f32[S, d] the gradients g_k up to a positive factor, or sketches of them."""
    losses: Array
    """f32[S] mean losses at the current model."""
    there: Array
    """bool[S]: whether a finite message has arrived."""


class Decided(NamedTuple):
    """What the server decides."""

    mix: Array
    """f32[1, S] the mixing matrix."""
    loss0: Array
    """f32[] l_0."""
    diag: dict[str, Array]


class Shares(NamedTuple):
    """What the participants know about their data."""

    size: Array
    """f32[S] D_k, the number of samples."""
    counts: Array
    """f32[S, M] D_k^m, the number of samples of each class."""
    level: Array
    """f32[S] I_k, the imbalance level."""


class Weighed(NamedTuple):
    """Clusters and their weights."""

    labels: Array
    """i32[S]; −1: masked or broken."""
    p: Array
    """f32[N]."""
    shares: Array
    """f32[N, M]: H."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """CCS + RFedAvg: gradient clusters of each round, weighted towards class balance."""

    local = OneGradient(**vars(solver)) if config.local == "gradient" else solver

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        clients = int(np.sum(np.asarray(federation.real)))
        if config.clustering == "kmeans" and config.weights != "fedavg" and config.clusters > clients:
            raise SpecError(f"method.ccs_rfedavg.clusters = {config.clusters}: there are {clients} clients; at most {clients}")
        return {"counts": class_counts(federation)}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        labels = jnp.zeros(federation.clients, jnp.int32)
        return State(first_model(key, model)[None], labels, jnp.float32(jnp.nan), jnp.array(False), setup["counts"])

    def decide(key: Array, state: State, federation: Federation, cohort: Cohort, heard: Heard, hyper: Hyper) -> Decided:
        """The server's choices."""
        everyone, there = jnp.zeros_like(cohort.ids), heard.there
        counts = state.counts[cohort.ids]
        own = Shares(sizes(federation, cohort), counts, simplex.imbalance_level(counts, state.counts.sum()))
        loss = _mean(heard.losses, jnp.where(there, own.size, 0.0))
        loss0 = jnp.where(jnp.isnan(state.loss0), loss, state.loss0)
        epsilon = ccs_threshold(loss, loss0, hyper["l_star"], hyper["theta"])  # eq. 7
        if config.weights == "fedavg":
            labels = jnp.where(there, 0, -1)
            mix = weights_by(everyone, cohort.mask, own.size, 1)
            weighed = Weighed(labels, jnp.ones(1), simplex.class_shares(labels, counts, 1)[0])
        else:
            labels, number = _cluster(config, key, heard.sent, there, federation.uid[cohort.ids], epsilon)
            weighed = _weigh(config, labels, number, own)
            inside = weights_by(labels, there, own.size, number)
            mix = jnp.matmul(weighed.p[None], inside, precision=jax.lax.Precision.HIGHEST)
        diag = _diagnostics(weighed) | {"epsilon": epsilon, "loss": loss}
        return Decided(mix, loss0, diag)

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        everyone = jnp.zeros_like(cohort.ids)
        bill = traffic(cohort, floats_up=_floats_up(config, federation.classes))
        jobs = jobs_from(cohort, state.models, everyone)
        heard, updates = _hear(config, local, key, federation, cohort, jobs, hyper)
        decided = decide(key, state, federation, cohort, heard, hyper)
        missing = lambda finite: jnp.sum(cohort.mask & ~(heard.there & finite), dtype=jnp.int32)  # noqa: E731
        if updates is None:  # once more, now that each one's weight is known
            trained = train_and_mix(local, key, federation, jobs, hyper, Mixing(decided.mix, state.models))
            trained = trained._replace(mixed=trained.mixed._replace(nonfinite=missing(trained.kept.finite)))
            new = trained.mixed.new
            info = report_trained(federation, cohort, trained, everyone, new - state.models, bill, **decided.diag)
        else:
            mixed = mix_updates(decided.mix, updates.delta, state.models, solver.rule(key, hyper))  # w ← w − η Σ p_n g_n
            mixed, new = mixed._replace(nonfinite=missing(usable(updates.delta))), mixed.new
            info = report(federation, cohort, updates, state.models[everyone], new[everyone], mixed, bill, **decided.diag)
        return state._replace(models=new, loss0=decided.loss0, reached=decided.loss0 <= hyper["l_star"]), info

    return Method(init, round, models=lambda state: (state.models, state.labels), setup=setup, extras=_extras)


def class_counts(federation: Federation) -> np.ndarray:
    """HOST. f32[C, M] training samples of each class, as each client sees its labels."""
    split, view = federation.train, federation.view
    rows, start, count = (np.asarray(a) for a in (split.rows, split.start, split.count))
    owner = np.repeat(np.arange(federation.clients), count)
    place = start[owner] + np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    labels = np.asarray(federation.pool.y)[rows[place]]
    if view is not None and view.labels is not None:
        labels = np.asarray(view.labels)[np.asarray(view.of)[owner], labels]
    return count_labels(owner, labels, federation.clients, federation.classes).astype(np.float32)


def _hear(
    config: Config, local: Solver, key: Array, federation: Federation, cohort: Cohort, jobs: Jobs, hyper: Hyper
) -> tuple[Heard, Updates | None]:
    """What the server receives, and the steps −η g_k as updates; None in their place where they were summed in blocks."""
    by_gradient = config.local == "gradient"
    if by_gradient:  # the gradients themselves
        local = local.with_step(lambda _: LocalStep(jnp.float32(1)))
    updates = None
    if config.similarity == "sketch":
        nothing = jnp.zeros((1, cohort.ids.shape[0]))
        trained, moves = train_and_compare("sketch", local, key, federation, jobs, hyper, Mixing(nothing, jobs.start))
        loss, finite = trained.kept.loss, trained.kept.finite
    else:
        updates = local.fit(key, federation, jobs, hyper)
        loss, moves, finite = updates.loss, updates.delta, usable(updates.delta)
        updates = updates._replace(delta=hyper["lr"] * moves) if by_gradient else updates
    if not by_gradient:
        loss = local.losses(federation, jobs.start, cohort.ids, cohort.mask)[0]
    return Heard(-moves, loss, cohort.mask & finite & jnp.isfinite(loss)), updates  # −Δ/η: the factor 1/η changes no cosine


def _cluster(config: Config, key: Array, sent: Array, heard: Array, uid: Array, epsilon: Array) -> tuple[Array, int]:
    """(labels i32[S], an upper bound of their number)."""
    if config.clustering == "kmeans":
        return kmeans(keys.fold(key, "kmeans"), sent, config.clusters, heard, uid).labels, config.clusters
    return cover(cosine_matrix(sent, mask=heard), epsilon, heard).labels, sent.shape[0]  # Algorithm 1


def _weigh(config: Config, labels: Array, number: int, own: Shares) -> Weighed:
    shares, active = simplex.class_shares(labels, own.counts, number)
    if config.weights == "optimal":
        return Weighed(labels, simplex.balance(shares, active), shares)  # eq. 16
    return Weighed(labels, simplex.rfedavg_weights(labels, own.level, own.size, number), shares)


def _diagnostics(weighed: Weighed) -> dict[str, Array]:
    balance = simplex.reshaped_balance(weighed.p, weighed.shares)  # eq. 14
    filled = members(weighed.labels, weighed.p.shape[0]).any(axis=1)
    return {
        "clusters": jnp.sum(filled, dtype=jnp.int32),
        "participant_labels": weighed.labels,
        "p": weighed.p,
        "balance": balance,
        "balance_error": simplex.balance_error(balance),
        "imbalance_degree": simplex.imbalance_degree(balance),  # eq. 3
    }


def _floats_up(config: Config, classes: int) -> int:
    if config.weights == "fedavg":
        return 0
    return (config.clustering == "ccs") + (1 if config.weights == "rfedavg" else classes)


def _mean(values: Array, weight: Array) -> Array:
    total = weight.sum()
    mean = jnp.where(weight > 0, values * weight, 0.0).sum() / jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, mean, jnp.nan)


def _extras(state: State) -> dict[str, Array]:
    """l_0; warns where it was no higher than the target, as CCS then puts everybody within a right angle together."""
    if bool(state.reached):
        warnings.warn(f"ccs_rfedavg: the loss of the first round, {float(state.loss0):.3g}, is not above l_star", stacklevel=2)
    return {"loss_start": state.loss0}


ccs_rfedavg = Entry(Config, make)
