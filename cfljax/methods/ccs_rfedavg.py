"""CCS + RFedAvg (Wang, Zhang and Tao 2021): one global model; in each round the participants are
clustered by the directions of their gradients, and the clusters are weighted so that together they
look class-balanced.

CCS (Algorithm 1) finds the clusters: of the participants without one, the one with the most others
at a cosine (eq. 6) of at least ε_t forms a cluster with these, until all have one. The threshold
ε_t falls with the loss (eq. 7). A cluster's gradient g_n is its members' mean by samples (eq. 4),
and w ← w − η Σ_n p_n g_n (eq. 5). RFedAvg's weights p_n are inverse to a cluster's imbalance, from
the levels I_k (eq. 17). The best weights solve Q1 (eq. 16), and eq. 14 is the class balance that
weights amount to.

A participant whose message is not finite is left out of the clustering, and counted. With
`similarity = "sketch"` participants are clustered by sketches of their messages, and send once more
when the weights are known: no more messages are held than a block's.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.federation.common import labels_seen
from cfljax.kernels import simplex
from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.cover import ccs_threshold, cover
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.mix import members, mix_updates, usable, weights_by
from cfljax.lazy import jax, jnp
from cfljax.local.reports import mean_loss, report, report_trained
from cfljax.local.rounds import Mixing, jobs_from, sizes, train_and_mix
from cfljax.local.solver import OneGradient, Solver
from cfljax.registry import Entry
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    MethodConfig,
    count_labels,
    first_model,
    need_clients,
    option,
    similarity,
    traffic,
    train_and_compare,
)
from cfljax.types import (
    Array,
    Cohort,
    Federation,
    Hyper,
    Info,
    Jobs,
    LocalStep,
    Method,
    Model,
    Quantity,
    Updates,
)

ABOUT = About(
    title="CCS + RFedAvg",
    family="global",
    authors="Wang, Zhang and Tao",
    year=2021,
    paper="Adaptive clustering-based model aggregation for federated learning with imbalanced data",
    venue="SPAWC",
    link="https://ieeexplore.ieee.org/document/9593144",
    communication="one model down, one gradient up, and for the server one float for the loss "
    '(`clustering = "ccs"`), one for I_k (`weights = "rfedavg"`) or M class counts '
    '(`"optimal"`)',
)
READINGS = (
    Reading(
        "Message",
        paper="one gradient on all local data per round",
        here="the same; or −Δ/η of the local solver",
        option='local = "update"',
    ),
    Reading(
        "Loss in the threshold (eq 7)",
        paper="l_0 and l_t are the global loss, unweighted over devices (eq. 1)",
        here="of the round's participants, as the server hears of no others, weighted by "
        "samples, like the gradients in eq. 4",
    ),
    Reading(
        "FedAvg",
        paper='"the traditional FedAvg update process"',
        here="one gradient of each participant, weighted by samples, without local epochs, as "
        "the others send",
        option='weights = "fedavg"',
    ),
    Reading(
        "Devices",
        paper='main classes "normal with mean of 5 and variance of 10", limited to 1 to 10',
        here="clipped, so that both ends collect what is beyond; a deviation of 10 is a spread "
        "of 3.16. experiments/recipes.py draws them",
    ),
    Reading(
        "Angle of the threshold",
        paper="no bounds",
        here="the fraction is clipped to [0, 1]: a loss above l_0 would push the angle below θ, "
        "a loss below l_* past a right angle",
    ),
    Reading(
        "1/I_C",
        paper="may divide by 0",
        here="max(I_C, 1)",
    ),
    Reading(
        "Numbers",
        paper="none for θ, l_* and the number of clusters of K-means",
        here="our own",
        option=("theta", "l_star", "clusters"),
    ),
)


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """Options of CCS + RFedAvg.

    `local` says what participants send, `weights` how clusters are weighted, `clustering` how they
    are found: by CCS with `theta` and `l_star` of eq. 7, or by K-means into `clusters`.
    `similarity = "sketch"` compares sketches of what is sent.
    """

    diagnostics = {
        "balance": Quantity("share of each class, as the weights reshape it", "share"),
        "balance_error": Quantity("squared distance of the reshaped class shares from equal ones"),
        "clusters": Quantity("clusters of the participants"),
        "epsilon": Quantity("clustering threshold of eq. 7, a cosine"),
        "imbalance_degree": Quantity("largest reshaped class share, divided by the smallest"),
        "loss": Quantity("training loss of the global model"),
        "loss_start": Quantity("training loss of the first global model"),
        "p": Quantity("weights of the clusters", "share"),
        "participant_labels": Quantity("cluster of each participant"),
        "participants": Quantity("participants, by position"),
    }
    served, places_unlabelled = "models", True
    needs_clients = False  # clusters are of the participants of a round
    reveals = "the clustering by updates and class counts"
    counts_labels = "counts samples by label, but they have several labels; take another method"

    local: str = option(
        "gradient",
        "participants send a full-batch gradient, or a local update",
        choices=("gradient", "update"),
    )
    weights: str = option(
        "rfedavg", "weights of the clusters", choices=("rfedavg", "optimal", "fedavg")
    )
    clustering: str = option("ccs", "how participants are clustered", choices=("ccs", "kmeans"))
    clusters: int = option(10, 'clusters of clustering = "kmeans"', low=1)
    theta: float = option(
        0.1,
        "smallest angle of the threshold, in radians (eq. 7)",
        low=0.0,
        high=float(np.pi / 2),
        traced=True,
    )
    l_star: float = option(0.05, "the loss that training aims at (eq. 7)", traced=True)
    similarity: str = similarity()

    @property
    def without(self) -> dict[str, str]:
        """Local training has no say where one gradient is sent."""
        why = 'with local = "gradient" it sends one plain gradient'
        names = (
            ("momentum", "weight_decay", "optimizer", "compress.feedback")
            if self.local == "gradient"
            else ()
        )
        return super().without | dict.fromkeys(names, why)

    def floats(self, classes: int) -> int:
        """How many numbers beside the gradient each participant sends."""
        own = {"fedavg": 0, "rfedavg": 1, "optimal": classes}[self.weights]
        return own + (self.clustering == "ccs" and own > 0)


class State(NamedTuple):
    """The global model f32[1, d]; l_0 of eq. 7, f32[], NaN before the first round that had
    participants; whether l_0 ≤ l_*, bool[], so that the threshold of eq. 7 is not defined; the
    samples of each class, f32[C, M] (D_k^m), as each client last reported them."""

    models: Array
    loss0: Array
    reached: Array
    counts: Array


def make(config: Config, model: Model, solver: Solver) -> Method:
    """CCS + RFedAvg: gradient clusters of each round, weighted towards class balance.

    A round: each participant sends its gradient g_k, or what `config.local` says, with its loss and
    class counts. Participants whose gradients have a cosine (eq. 6) of at least ε_t (eq. 7) form
    clusters (Algorithm 1; or K-means). g_n is the mean of a cluster's gradients by samples (eq. 4),
    and the model moves by w ← w − η Σ_n p_n g_n (eq. 5). The p_n make the classes weigh more alike:
    RFedAvg's from the imbalance levels (eq. 17), or the best ones (eq. 16).

    Args:
        config: the options.
        model: the network, whose parameters are a vector f32[d].
        solver: local training; with `config.local = "gradient"` it takes one full-batch gradient.

    Returns:
        The method, whose state is a `State`: one global model f32[1, d] for all clients.
    """
    local = OneGradient(**vars(solver)) if (by_gradient := config.local == "gradient") else solver
    sender = (
        local.with_step(lambda _: LocalStep(jnp.float32(1))) if by_gradient else local
    )  # of the gradients themselves

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        if config.clustering == "kmeans" and config.weights != "fedavg":
            need_clients(federation, config.clusters, "ccs_rfedavg")
        return {"counts": labels_seen(federation)}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        return State(
            first_model(key, model)[None], jnp.float32(jnp.nan), jnp.array(False), setup["counts"]
        )

    def collect(
        key: Array, federation: Federation, jobs: Jobs, hyper: Hyper
    ) -> tuple[Array, Array, Array, Updates | None]:
        """(f32[S, d] the gradients g_k up to a positive factor, or sketches of them; f32[S] mean
        losses at the model; bool[S] whether a finite message has arrived; the steps −η g_k as
        updates, None where they were summed in blocks)."""
        if config.similarity == "sketch":
            updates, nothing = None, jnp.zeros((1, jobs.client.shape[0]))
            trained, moves = train_and_compare(
                "sketch", sender, key, federation, jobs, hyper, Mixing(nothing, jobs.start)
            )
            loss, finite = trained.kept.loss, trained.kept.finite
        else:
            updates = sender.fit(key, federation, jobs, hyper)
            loss, moves, finite = updates.loss, updates.delta, usable(updates.delta)
            updates = updates._replace(delta=hyper["lr"] * moves) if by_gradient else updates
        loss = (
            loss
            if by_gradient
            else solver.losses(federation, jobs.start, jobs.client, jobs.mask)[0]
        )
        return (
            -moves,
            loss,
            jobs.mask & finite & jnp.isfinite(loss),
            updates,
        )  # −Δ/η: the factor 1/η changes no cosine

    def round(
        key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        everyone, bill = (
            jnp.zeros_like(cohort.ids),
            traffic(cohort, floats_up=config.floats(federation.classes)),
        )
        there = jnp.where(cohort.mask, cohort.ids, len(state.counts))
        counts = count_labels(solver, federation, cohort)
        state = state._replace(counts=state.counts.at[there].set(counts, mode="drop"))
        jobs = jobs_from(cohort, state.models, everyone)
        *received, updates = collect(key, federation, jobs, hyper)
        mix, loss0, diag = decide(config, key, state, federation, cohort, received, hyper)
        missing = lambda finite: jnp.sum(cohort.mask & ~(received[2] & finite), dtype=jnp.int32)  # noqa: E731
        if updates is None:  # once more, now that each one's weight is known
            trained = train_and_mix(local, key, federation, jobs, hyper, Mixing(mix, state.models))
            trained = trained._replace(
                mixed=trained.mixed._replace(nonfinite=missing(trained.kept.finite))
            )
            new = trained.mixed.new
            info = report_trained(
                federation, cohort, trained, everyone, new - state.models, bill, **diag
            )
        else:
            mixed = mix_updates(
                mix, updates.delta, state.models, solver.rule(key, hyper)
            )  # w ← w − η Σ p_n g_n
            mixed, new = mixed._replace(nonfinite=missing(usable(updates.delta))), mixed.new
            info = report(
                federation,
                cohort,
                updates,
                state.models[everyone],
                new[everyone],
                mixed,
                bill,
                **diag,
            )
        return state._replace(models=new, loss0=loss0, reached=loss0 <= hyper["l_star"]), info

    def extras(state: State) -> dict[str, Array]:
        if bool(state.reached):  # CCS then puts everybody within a right angle together
            warnings.warn(
                f"ccs_rfedavg: the loss of the first round, {float(state.loss0):.3g}, is not "
                "above l_star",
                stacklevel=2,
            )
        return {"loss_start": state.loss0}

    return Method(
        init,
        round,
        lambda state: (state.models, jnp.zeros(len(state.counts), jnp.int32)),
        setup,
        extras=extras,
    )


def decide(
    config: Config,
    key: Array,
    state: State,
    federation: Federation,
    cohort: Cohort,
    received: list[Array],
    hyper: Hyper,
) -> tuple[Array, Array, dict[str, Array]]:
    """Return (f32[1, S] the mixing matrix, f32[] l_0, the diagnostics), from what `collect` has
    returned."""
    (sent, losses, there), counts, size = (
        received,
        state.counts[cohort.ids],
        sizes(federation, cohort),
    )
    loss = mean_loss(federation, cohort._replace(mask=there), losses)
    loss0 = jnp.where(jnp.isnan(state.loss0), loss, state.loss0)
    epsilon = ccs_threshold(loss, loss0, hyper["l_star"], hyper["theta"])  # eq. 7
    if config.weights == "fedavg":
        number, labels = 1, jnp.where(there, 0, -1)
    elif config.clustering == "kmeans":
        number = config.clusters
        labels = kmeans(
            keys.fold(key, "kmeans"), sent, number, there, federation.uid[cohort.ids]
        ).labels
    else:
        number, labels = (
            len(there),
            cover(cosine_matrix(sent, mask=there), epsilon, there).labels,
        )  # Algorithm 1
    shares, active = simplex.class_shares(labels, counts, number)
    if config.weights == "fedavg":
        p, mix = jnp.ones(1), weights_by(jnp.zeros_like(labels), cohort.mask, size, 1)
    else:
        level, optimal = (
            simplex.imbalance_level(counts, state.counts.sum()),
            config.weights == "optimal",
        )
        p = (
            simplex.balance(shares, active)
            if optimal
            else simplex.rfedavg_weights(labels, level, size, number)
        )  # eq. 16
        mix = jnp.matmul(
            p[None], weights_by(labels, there, size, number), precision=jax.lax.Precision.HIGHEST
        )
    clusters = jnp.sum(members(labels, number).any(axis=1), dtype=jnp.int32)
    diag = {
        "clusters": clusters,
        "participants": cohort.ids,
        "participant_labels": labels,
        "p": p,
        "epsilon": epsilon,
        "loss": loss,
    }
    return mix, loss0, diag | simplex.describe(p, shares)


ccs_rfedavg = Entry(Config, make)
