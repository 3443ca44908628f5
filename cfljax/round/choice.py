"""How participants of a round of `Clustered` get their cluster: they keep it, choose it by the
method's `score`, or find it prepared. A choice owns all that follows from it: which models they are
sent, what it reveals, what cannot be combined with it, and which cluster clients have at first."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Protocol

from cfljax import keys
from cfljax.kernels.choose import reseed_empty
from cfljax.lazy import jnp
from cfljax.local.rounds import choose_and_train, jobs_from
from cfljax.round.common import need_clients
from cfljax.round.first_clusters import FirstClusters, OneCluster
from cfljax.round.local import AfterTraining, LocalTraining

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.round.ask import Ask
    from cfljax.round.local import TrainingMethod
    from cfljax.round.state import State
    from cfljax.types import Array, Federation, Hyper


class ChoosingMethod(Protocol):
    """What a choice can use of the method: its functions, as `Clustered` has them."""

    own_score: bool
    """As `Clustered.own_score`."""

    @property
    def local(self) -> LocalTraining:
        """As `Clustered.local`."""

    def score(self, ask: Ask, state: State) -> Array:
        """As `Clustered.score`."""

    def score_range(self, hyper: Hyper) -> Array | float:
        """As `Clustered.score_range`."""

    def join(self, ask: Ask, state: State) -> Array:
        """As `Clustered.join`."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Participants keep the cluster that they have. One without a cluster joins as the method's
    `join` says: the cluster with the least `score`. A subclass finds clusters otherwise in
    `choose`, and a method has it as its attribute `choice`.

    Example:
        ```python
        class Alternating(Choice):
            def choose(self, method, ask, state):
                return (ask.cohort.ids + ask.cohort.round) % state.clusters
        ```
    """

    assigns_clusters: ClassVar[bool] = False
    """Whether it gives clients their clusters; False: `begin` or `regroup` does, and it gives them
    to late clients alone. A choice with a `choose` of its own does, unless it says so."""
    first_clusters: ClassVar[FirstClusters] = FirstClusters()
    """As `Clustered.first_clusters`, of a method that does not say it."""
    makes_models: ClassVar[bool] = False
    """Whether `prepare` begins or merges models, so that a cluster's model does not stay the same
    one through all rounds: no part of it is shared, and `train.server` has nothing to move."""
    by_loss: ClassVar[bool] = False
    """As `MethodConfig.chooses_by_loss`."""
    newcomers_choose: ClassVar[bool] = False
    """As `Method.newcomers_choose`."""
    asynchronous_unsupported: ClassVar[str] = ""
    """Why an asynchronous server cannot have it, for the message; "": it can."""
    reveals: ClassVar[str] = "the clustering by updates"
    """As `MethodConfig.reveals`, of a method in which clients change their cluster."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "choose" in vars(cls) and "assigns_clusters" not in vars(cls):
            cls.assigns_clusters = True

    def check_clients(self, name: str, federation: Federation, clusters: int) -> None:
        """HOST. Raise SpecError for a federation whose clients cannot get clusters in this way.

        Args:
            name: The method, for the message.
            federation: The clients' data.
            clusters: K.
        """

    def count_downloads(self, models: int) -> int:
        """Return how many models of clusters a participant receives.

        Args:
            models: K.
        """
        return 1

    def first_labels(self, clients: int) -> Array:
        """Return i32[C]: the clusters of clients before the first round, of a method without
        `begin`.

        Args:
            clients: C.
        """
        return jnp.full(clients, 0, jnp.int32)

    def losses(self, ask: Ask, models: Array) -> Array:
        """Return f32[K, S]: the losses that are the `score` of a method which has no other.

        Args:
            ask: What participants can be asked.
            models: f32[K, d] the models.
        """
        return ask.losses(models)

    def choose(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return i32[S]: the clusters for which the participants of a round train.

        Args:
            method: What can be used of the method.
            ask: What participants can be asked.
            state: The state before the round.
        """
        own = state.labels[ask.cohort.ids]
        own = jnp.where(own >= 0, own, method.join(ask.of(own < 0), state))
        return jnp.maximum(own, 0)

    def train(
        self, method: ChoosingMethod, training: TrainingMethod, ask: Ask, state: State
    ) -> tuple[Array, AfterTraining]:
        """Let the participants get their clusters, and train for these. Return the clusters i32[S],
        and what training returns.

        Args:
            method: What can be used of the method.
            training: What its `local` can use.
            ask: What participants can be asked.
            state: The state before the round.
        """
        which = self.choose(method, ask, state)
        return which, method.local.train(training, ask, state, which)

    def scoring_key(self) -> Array:
        """Return the key with which clients are asked for `label_all`, in the place of a
        round's."""
        return keys.root(0)

    def label_all(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return i32[C]: the cluster of each client, or the one that it would join, when all are
        scored.

        Args:
            method: What can be used of the method.
            ask: What clients without a cluster can be asked.
            state: The state after a round.
        """
        found = jnp.where(state.labels >= 0, state.labels, method.join(ask, state))
        # One that joins nowhere has the global model, which comes after the clusters', or the first
        nowhere = 0 if state.global_model is None else state.clusters
        return jnp.where(found >= 0, found, nowhere)


@dataclasses.dataclass(frozen=True)
class ByScore(Choice):
    """In each round all participants receive all models, and choose the cluster with the least
    `score`. Before the first round no client has a cluster. `train.privacy.choice` makes the choice
    private."""

    reseed: str = "never"
    """When K random participants are put into clusters, one into each: "never", "when_empty" (if a
    cluster has no participant) or "always"."""
    first_batch: bool = False
    """Whether losses are those of the first mini-batch of local training; False: of all samples."""

    assigns_clusters = True
    by_loss = True
    reveals = "the choice by loss"

    def check_clients(self, name: str, federation: Federation, clusters: int) -> None:
        """Raise SpecError if there are more clusters than clients that train. Arguments as for
        `Choice.check_clients`."""
        need_clients(federation, clusters, name)

    def count_downloads(self, models: int) -> int:
        """Return K, if participants choose by loss. Arguments as for `Choice.count_downloads`."""
        return models if self.by_loss else 1

    def first_labels(self, clients: int) -> Array:
        """Return −1 for each client. Arguments as for `Choice.first_labels`."""
        return jnp.full(clients, -1, jnp.int32)

    def losses(self, ask: Ask, models: Array) -> Array:
        """Return the losses on all samples, or on a mini-batch. Arguments as for
        `Choice.losses`."""
        # Outside of a round there is no first mini-batch
        by_batch = self.first_batch and ask.in_round
        return ask.losses(models, ask.solver.work.batch if by_batch else None)

    def choose(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return the clusters with the least score, after some participants have been put into
        others by `reseed`. Arguments as for `Choice.choose`."""
        cohort = ask.cohort
        which = ask.least(method.score(ask, state), method.score_range)
        uid = ask.federation.uid[cohort.ids]
        k = state.clusters
        return reseed_empty(ask.key, which, cohort.mask, k, uid, self.reseed, state.in_use)

    def train(
        self, method: ChoosingMethod, training: TrainingMethod, ask: Ask, state: State
    ) -> tuple[Array, AfterTraining]:
        """Let the participants choose, and train. Arguments as for `Choice.train`."""
        if not self._chooses_in_training(method, training, ask):
            return super().train(method, training, ask, state)

        def mix_of(which: Array) -> Array:
            return method.local.mix(training, ask, state, which)

        ask.download_all(state.models)
        jobs = jobs_from(ask.cohort, ask.download(state.models), None)
        ask.upload()
        trained, which = choose_and_train(
            training.trainer, ask.key, ask.federation, jobs, ask.hyper, mix_of, state.models
        )
        return which, AfterTraining(mix_of(which), trained, state)

    def _chooses_in_training(
        self, method: ChoosingMethod, training: TrainingMethod, ask: Ask
    ) -> bool:
        """Return whether participants compute the losses, and choose, while they train, which is
        faster (`Solver.chooses`). They must choose by plain losses, with nothing between the choice
        and the training."""
        by_plain_loss = (
            self == ByScore() and not method.own_score and ask.active is None and not ask.private
        )
        trains_plainly = type(method.local) is LocalTraining
        return by_plain_loss and trains_plainly and training.solver.chooses(ask.federation)

    def scoring_key(self) -> Array:
        """Return a key of its own, because a score may draw samples."""
        return keys.fold(keys.root(0), "score")

    def label_all(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return the cluster with the least score for clients that have none. Arguments as for
        `Choice.label_all`."""
        return jnp.where(ask.cohort.mask, ask.least(method.score(ask, state)), state.labels)


@dataclasses.dataclass(frozen=True)
class ByServer(ByScore):
    """As `ByScore`, but the server computes `score`, from what it knows, so that no models are sent
    for it. A newcomer, of which it knows nothing, takes the model with the least loss."""

    by_loss = False
    newcomers_choose = True
    reveals = Choice.reveals


@dataclasses.dataclass(frozen=True)
class Prepared(Choice):
    """The method's `prepare` begins and merges models, and gives each participant its cluster.
    Before the first round one cluster is in use, and no client has it."""

    assigns_clusters = True
    first_clusters = OneCluster(joined=False)
    makes_models = True
    asynchronous_unsupported = "its round needs the updates of all participants at once"

    def choose(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return the clusters that `prepare` has given. Arguments as for `Choice.choose`."""
        return jnp.maximum(state.labels[ask.cohort.ids], 0)
