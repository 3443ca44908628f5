"""FedDrift (Jothimurugesan et al. 2023): clients whose loss rises begin models of their own; models
that do as well on each other's clients become one.

Rounds are divided into time steps of `every` rounds. In the first round of a step in which it takes
part, a client receives the models that were there before the step and finds its loss on each. It
takes the best one. If its least loss has risen by more than `delta` since it last looked, it is
isolated: it trains a new model alone until the step ends. All others stay with their model through
the step. At the beginning of a step, models become one by complete linkage as long as their
distance D(i, j) = max(L_ij − L_ii, L_ji − L_jj, 0) is at most `delta`. L_ij is the mean loss of
model i on the data of those participants of this round that have taken model j; a model that nobody
took is not compared. FedAvg trains each model.

A model that nobody uses stays, as its data may come back. If there is no room for a new one
(`max_clusters`), the one that is unused for the longest time goes; if all are in use, the client
stays with its best one (diagnostic `without_room`). A client that has not taken part yet is scored
with the model that has the least loss on its data.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.choose import least_loss
from cfljax.kernels.mix import members, usable
from cfljax.kernels.unite import complete_linkage
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import Ask, Prepared, State, join, option
from cfljax.types import Array, Quantity

ABOUT = About(
    title="FedDrift",
    family="clustered",
    authors="Jothimurugesan et al.",
    year=2023,
    paper="Federated learning under distributed concept drift",
    venue="AISTATS",
    link="https://arxiv.org/abs/2206.00799",
    models="1 down, 1 up; K down every few rounds",
    communication="one model down, one update up. In the first round of a time step also all "
    "models down and one loss for each up, and one more model down for clients "
    "with a new or merged one",
)
READINGS = (
    Reading(
        "Time steps",
        paper="new data arrive at each step, and a step has many rounds",
        here="ten rounds",
        option="every",
    ),
    Reading(
        "Data",
        paper="a model trains on its clients' data of all steps",
        here="on the data of the round",
    ),
    Reading(
        "Start",
        paper="one model for all; its program's FedDrift begins with one for each client",
        here="one; or one for each client when it first takes part, up to `max_clusters`",
        option='start = "each"',
    ),
    Reading(
        "Merging",
        paper="complete linkage, up to delta; its program has another threshold, average "
        "linkage, and isolation for several steps",
        here="as in the paper",
    ),
    Reading(
        "Drifts",
        paper="each client that drifts begins a model, or all in a step share one and nothing is "
        "merged (FedDrift-Eager)",
        here="the first",
    ),
    Reading(
        "New models",
        paper="initialised; its program continues from the client's best one",
        here="w_0, so that models that merge have a common start",
    ),
    Reading(
        "Measure",
        paper="losses; its program compares accuracies",
        here="losses",
    ),
    Reading(
        "Merged models",
        paper="their mean by the sizes of their data; its program counts clients and steps",
        here="by the samples of their current clients",
    ),
    BY_SAMPLES,
)


class DriftMemory(NamedTuple):
    """What is remembered besides the models. Steps are time steps of `every` rounds; −1: never."""

    # f32[d]: w_0
    first: Array
    # i32[K]: the step in which each model was begun
    born: Array
    # i32[K]: the last step in which a client took it
    used: Array
    # i32[C]: the last step in which each client compared the models
    looked: Array
    # f32[C]: its least loss then; NaN: it has never compared
    loss: Array


class LossComparison(NamedTuple):
    """What the participants find when they compare the models."""

    # bool[S]: who looks in this round
    who: Array
    # bool[K]: the models that they compare
    there: Array
    # f32[K, S]; 0 for those who do not look
    losses: Array
    # i32[S]: the model with the least loss; for those who do not look the one that they have
    best: Array
    # f32[S]: its loss
    least: Array
    # bool[S]: who is to begin a new model
    drifts: Array


@dataclasses.dataclass(frozen=True)
class FedDrift(FedAvg):
    """FedDrift: clients whose loss rises begin new models; models that fit each other's clients
    merge.

    Participants look at all models f32[K, d] once in each time step of `every` rounds. One whose
    least loss has risen by more than `delta` gets a new model, which starts at w_0; the others take
    the model of their least loss. At the start of a step, models at most `delta` apart (complete
    linkage of D(i, j), f32[K, K]) become one. Between, FedAvg trains each model on its clients by
    `average`. `max_clusters` is K, and `start` says whether all start with one model or each with
    its own.
    """

    diagnostics = {
        "models": Quantity("models in use"),
        "isolated": Quantity("participants that begin a model"),
        "merged": Quantity("models that merge into others"),
        "without_room": Quantity("participants that found no free model"),
    }
    choice = Prepared()
    reveals = "the choice by loss"

    max_clusters: int = option(16, "largest number of models at a time", low=2)
    delta: float = option(
        0.1,
        "rise of the loss that begins a model; largest distance of merged models",
        low=0.0,
        traced=True,
        search=(0.02, 0.5, "log"),
    )
    every: int = option(10, "rounds of a time step", low=1)
    start: str = option(
        "one",
        "all clients begin with one model, or each with its own",
        choices=("one", "each"),
        search=("one", "each"),
        was="begin",
    )

    def first(self, ask: Ask, state: State) -> State:
        """Make one model, which nobody has yet."""
        nobody = jnp.full_like(state.labels, -1)
        never = jnp.full(state.clusters, -1, jnp.int32)
        unknown = jnp.full(nobody.shape, jnp.nan)
        memory = DriftMemory(state.models[0], never, never, nobody, unknown)
        return state._replace(labels=nobody, memory=memory)

    def prepare(self, ask: Ask, state: State) -> State:
        """Let participants compare the models, and merge and begin models."""
        step, round_of_step = jnp.divmod(ask.cohort.round, self.every)
        merges = (round_of_step == 0) & (step > 0)
        look = self.compare(ask, state, step)
        state = record_losses(ask, state, look, step)
        # Losses of participants that drift do not count in distances, so models merge first
        root = merge_map(ask, look, jnp.where(merges, ask.hyper["delta"], -1.0))
        own = root[look.best]
        state = merge_models(ask, state, look, root)
        state, which, isolated = begin_models(ask, state, look._replace(best=own), step)

        # One more model for those that get a new or a merged one
        is_merged = jnp.sum(root[None, :] == own[:, None], axis=1) > 1
        ask.download(state.models, who=isolated | (look.who & is_merged))
        # One loss for each model; of one model there is nothing to compare
        compared = jnp.sum(look.there, dtype=jnp.int32)
        ask.upload(1, each=jnp.where(compared > 1, compared, 0), who=look.who & merges)
        counted = {
            "models": state.active_mask,
            "isolated": isolated,
            "without_room": look.drifts & ~isolated,
            "merged": root != jnp.arange(state.clusters),
        }
        ask.show(**{name: jnp.sum(each, dtype=jnp.int32) for name, each in counted.items()})
        return state

    def compare(self, ask: Ask, state: State, step: Array) -> LossComparison:
        """Let the participants that have not done so in this time step, i32[], find their losses on
        the models that were there before it."""
        ids = ask.cohort.ids
        known = state.memory
        who = ask.cohort.mask & (known.looked[ids] < step)
        there = state.active_mask & (known.born < step)
        losses = ask.of(who, there).losses(state.models)
        compared = jnp.where(there[:, None], losses, jnp.nan)
        # One on whose data all losses are NaN takes the first model
        has_loss = jnp.any(~jnp.isnan(compared), axis=0)
        best = jnp.where(has_loss, least_loss(compared), jnp.argmax(there))
        best = jnp.where(who, best, jnp.maximum(state.labels[ids], 0)).astype(jnp.int32)
        least = jnp.take_along_axis(losses, best[None], axis=0)[0]
        begins = (known.looked[ids] < 0) & (self.start == "each")
        # False for the first comparison, as there is no loss before it (NaN)
        rises = least > known.loss[ids] + ask.hyper["delta"]
        return LossComparison(who, there, losses, best, least, who & (begins | rises))


def record_losses(ask: Ask, state: State, look: LossComparison, step: Array) -> State:
    """Return the state after those that have compared the models in time step `step` i32[] have
    taken the best one, and their least loss is noted."""
    known = state.memory
    known = known._replace(
        looked=ask.cohort.write(known.looked, step, look.who),
        loss=ask.cohort.write(known.loss, look.least, look.who),
    )
    return state._replace(labels=join(state.labels, ask.cohort, look.best), memory=known)


def merge_map(ask: Ask, look: LossComparison, delta: Array) -> Array:
    """Return i32[K]: for each model the lowest of those that it becomes one with. `delta` f32[]:
    the largest distance; below 0 none is merged."""
    k = look.there.shape[0]
    finite = jnp.all(jnp.isfinite(look.losses) | ~look.there[:, None], axis=0)
    counted = look.who & ~look.drifts & finite
    weight = jnp.where(members(look.best, k, counted), ask.sizes, 0.0)
    total = jnp.sum(weight, axis=1)
    losses = jnp.where(look.there[:, None] & counted, look.losses, 0.0)
    # L_ij
    mean = jnp.matmul(losses, weight.T, precision=HIGHEST) / jnp.maximum(total, 1.0)
    # D(i, j)
    worse = mean - jnp.diagonal(mean)[:, None]
    distance = jnp.maximum(jnp.maximum(worse, worse.T), 0.0)
    # A model that nobody took is not compared
    distance = jnp.where(jnp.outer(total, total) > 0, distance, jnp.inf)
    return complete_linkage(distance, delta)


def merge_models(ask: Ask, state: State, look: LossComparison, root: Array) -> State:
    """Return the state after the models of each union have become their mean, by the samples of the
    clients that stay with them. `root` i32[K]: the lowest model of each one's union."""
    models = state.models
    labels = state.labels
    k = state.clusters
    leaves = jnp.where(look.drifts, ask.cohort.ids, labels.shape[0])
    count = jnp.asarray(ask.federation.train.count, jnp.float32)
    count = count.at[leaves].set(0.0, mode="drop")
    samples = jnp.where(members(labels, k), count, 0.0).sum(axis=1)
    joins = members(root, k)
    weight = jnp.where(joins, samples, 0.0)
    shares = weight / jnp.maximum(weight.sum(axis=1, keepdims=True), 1.0)
    finite = jnp.where(usable(models)[:, None], models, 0.0)
    mean = jnp.matmul(shares, finite, precision=HIGHEST)
    # A model alone stays as it is to the bit
    models = jnp.where((joins.sum(axis=1) > 1)[:, None], mean, models)
    labels = jnp.where(labels >= 0, root[jnp.maximum(labels, 0)], -1)
    is_root = root == jnp.arange(k)
    return state._replace(models=models, labels=labels, active=state.active_mask & is_root)


def begin_models(
    ask: Ask, state: State, look: LossComparison, step: Array
) -> tuple[State, Array, Array]:
    """Return (the state after clients that drift have begun new models in time step `step` i32[],
    i32[S] the model of each participant, bool[S] who has a new one). Free slots are taken first,
    then slots of models that no client has, the one unused for the longest time first."""
    known = state.memory
    cohort = ask.cohort
    k = state.clusters
    # 0: free, 1: unused, 2: in use
    has_members = members(state.labels, k).any(axis=1)
    kind = jnp.where(state.active_mask, 1 + has_members, 0)
    order = jnp.lexsort((known.used, kind))
    room = jnp.sum(kind < 2)
    # Slots are given in the order of identities, whatever the order of the participants
    last = jnp.iinfo(jnp.int32).max
    by_uid = jnp.argsort(jnp.where(look.drifts, ask.federation.uid[cohort.ids], last), stable=True)
    rank = jnp.argsort(by_uid)
    slot = order[jnp.minimum(rank, k - 1)]
    isolated = look.drifts & (rank < room)
    at = jnp.where(isolated, slot, k)
    which = jnp.where(isolated, slot, look.best).astype(jnp.int32)
    is_used = members(which, k, cohort.mask).any(axis=1)
    known = known._replace(
        born=known.born.at[at].set(step, mode="drop"), used=jnp.where(is_used, step, known.used)
    )
    after = state._replace(
        models=state.models.at[at].set(known.first, mode="drop"),
        labels=join(state.labels, cohort, which),
        active=state.active_mask.at[at].set(True, mode="drop"),
        memory=known,
    )
    return after, which, isolated
