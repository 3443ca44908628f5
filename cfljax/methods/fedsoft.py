"""FedSoft (Ruan & Joe-Wong 2022): clients whose data come from several clusters train one personal
model each, pulled towards the cluster models in proportion to what they have of each.

Every `tau` rounds each client i estimates u_is, the share of its training samples on which cluster
model c_s has the least loss of all cluster models. A participant trains its personal model w_i on
its own loss plus lam/2 · Σ_s u_is ‖w_i − c_s‖², which is one proximal term to the mean Σ_s u_is
c_s. A cluster model becomes the mean of the personal models of clients drawn with odds v_is ∝ u_is
n_i. Only one model is trained and sent by a client, however many clusters there are. The personal
model is scored; the cluster model with the client's largest share gives the diagnostic
`accuracy_cluster`.

A newcomer, as any client that has not trained yet, is scored with the cluster model of its largest
share u_is, which is estimated from its own training samples every `tau` rounds like all others (it
sends nothing). A client without training samples has the first cluster's.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.choose import select_by_weight
from cfljax.kernels.mix import replace_by, sum_by
from cfljax.lazy import jax, jnp
from cfljax.registry import Entry
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    PersonalConfig,
    RowUpdates,
    Solver,
    first_model,
    first_models,
    jobs_from,
    mean_over_samples,
    need_clients,
    option,
    round_of_rows,
)
from cfljax.types import (
    Array,
    Cohort,
    Federation,
    Hyper,
    Info,
    LocalStep,
    Method,
    Model,
    Quantity,
    Traffic,
)

ABOUT = About(
    title="FedSoft",
    family="soft",
    authors="Ruan and Joe-Wong",
    year=2022,
    paper="FedSoft: soft clustered federated learning with proximal local updating",
    venue="AAAI",
    link="https://arxiv.org/abs/2112.06053",
    models="K down, 1 up",
    communication="K models down, one model up if a cluster draws it; K models down and K floats "
    "up for every client in each round of estimates",
)
READINGS = (
    Reading(
        "Clients of a cluster",
        paper="each cluster draws a number of clients with odds v_is",
        here="a share of the round's participants without replacement (its program), averaged "
        "equally",
    ),
    Reading(
        "Draw size",
        paper="a fixed number for each cluster (15 in the published program)",
        here="a share of the participants, rounded up",
        option="selected",
    ),
    Reading(
        "Least share",
        paper="a small σ if a client has no sample of a cluster; its shares then sum to more "
        "than 1",
        here="shares have this minimum and are divided by their sum",
        option="floor",
    ),
    Reading(
        "Who estimates",
        paper="all clients, every τ rounds",
        here="the same, and a client in the round in which it arrives",
        option="tau",
    ),
    Reading(
        "Start of local training",
        paper="any; its program continues from the client's last personal model",
        here="the same, or Σ_s u_is c_s",
        option='start = "centres"',
    ),
    Reading(
        "Optimiser",
        paper="not said; its program keeps one Adam per client for the whole run",
        here="the run's, reset in each round",
        option="train.optimizer_state",
    ),
    Reading(
        "Initial models",
        paper="random",
        here="clients start at w_0, clusters at independent draws",
    ),
    Reading(
        "Personal model",
        paper="the client's",
        here="as the server received it, after `train.compress` or `train.privacy`",
    ),
)


@dataclasses.dataclass(frozen=True)
class Config(PersonalConfig):
    """Options of FedSoft.

    `clusters` is K, `tau` the rounds between estimates of the shares, `lam` the pull of personal
    models to the cluster models. `selected`, `floor` and `start` are readings of the paper.
    """

    diagnostics = {
        "mixture": Quantity("share of each cluster in each client", "share"),
        "centres": Quantity("the clusters' models"),
        "accuracy_cluster": Quantity("accuracy of each client's main cluster model", "share"),
    }
    server_models = "centres"
    reveals = "the estimate of the clients' shares"

    clusters: int = option(2, "number of cluster models", low=1, search=(2, 3, 4, 6))
    tau: int = option(2, "rounds between estimates of the shares", low=1)
    start: str = option(
        "own",
        "train from the last personal model, or from the mean of cluster models",
        choices=("own", "centres"),
    )
    lam: float = option(
        0.1,
        "strength of the pull of personal models to the cluster models",
        low=0.0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )
    selected: float = option(
        0.6, "share of the participants that each cluster draws", above=0.0, high=1.0, traced=True
    )
    floor: float = option(
        1e-4, "smallest share of a cluster in a client's mixture", above=0.0, high=1.0, traced=True
    )

    @property
    def without(self) -> dict[str, str]:
        """Refuse `train.privacy` if personal models are the start: whole ones are summed then."""
        why = (
            'with start = "own" whole personal models are summed, but only their last change is '
            "clipped"
        )
        return super().without | ({"privacy": why} if self.start == "own" else {})

    def releases(self, rounds: int) -> tuple[int, int]:
        """Count the noised sums of a run: a participant can be in the sums of all clusters."""
        return rounds * self.clusters, 0


class State(NamedTuple):
    """The clusters' models, and the models and shares of the clients."""

    # f32[K, d]: c_s
    centres: Array
    # f32[C, d]: w_i
    rows: Array
    # bool[C]: has trained its w_i
    drawn: Array
    # f32[C, K]: u_is; each row sums to one
    shares: Array

    @property
    def largest(self) -> Array:
        """i32[C]: the cluster of which each client has most; in a tie the first of them."""
        return jnp.argmax(self.shares, axis=1).astype(jnp.int32)


def make(config: Config, model: Model, solver: Solver) -> Method[State]:
    """FedSoft: personalized models pulled to several cluster models, by the client's share of each.

    A round: every `config.tau` rounds each client estimates its shares u_is of the clusters, f32[C,
    K], by which cluster model has the least loss on each of its samples. A participant trains its
    personal model w_i on f_i(w) + lam/2 · Σ_s u_is ‖w − c_s‖². A cluster model c_s becomes the mean
    of the w_i of participants that it draws with odds u_is n_i.

    Args:
        config: the options; `selected` is the share of the participants that a cluster draws,
            `floor` the least share u_is, and `start` where local training begins.
        model: the network, whose parameters are a vector f32[d].
        solver: local training, to which the method adds the pull.

    Returns:
        The method, whose state is a `State`: the c_s f32[K, d], the w_i f32[C, d] and the shares.
    """
    k = config.clusters
    pulling = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["lam"]))

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        need_clients(federation, k, "fedsoft")
        return {}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        clients = federation.clients
        w = first_model(key, model)
        return State(
            # The first of the k + 1 models is w, which clients start with
            centres=first_models(key, model, k + 1)[1:],
            rows=jnp.tile(w, (clients, 1)),
            drawn=jnp.zeros(clients, bool),
            shares=jnp.full((clients, k), 1 / k),
        )

    def train(ask: Ask, state: State, rows: Array) -> RowUpdates:
        u = state.shares[ask.cohort.ids]
        mix = draw_for_clusters(ask, u)
        # A participant that no cluster has drawn does not train
        drawn = ask.of(jnp.any(mix > 0, axis=0))
        drawn.download(state.centres, each=k)
        # The local loss has one proximal term for each cluster; as the shares sum to 1, all
        # together are one term to the mean of the cluster models
        centre = jnp.matmul(u, state.centres, precision=HIGHEST)
        mine = jnp.arange(len(rows), dtype=jnp.int32)
        start = rows if config.start == "own" else centre
        jobs = jobs_from(drawn.cohort, start, mine, anchor=centre, anchor_of=mine)
        updates = pulling.fit(ask.key, ask.federation, jobs, ask.hyper)
        drawn.upload()
        # The personal models become what the server has received, wherever training started
        received = start + updates.delta
        change = jnp.where(jobs.mask[:, None], received - rows, 0.0)
        return RowUpdates(jobs, updates, rows, change, mix)

    def merge(ask: Ask, before: State, after: State, done: RowUpdates) -> tuple[State, Array]:
        assert done.more is not None
        # Whole models are averaged, so that clusters do not depend on where clients started
        received = done.jobs.start + done.updates.delta
        rule = solver.rule(ask.key, ask.hyper)
        mean, finite = sum_by(rule, done.more, received)
        centres = replace_by(done.more, mean, finite, before.centres, rule).new
        # The report says how far each w_i is from its client's main cluster model
        return after._replace(centres=centres), centres[before.largest[ask.cohort.ids]]

    train_round = round_of_rows(solver, train, merge)

    def round(
        key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        # Clients that have not arrived are estimated along with all others, but send nothing yet
        due = federation.trains & (
            (cohort.round % config.tau == 0) | (federation.arrive == cohort.round)
        )
        shares = estimate_shares(solver, federation, state, due, hyper["floor"])
        state = state._replace(shares=shares)
        after, info = train_round(key, state, federation, cohort, hyper)
        asked = due & (federation.arrive <= cohort.round)
        everyone = jnp.arange(federation.clients, dtype=jnp.int32)
        clients = Cohort(everyone, asked, jnp.ones(everyone.shape), cohort.round)
        ask = Ask(solver, key, federation, clients, hyper)
        ask.download(state.centres, each=k)
        # Their shares
        ask.upload(k)
        return after, info._replace(traffic=Traffic(*map(jnp.add, info.traffic, ask.bill())))

    def models(state: State) -> tuple[Array, Array]:
        own = jnp.where(state.drawn[:, None], state.rows, state.centres[state.largest])
        return own, jnp.arange(own.shape[0], dtype=jnp.int32)

    return Method(
        init,
        round,
        models,
        setup=setup,
        also=lambda state: {"cluster": (state.centres, state.largest)},
        chooses=False,
        extras=lambda state: {"mixture": state.shares, "centres": state.centres},
        shares=lambda state, federation, hyper: state.shares,
    )


def estimate_shares(
    solver: Solver, federation: Federation, state: State, who: Array, floor: Array
) -> Array:
    """Estimate the shares of some clients, and return the shares of all, f32[C, K].

    Args:
      solver: Computes the losses.
      federation: The clients' data.
      state: The cluster models, and the shares so far.
      who: bool[C] the clients whose shares are estimated.
      floor: f32[] no share is below this number before they are divided by their sum.
    """

    def mark_best(losses: Array, y: Array, owner: Array) -> Array:
        # In a tie the first cluster has the sample; a model that fails has none
        best = jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses), axis=0)
        return jax.nn.one_hot(best, losses.shape[0], axis=0)

    share = mean_over_samples(solver, federation, state.centres, who, mark_best)
    share = jnp.maximum(share, floor)
    return jnp.where(who[:, None], share / jnp.sum(share, axis=1, keepdims=True), state.shares)


def draw_for_clusters(ask: Ask, u: Array) -> Array:
    """Draw the participants of each cluster, with odds v_is ∝ u_is n_i, and return the weights of
    the participants in its mean, f32[K, S]: those that are drawn count equally.

    Args:
      ask: The participants.
      u: f32[S, K] their shares.
    """
    mask = ask.cohort.mask
    odds = jnp.where(mask, u.T * ask.sizes, 0.0)
    uid = ask.federation.uid[ask.cohort.ids]
    drawn = select_by_weight(ask.key, odds, mask, uid, ask.hyper["selected"]).astype(jnp.float32)
    # A cluster that has drawn nobody has a row of zeros
    return drawn / jnp.maximum(jnp.sum(drawn, axis=1, keepdims=True), 1e-30)


fedsoft = Entry(Config, make)
