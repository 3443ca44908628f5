"""`Clustered`: the recipe of methods that keep K models, with each client in one cluster."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from cfljax.errors import SpecError
from cfljax.round.choice import Choice
from cfljax.round.config import OF_GLOBAL, MethodConfig, TrainOptions
from cfljax.round.draw import Draw
from cfljax.round.first_clusters import FirstClusters
from cfljax.round.joining import Joining
from cfljax.round.local import LocalTraining
from cfljax.round.merging import Merging
from cfljax.round.similarity import compared_size
from cfljax.types import Array, Hyper, LocalStep, Tree

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.schedule import Work
    from cfljax.registry.options import Value
    from cfljax.round.ask import Ask
    from cfljax.round.before import Before
    from cfljax.round.state import InitialClusters, RoundResult, State
    from cfljax.types import Model


@dataclasses.dataclass(frozen=True)
class Clustered(MethodConfig):
    """FedAvg inside clusters. A subclass is a method: its fields are the options (`option(…)`, with
    `traced=True` for numbers that reach the functions below as `hyper["name"]`), and it overrides
    the functions in which it differs.

    Before round 0 `begin` makes models and clusters, or `first_clusters` says them: without both
    there are `clusters` random models, and all clients have the first. In each round `draw` says
    who takes part, and `choice` which cluster each participant gets: its own, and if it has none,
    or with `ByScore()` always, the one with the least `score`. Participants do what `local` says:
    they train from their cluster's model, with the numbers of `step` and the amount of `work`. The
    cluster's model becomes the mean of its members' models, weighted by the option `average`, and
    `after` may change it. `remember` keeps what the next round needs; `first` makes it. Between
    rounds `regroup` may make other clusters, on the host.

    What participants are asked for passes through `ask` (on the host `Before`, else `Ask`), so it
    is counted, limited and timed. Compression, privacy, attacks, robust means, parts of models,
    server optimisers, late clients and the rest are not the method's business.

    Shapes: S participants, C clients, K clusters, d parameters. All functions are traced by JAX,
    but for those that say HOST. `state` is a `State`, and `hyper` has the numbers of the run by
    name, f32[] each.

    Example:
        ```python
        @cfljax.register_method("mine")
        @dataclasses.dataclass(frozen=True)
        class Mine(Clustered):
            choice = ByScore()
            clusters: int = cfljax.option(2, "number of models", low=1)
        ```
    """

    average = "samples"
    """The weights of a cluster's members: "samples", "uniform" or "nova". Most methods have an
    option of this name."""
    compares = False
    """Whether `remember` looks at the participants' updates (`done.moves`), or with an option
    `similarity` at sketches of them."""
    compares_all = False
    """Whether `begin` or `regroup` compares all clients with each other, with an option
    `similarity` by their updates."""
    pairs = 2
    """How many numbers that comparison holds for each pair of clients."""
    every = cast("int | None", None)
    """After how many rounds `begin` makes clusters again; None: never. Methods have
    `recluster.every()` as their option."""
    begins = False
    own_score = False
    """Whether the method has a function `begin` and `score`: set for each subclass."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.begins = cls.begin is not Clustered.begin
        cls.own_score = cls.score is not Clustered.score
        regroups = cls.regroup is not Clustered.regroup
        adapts = cls.adapt is not Clustered.adapt
        cls.own_steps = cls.steps is not Clustered.steps
        cls.trains_once = not (cls.own_steps or cls.head_epochs)
        if isinstance(cls.local, LocalTraining):
            cls.diagnostics = cls.local.diagnostics | cls.diagnostics
        if adapts:
            cls.diagnostics = OF_GLOBAL | cls.diagnostics
        cls.asynchronous_unsupported, cls.own = "", cls.own or adapts
        if regroups or cls.compares:
            cls.asynchronous_unsupported = "its round needs the updates of all participants at once"

    @property
    def draw(self) -> Draw:
        """Who takes part in a round: `Draw()`, `Everybody()`, `PerCluster(most)` or
        `WarmUp(rounds)`; an attribute, or a property of methods with an option that says how
        many."""
        return Draw()

    @property
    def choice(self) -> Choice:
        """How participants get their cluster: `Choice()`, `ByScore(…)`, `ByServer(…)` or
        `Prepared()`; an attribute, or a property of methods whose options say it."""
        return Choice()

    @property
    def first_clusters(self) -> FirstClusters:
        """The models and clusters before round 0 of a method without `begin`: `FirstClusters()`,
        `OneCluster(…)` or `TrueGroups()`; an attribute, or a property of methods whose options say
        it."""
        return self.choice.first_clusters

    @property
    def joining(self) -> Joining:
        """When a client that comes late gets its cluster of `state.labels_if_joining`:
        `Joining(…)`, when it first takes part, or `OnArrival(…)`; an attribute, or a property of
        methods whose options say it."""
        return Joining()

    @property
    def local(self) -> LocalTraining:
        """What a participant does in a round: `LocalTraining()`, `OneGradient(…)`,
        `FromBuffer(…)`, `BesideGlobal(…)` or `Noting(…)`; an attribute, or a property of methods
        whose options say it."""
        return LocalTraining()

    @property
    def merging(self) -> Merging:
        """How the clusters' models are made of the trained ones: `Merging()`, or a `Reassigned` of
        the method's own; an attribute, or a property of methods whose options say it."""
        return Merging()

    @property
    def averaged(self) -> tuple[str, ...]:
        """As `MethodConfig.averaged`, by what the method has."""
        if not self._keeps_models or type(self).adapt is not Clustered.adapt:
            return ()
        return self.local.averaged

    @property
    def moved_by_server(self) -> str:
        """As `MethodConfig.moved_by_server`: the clusters' models."""
        return "models" if self._keeps_models else ""

    @property
    def _keeps_models(self) -> bool:
        """Whether a cluster's model stays the same one through all rounds, and is the mean of the
        participants that have trained from it."""
        return self.merging.keeps_models and not self.choice.makes_models

    @property
    def again(self) -> int | None:
        """After how many rounds `begin` makes clusters again; None: never."""
        return self.every if self.begins else None

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. Make the models and clusters before the first round.

        Args:
            ask: What clients can be asked before a round.
        """
        raise NotImplementedError

    def score(self, ask: Ask, state: State) -> Array:
        """Return f32[K, S]: a participant joins the cluster with the least. Without this function
        it is the loss of each model on the participant's data.

        Args:
            ask: What participants can be asked.
            state: The state before the round.
        """
        return self.choice.losses(ask, state.models)

    def score_range(self, hyper: Hyper) -> Array | float:
        """Return f32[]: how far apart two scores can be where losses are bounded, for a private
        choice.

        Args:
            hyper: The numbers of the run.
        """
        return hyper["privacy.choice.clip"]

    def join(self, ask: Ask, state: State) -> Array:
        """Return i32[S]: the clusters of participants that have none.

        Args:
            ask: What these participants can be asked.
            state: The state before the round.
        """
        if state.labels_if_joining is not None:
            return state.labels_if_joining[ask.cohort.ids]
        return ask.least(self.score(ask, state))

    def step(self, hyper: Hyper) -> LocalStep:
        """Return the numbers of a local step.

        Args:
            hyper: The numbers of the run.
        """
        return LocalStep.of(hyper)

    def numbers(self, hyper: Hyper, state: State) -> Hyper:
        """Return the numbers of a round, of methods whose learning rate or another number follows
        what the server remembers.

        Args:
            hyper: The numbers of the run.
            state: The state before the round.
        """
        return hyper

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return the local steps, of methods that have steps of their own.

        Args:
            model: The network.
            hyper: The numbers of the run.
            rule: The run's optimiser.
        """
        raise NotImplementedError

    def work(self, work: Work) -> Work:
        """Return the amount of local training.

        Args:
            work: The run's.
        """
        return work

    def after(self, models: Array, hyper: Hyper, state: State) -> Array:
        """Return f32[K, d]: the models after a round.

        Args:
            models: f32[K, d] the average models.
            hyper: The numbers of the run.
            state: The state before the round.
        """
        return models

    def first(self, ask: Ask, state: State) -> State:
        """Return the state before the first round with the memory that the method begins with, if
        `begin` does not make it.

        Args:
            ask: What can be asked of all clients that train.
            state: The state without memory.
        """
        return state

    def prepare(self, ask: Ask, state: State) -> State:
        """Return the state that the participants of a round find.

        Args:
            ask: What participants can be asked.
            state: The state after the last round.
        """
        return state

    def remember(self, ask: Ask, before: State, after: State, done: RoundResult) -> Tree:
        """Return what the method remembers after a round, the next `state.memory`.

        Args:
            ask: What participants can be asked.
            before: The state before the round.
            after: The state after it, with its models and labels.
            done: What the round has done.
        """
        return after.memory

    def remember_after_server_step(self, before: State, after: State) -> Tree:
        """Return what the method remembers, where that depends on the models after the round. It is
        called after `remember`, and again after the step of `train.server`.

        Args:
            before: The state before the round.
            after: The state after it, with the models that the server has moved.
        """
        return after.memory

    def compute_diagnostics(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> dict[str, Array]:
        """Return further quantities of the round for the history, by name. `diagnostics` says what
        they are.

        Args:
            ask: What participants can be asked.
            before: The state before the round.
            after: The state after it.
            done: What the round has done.
        """
        return {}

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Return the state with the clusters with which the run goes on.

        Args:
            ask: What clients can be asked between rounds.
            state: The state after the round.
            round: How many rounds are done, one of `regroup_after`.
        """
        raise NotImplementedError

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the numbers of rounds after which `regroup` is called.

        Args:
            rounds: How many rounds the run has.
        """
        return tuple(range(1, rounds))

    def adapt(self, ask: Ask, state: State) -> Array:
        """Return f32[C, d]: a model for each client, made from the one global model when clients
        are scored.

        Args:
            ask: What clients can be asked.
            state: The state after a round.
        """
        raise NotImplementedError

    def extras(self, state: State) -> dict[str, Array]:
        """Return arrays that are kept with the results, by name.

        Args:
            state: The state after the last round.
        """
        return state.extras

    def per_client(self, clients: int, d: int) -> int:
        """Return how many numbers a run holds for each client: its model when it is scored, if
        `adapt` makes it then; what is compared of it, and its similarity with all others.

        Args:
            clients: C.
            d: The number of parameters.
        """
        kept = self.vectors_kept * d + (d if type(self).adapt is not Clustered.adapt else 0)
        if not self.compares_all:
            return kept
        return (
            kept
            + self.pairs * clients
            + (compared_size(d, self.similarity) if self.similarity else 0)
        )

    @property
    def has_fixed_labels(self) -> bool:
        """Whether clients' labels are the same in all rounds: one model for all, or the true
        groups."""
        first = self.first_clusters
        may_change = self.begins or first.grows or self.choice.assigns_clusters
        return first.follows_groups or not may_change

    @property
    def needs_groups(self) -> bool:
        """As `MethodConfig.needs_groups`."""
        return self.first_clusters.follows_groups

    @property
    def places_unlabelled(self) -> bool:
        """Whether a newcomer's model does not depend on its data."""
        return self.has_fixed_labels and type(self).adapt is Clustered.adapt

    @property
    def reveals(self) -> str:
        """What is revealed of the participants without noise: who is in which cluster; "":
        nothing."""
        return "" if self.has_fixed_labels else self.choice.reveals

    @property
    def chooses_by_loss(self) -> bool:
        """As `MethodConfig.chooses_by_loss`."""
        return self.choice.by_loss

    @property
    def shared_copies_downloaded(self) -> float:
        """How many model-sized vectors with the same shared parameters a participant downloads: all
        models to choose from, or its own, and what its training needs besides."""
        return self.local.count_downloads(self.choice.count_downloads(self.models_kept))

    @property
    def fixed_downloads(self) -> str:
        """Say why models cannot be changed on their way down; "": they can."""
        parts = "it shares parts of models" if self.parts else ""
        return self.merging.fixed_downloads or parts

    @property
    def no_feedback(self) -> str:
        """Say why `train.compress` cannot keep what it drops."""
        return self.local.no_feedback

    def releases(self, rounds: int) -> tuple[int, int]:
        """Return how many noised sums a run publishes: (over the participants of a round, over all
        clients).

        Args:
            rounds: How many rounds the run has.
        """
        return self.draw.releases(self.local.sums, rounds)

    @property
    def without(self) -> dict[str, str]:
        """The train options that cannot be combined with this method, and why."""
        found = super().without
        for policy in (self.choice, self.merging, self.draw):
            if policy.asynchronous_unsupported:
                found["asynchronous"] = policy.asynchronous_unsupported
        if self.again is not None:
            found["asynchronous"] = (
                "with `every`, pending updates would belong to clusters that no longer exist"
            )
        return found | self.merging.without | self.local.without

    def refuse(self, train: TrainOptions, data: Value = None) -> dict[str, str]:
        """Return what of a run's table `train` must stay at its default, and what the draw needs.
        Arguments as for `MethodConfig.refuse`."""
        reasons = super().refuse(train, data)
        return reasons if data is None else reasons | self.draw.refuse(train, data)

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Raise SpecError for a draw that a round of this kind cannot have, and for clusters that
        nobody joins.

        Args:
            where: The name of the options' table, for the message.
            train: The options of the table `train`.
            data: The options of the table `data`.
            model: The options of the table `model`.
        """
        self.local.check(where, self.average)
        joins = (
            self.begins
            or self.first_clusters.grows
            or self.choice.assigns_clusters
            or type(self).regroup is not Clustered.regroup
        )
        if self.models_kept > 1 and not joins:
            raise SpecError(
                f"{where}: no client joins its {self.models_kept} clusters; write "
                "choice = ByScore(), or a function begin"
            )
        self.draw.check(where, train, data)

    def warn_run(self, where: str, train: TrainOptions, data: Value) -> list[str]:
        """Return the lines of `MethodConfig.warn_run`, and those of the draw.

        Args:
            where: The name of the options' table, for the message.
            train: The options of the table `train`.
            data: The options of the table `data`.
        """
        return super().warn_run(where, train, data) + self.draw.warn(where, train)
