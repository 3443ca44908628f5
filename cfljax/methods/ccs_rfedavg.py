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
from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.cover import ccs_threshold, cover
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.mix import members, mix_updates, usable, weights_by
from cfljax.lazy import jnp
from cfljax.local.reports import mean_loss, report, report_trained
from cfljax.local.rounds import Mixing, jobs_from, sizes, train_and_mix
from cfljax.local.solver import OneGradient, Solver
from cfljax.registry import Entry
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    MethodConfig,
    count_labels,
    first_model,
    need_clients,
    option,
    similarity,
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
        "Loss in the threshold (eq. 7)",
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
        paper='main classes are "normal distribution numbers with a mean of 5 and variance of 10", '
        "limited to 1 to 10",
        here="rounded and clipped, so that both ends collect what is beyond; a variance of 10 is a "
        "standard deviation of 3.16. experiments/recipes.py draws them",
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
    server_models = "models"
    places_unlabelled = True
    # Clusters are of the participants of a round
    needs_clients = False
    reveals = "the clustering by updates and class counts"
    counts_labels = "counts samples by label, so they need one class each"

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
        """Refuse the options of local training if one gradient is sent."""
        if self.local != "gradient":
            return super().without
        why = 'with local = "gradient" it sends one plain gradient'
        names = ("momentum", "weight_decay", "optimizer", "compress.feedback")
        return super().without | dict.fromkeys(names, why)

    def floats(self, classes: int) -> int:
        """Return how many numbers each participant sends beside its gradient, with `classes`
        classes: I_k or its class counts for the weights, and its loss for eq. 7."""
        for_weights = {"fedavg": 0, "rfedavg": 1, "optimal": classes}[self.weights]
        sends_loss = self.clustering == "ccs" and self.weights != "fedavg"
        return for_weights + sends_loss


class State(NamedTuple):
    """The global model, and what the server knows of losses and classes."""

    # f32[1, d]
    models: Array
    # f32[]: l_0 of eq. 7; NaN before the first round that had participants
    loss0: Array
    # bool[]: whether l_0 ≤ l_*, so that the threshold of eq. 7 is not defined
    reached: Array
    # f32[C, M]: D_k^m, the samples of each class, as each client last reported them
    counts: Array


class Received(NamedTuple):
    """The messages of a round's participants."""

    # f32[S, d]: the gradients g_k up to a positive factor, or sketches of them f32[S, m]
    gradients: Array
    # f32[S]: the mean losses at the global model
    losses: Array
    # bool[S]: whether the message arrived and is finite
    there: Array
    # The updates: the steps −η g_k, or what local training has moved; None: only sketches of them
    # are kept (`similarity = "sketch"`)
    updates: Updates | None
    # i32[S]: the local steps that the participants have done
    steps: Array


class Decision(NamedTuple):
    """What the server decides from the messages."""

    # f32[1, S]: the weight of each participant in the new model
    mix: Array
    # f32[]: l_0 of eq. 7
    loss0: Array
    diag: dict[str, Array]


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
    trainer = OneGradient(**vars(solver)) if config.local == "gradient" else solver

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        if config.clustering == "kmeans" and config.weights != "fedavg":
            need_clients(federation, config.clusters, "ccs_rfedavg")
        return {"counts": labels_seen(federation)}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        return State(
            models=first_model(key, model)[None],
            loss0=jnp.float32(jnp.nan),
            reached=jnp.array(False),
            counts=setup["counts"],
        )

    def round(
        key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        everyone = jnp.zeros_like(cohort.ids)
        ask = Ask(solver, key, federation, cohort, hyper)
        ask.upload()
        ask.upload(config.floats(federation.classes))
        counts = count_labels(solver, federation, cohort)
        state = state._replace(counts=cohort.write(state.counts, counts))
        jobs = jobs_from(cohort, ask.download(state.models), everyone)
        received = collect(config, solver, key, federation, jobs, hyper)
        mix, loss0, diag = decide(config, key, state, federation, cohort, received, hyper)

        # Messages that the clustering leaves out have no weight in `mix`, but are counted, too
        def count_missing(finite: Array) -> Array:
            return jnp.sum(cohort.mask & ~(received.there & finite), dtype=jnp.int32)

        if received.updates is None:
            # Once more, now that each one's weight is known
            trained = train_and_mix(
                trainer, key, federation, jobs, hyper, Mixing(mix, state.models)
            )
            missing = count_missing(trained.kept.finite)
            trained = trained._replace(
                mixed=trained.mixed._replace(nonfinite=missing),
                steps=trained.steps + received.steps,
            )
            new = trained.mixed.new
            moved = new - state.models
            info = report_trained(federation, cohort, trained, everyone, moved, ask.bill(), **diag)
        else:
            # w ← w − η Σ p_n g_n
            rule = solver.rule(key, hyper)
            mixed = mix_updates(mix, received.updates.delta, state.models, rule)
            mixed = mixed._replace(nonfinite=count_missing(usable(received.updates.delta)))
            new = mixed.new
            start, end = state.models[everyone], new[everyone]
            info = report(
                federation, cohort, received.updates, start, end, mixed, ask.bill(), **diag
            )
        return state._replace(models=new, loss0=loss0, reached=loss0 <= hyper["l_star"]), info

    def models(state: State) -> tuple[Array, Array]:
        return state.models, jnp.zeros(len(state.counts), jnp.int32)

    def extras(state: State) -> dict[str, Array]:
        # CCS then puts everybody within a right angle together
        if bool(state.reached):
            warnings.warn(
                f"ccs_rfedavg: the loss of the first round, {float(state.loss0):.3g}, is not "
                "above l_star",
                stacklevel=2,
            )
        return {"loss_start": state.loss0}

    return Method(init, round, models, setup, extras=extras)


def collect(
    config: Config, solver: Solver, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper
) -> Received:
    """Let the participants send their gradients, or the updates of their training, and their losses
    at the global model.

    Args:
      config: The method's options.
      solver: How participants train.
      key: The round's key.
      federation: The clients' data.
      jobs: The participants, with the global model as their start.
      hyper: The numbers of the run.
    """
    by_gradient = config.local == "gradient"
    sender: Solver = solver
    if by_gradient:
        # A step of length 1 is the gradient itself
        sender = OneGradient(**vars(solver)).with_step(lambda _: LocalStep(jnp.float32(1)))
    updates = None
    if config.similarity == "sketch":
        # Only sketches are wanted, so the updates have no weight in any model
        nothing = Mixing(jnp.zeros((1, jobs.client.shape[0])), jobs.start)
        trained, moves = train_and_compare("sketch", sender, key, federation, jobs, hyper, nothing)
        loss, finite = trained.kept.loss, trained.kept.finite
        steps = trained.steps
    else:
        updates = sender.fit(key, federation, jobs, hyper)
        loss = updates.loss
        steps = updates.steps
        moves = updates.delta
        finite = usable(updates.delta)
        if by_gradient:
            updates = updates._replace(delta=hyper["lr"] * moves)
    if not by_gradient:
        # The loss of training is a mean over the models on the way
        loss = solver.losses(federation, jobs.start, jobs.client, jobs.mask)[0]
    there = jobs.mask & finite & jnp.isfinite(loss)
    # With local training g_k is −Δ/η; the factor 1/η changes no cosine
    return Received(-moves, loss, there, updates, steps)


def decide(
    config: Config,
    key: Array,
    state: State,
    federation: Federation,
    cohort: Cohort,
    received: Received,
    hyper: Hyper,
) -> Decision:
    """Cluster the participants and weigh them.

    Args:
      config: The method's options.
      key: The round's key.
      state: The state, with the class counts of this round's participants.
      federation: The clients' data.
      cohort: The participants.
      received: Their messages.
      hyper: The numbers of the run.
    """
    there = received.there
    counts = state.counts[cohort.ids]
    size = sizes(federation, cohort)
    loss = mean_loss(federation, cohort._replace(mask=there), received.losses)
    loss0 = jnp.where(jnp.isnan(state.loss0), loss, state.loss0)
    # eq. 7
    epsilon = ccs_threshold(loss, loss0, hyper["l_star"], hyper["theta"])
    if config.weights == "fedavg":
        number = 1
        labels = jnp.where(there, 0, -1)
    elif config.clustering == "kmeans":
        number = config.clusters
        # A key of its own: K-means draws its first centres
        kmeans_key = keys.fold(key, "kmeans")
        uid = federation.uid[cohort.ids]
        labels = kmeans(kmeans_key, received.gradients, number, there, uid).labels
    else:
        # Algorithm 1; each participant may be a cluster of its own
        number = len(there)
        labels = cover(cosine_matrix(received.gradients, mask=there), epsilon, there).labels

    shares, active = simplex.class_shares(labels, counts, number)
    if config.weights == "fedavg":
        p = jnp.ones(1)
        # As in FedAvg, a message that is not finite keeps its weight, as a zero update
        mix = weights_by(jnp.zeros_like(labels), cohort.mask, size, 1)
    else:
        # I_k of eq. 17
        level = simplex.imbalance_level(counts, state.counts.sum())
        if config.weights == "optimal":
            # eq. 16
            p = simplex.balance(shares, active)
        else:
            p = simplex.rfedavg_weights(labels, level, size, number)
        # A participant has its share of the cluster's samples, times the cluster's weight
        inside = weights_by(labels, there, size, number)
        mix = jnp.matmul(p[None], inside, precision=HIGHEST)
    diag = {
        "clusters": jnp.sum(members(labels, number).any(axis=1), dtype=jnp.int32),
        "participants": cohort.ids,
        "participant_labels": labels,
        "p": p,
        "epsilon": epsilon,
        "loss": loss,
    }
    return Decision(mix, loss0, diag | simplex.describe(p, shares))


ccs_rfedavg = Entry(Config, make)
