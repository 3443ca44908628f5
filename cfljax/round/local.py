"""What a participant of a round of `Clustered` does: the run's training, or what a method's paper
says instead. A training owns all that follows from it: what the server keeps for it, what is sent,
and what cannot be combined with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from cfljax.errors import SpecError
from cfljax.kernels.mix import members, weights_by
from cfljax.lazy import jnp
from cfljax.local.rounds import Mixing, Trained, jobs_from, train_and_mix
from cfljax.local.schedule import Work
from cfljax.registry.options import option
from cfljax.round.config import OF_GLOBAL

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.kernels.mix import Rule
    from cfljax.local.solver import Solver
    from cfljax.quantity import Quantity
    from cfljax.round.ask import Ask
    from cfljax.round.state import State
    from cfljax.types import Array, Cohort, Federation, Hyper, LocalStep


def head_rate() -> float | None:
    """Return the option `head_lr` of methods whose head may have a rate of its own
    (`LocalStep.with_head`)."""
    return option(
        None,
        "learning rate of the head (`train.lr`)",
        low=0.0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )


class AfterTraining(NamedTuple):
    """What the training of a round returns."""

    mix: Array
    """f32[K, S]: the mixing matrix of the clusters' models."""
    trained: Trained
    """The clusters' models after the round, and what is known of the updates."""
    state: State
    """The state before the round, with what else has been trained."""

    @property
    def moved(self) -> Array:
        """bool[K]: which clusters had members with finite updates."""
        return (self.mix > 0).any(axis=1) & ~self.trained.mixed.lost


class TrainingMethod(Protocol):
    """What a training can use of the method whose participants train."""

    weights: str
    """The method's option `average`."""
    solver: Solver
    """How clients train by the run's options and the method's `step` or `steps`."""
    trainer: Solver
    """What `make_trainer` has made of it."""

    def average(self, solver: Solver, ask: Ask, which: Array, clusters: int) -> Array:
        """Return the mixing matrix f32[K, S] of means inside clusters, by the option `average`.

        Args:
            solver: What trains the participants.
            ask: What participants can be asked.
            which: i32[S] the cluster of each participant.
            clusters: K.
        """

    def train(
        self,
        ask: Ask,
        state: State,
        which: Array,
        mix: Array,
        members: Array | None = None,
        rule: Rule | None = None,
        **start: Array,
    ) -> Trained:
        """Send the participants their clusters' models, train them, and move the models by the
        updates.

        Args:
            ask: What participants can be asked.
            state: The state before the round.
            which: i32[S] the cluster of each participant.
            mix: f32[K, S] how updates move the models.
            members: f32[K, S] how the participants' momentum buffers are averaged; None: there are
                none.
            rule: As for `train_and_mix`.
            start: What participants begin with besides the model, as fields of `Jobs`.
        """


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """Training for the run's epochs or steps from the cluster's model, which becomes the mean of
    its members' models. A subclass trains otherwise, and a method has it as its attribute `local`.

    Example:
        ```python
        class Twice(LocalTraining):
            def make_trainer(self, solver, work, step):
                return solver.with_work(work._replace(epochs=2 * work.epochs))
        ```
    """

    sums: ClassVar[int] = 1
    """How many noised sums over the participants a round publishes."""
    averaged: ClassVar[tuple[str, ...]] = ("models",)
    """The fields of the state that hold K averaged arrays f32[K, d], parts of which may be shared
    or stay with clients (`train.parts`); (): nothing may."""
    keeps_global_model: ClassVar[bool] = False
    """Whether the state has a `global_model`, by which clients are scored, too."""
    diagnostics: ClassVar[dict[str, Quantity]] = {}
    """As `MethodConfig.diagnostics`."""
    no_feedback: ClassVar[str] = ""
    """As `MethodConfig.no_feedback`."""

    @property
    def without(self) -> dict[str, str]:
        """The train options that cannot be combined with this training, and why."""
        return {}

    def check(self, where: str, average: str) -> None:
        """Raise SpecError for options of the method that contradict this training.

        Args:
            where: The name of the method's table, for the message.
            average: The method's option `average`.
        """

    def count_downloads(self, models: int) -> float:
        """Return how many of the vectors that a participant receives hold the same parameters where
        everybody shares them.

        Args:
            models: How many models of clusters it receives.
        """
        return float(models)

    def make_trainer(
        self, solver: Solver, work: Work, step: Callable[[Hyper], LocalStep]
    ) -> Solver:
        """Return the solver that trains participants.

        Args:
            solver: How clients train by the run's options and the method's `step` or `steps`.
            work: The amount of training, by the method.
            step: The method's `step`.
        """
        return solver if work == solver.work else solver.with_work(work)

    def start(self, state: State) -> State:
        """Return the state before the first round, with what this training needs of it.

        Args:
            state: The state with the models and clusters that the method begins with.
        """
        return state

    def mix(self, method: TrainingMethod, ask: Ask, state: State, which: Array) -> Array:
        """Return f32[K, S]: how the participants' updates move the clusters' models.

        Args:
            method: What can be used of the method.
            ask: What participants can be asked.
            state: The state before the round.
            which: i32[S] the cluster of each participant.
        """
        return method.average(method.trainer, ask, which, state.clusters)

    def train(self, method: TrainingMethod, ask: Ask, state: State, which: Array) -> AfterTraining:
        """Train the participants, and bill what they receive and send.

        Args:
            method: What can be used of the method.
            ask: What participants can be asked.
            state: The state before the round.
            which: i32[S] the cluster of each participant.
        """
        mix = self.mix(method, ask, state, which)
        ask.upload()
        return AfterTraining(mix, method.train(ask, state, which, mix), state)


@dataclasses.dataclass(frozen=True)
class OneGradient(LocalTraining):
    """One gradient for each participant. A cluster's model moves by −lr times the sum over its
    members, divided by the summed weights of all participants."""

    first_batch: bool = False
    """Whether the gradient is that of the first mini-batch of the run's training; False: of all
    samples."""

    @property
    def without(self) -> dict[str, str]:
        """Refuse what needs steps, or parts of models."""
        why = 'it averages gradients with aggregate = "gradient"'
        return dict.fromkeys(("optimizer", "parts", "freeze", "asynchronous"), why)

    def check(self, where: str, average: str) -> None:
        """Raise SpecError for weights by the number of steps. Arguments as for
        `LocalTraining.check`."""
        if average == "nova":
            raise SpecError(
                f'{where}.average = "nova": all take one step with aggregate = "gradient"; '
                'take average = "samples"'
            )

    def make_trainer(
        self, solver: Solver, work: Work, step: Callable[[Hyper], LocalStep]
    ) -> Solver:
        """Return a solver that does one step. Arguments as for `LocalTraining.make_trainer`."""
        batch = work.batch if self.first_batch else None
        return solver.with_work(Work(epochs=None, steps=1, batch=batch, one_vector=True))

    def mix(self, method: TrainingMethod, ask: Ask, state: State, which: Array) -> Array:
        """Return f32[K, S]: the weight of each member (1, or n_i if `average` is "samples") divided
        by the summed weights of all participants. Arguments as for `LocalTraining.mix`."""
        return shares_of_all(which, ask.federation, ask.cohort, state.clusters, method.weights)


@dataclasses.dataclass(frozen=True)
class FromBuffer(LocalTraining):
    """Training with momentum, from a momentum buffer of the cluster, `state.velocity` f32[K, d],
    which becomes the mean of its members' buffers. With one gradient from each participant the
    server makes the buffers itself, so that no buffer is sent up."""

    momentum: str
    """The traced option of the method with the momentum."""
    training: LocalTraining = LocalTraining()
    """How participants train: `LocalTraining()` or `OneGradient()`."""

    sums = 2
    averaged = ("models", "velocity")
    no_feedback = "it sends momentum buffers"

    @property
    def without(self) -> dict[str, str]:
        """Refuse another momentum, and what the training refuses."""
        why = "its momentum buffers are SGD's, with its option beta"
        return {
            "asynchronous": "its round needs the updates of all participants at once",
            "optimizer_state": "its clients do not train once a round by train.optimizer",
            "momentum": why,
            "optimizer": why,
        } | self.training.without

    def check(self, where: str, average: str) -> None:
        """Check as the training does. Arguments as for `LocalTraining.check`."""
        self.training.check(where, average)

    def count_downloads(self, models: int) -> float:
        """Return the models and one buffer, for two vectors that are shared. Arguments as for
        `LocalTraining.count_downloads`."""
        return (models + 1) / 2

    def make_trainer(
        self, solver: Solver, work: Work, step: Callable[[Hyper], LocalStep]
    ) -> Solver:
        """Return the training's solver, with the momentum. Arguments as for
        `LocalTraining.make_trainer`."""
        trainer = self.training.make_trainer(solver, work, step)
        return trainer.with_step(lambda hyper: step(hyper)._replace(momentum=hyper[self.momentum]))

    def start(self, state: State) -> State:
        """Return the state with buffers of zeros. Arguments as for `LocalTraining.start`."""
        return state._replace(velocity=jnp.zeros_like(state.models))

    def train(self, method: TrainingMethod, ask: Ask, state: State, which: Array) -> AfterTraining:
        """Train from models and buffers. Arguments as for `LocalTraining.train`."""
        assert state.velocity is not None
        mix = self.training.mix(method, ask, state, which)
        # Buffers are means over the members, whatever the weights of gradients are
        members = weights_by(which, ask.cohort.mask, ask.sizes, state.clusters, method.weights)
        buffers = ask.download(state.velocity)
        trained = method.train(ask, state, which, mix, members=members, velocity=buffers)
        ask.upload(each=1 if isinstance(self.training, OneGradient) else 2)
        return AfterTraining(mix, trained, state._replace(velocity=trained.velocity))


@dataclasses.dataclass(frozen=True)
class BesideGlobal(LocalTraining):
    """Training of two models: a global one, `state.global_model` f32[1, d], which becomes the mean
    of all participants' models, and the cluster's, which is pulled to the global one as it was
    before the round."""

    pull: str
    """The traced option of the method with the strength of the pull."""

    sums = 2
    keeps_global_model = True
    diagnostics = OF_GLOBAL
    no_feedback = "it sends two updates a round"

    @property
    def without(self) -> dict[str, str]:
        """Refuse states and arrivals of one update a round."""
        return {
            "asynchronous": "its round needs the updates of all participants at once",
            "optimizer_state": "its clients do not train once a round by train.optimizer",
        }

    def make_trainer(
        self, solver: Solver, work: Work, step: Callable[[Hyper], LocalStep]
    ) -> Solver:
        """Return the run's solver, with the pull. Arguments as for
        `LocalTraining.make_trainer`."""
        trainer = super().make_trainer(solver, work, step)
        return trainer.with_step(lambda hyper: step(hyper)._replace(mu=hyper[self.pull]))

    def start(self, state: State) -> State:
        """Return the state with the first model as the global one. Arguments as for
        `LocalTraining.start`."""
        return state._replace(global_model=state.models[:1])

    def train(self, method: TrainingMethod, ask: Ask, state: State, which: Array) -> AfterTraining:
        """Train the global model as if all were one cluster, then the clusters' models.
        Arguments as for `LocalTraining.train`."""
        assert state.global_model is not None
        cohort = ask.cohort
        everyone = jnp.zeros_like(cohort.ids)
        # Both trainings begin with the global model as it was before the round
        model = ask.download(state.global_model)
        mixing = Mixing(method.average(method.solver, ask, everyone, 1), state.global_model)
        jobs = jobs_from(cohort, model, everyone)
        whole = train_and_mix(method.solver, ask.key, ask.federation, jobs, ask.hyper, mixing)

        mix = self.mix(method, ask, state, which)
        # It has the key of the first training, but its sum needs noise of its own. A rule that is
        # given a unit has it, and with 1 it is as strong
        rule = method.trainer.rule(ask.key, ask.hyper, 1.0)
        trained = method.train(ask, state, which, mix, rule=rule, anchor=model, anchor_of=everyone)
        ask.upload(each=2)
        # A participant with two updates is counted once
        broken = cohort.mask & ~(trained.kept.finite & whole.kept.finite)
        nonfinite = jnp.sum(broken, dtype=jnp.int32)
        trained = trained._replace(
            mixed=trained.mixed._replace(nonfinite=nonfinite), steps=trained.steps + whole.steps
        )
        return AfterTraining(mix, trained, state._replace(global_model=whole.mixed.new))


@dataclasses.dataclass(frozen=True)
class Noting(LocalTraining):
    """Training by the method's own `steps`, which note `notes` numbers for each participant
    (`done.notes`), NaN at first. They take the place of a part of the model that stays with the
    client, so `train.parts` is refused."""

    notes: int

    averaged = ()

    def train(self, method: TrainingMethod, ask: Ask, state: State, which: Array) -> AfterTraining:
        """Train with empty notes. Arguments as for `LocalTraining.train`."""
        mix = self.mix(method, ask, state, which)
        empty = jnp.full((ask.cohort.ids.shape[0], self.notes), jnp.nan)
        ask.upload()
        return AfterTraining(mix, method.train(ask, state, which, mix, home=empty), state)


def shares_of_all(
    which: Array, federation: Federation, cohort: Cohort, clusters: int, average: str
) -> Array:
    """Return f32[K, S]: the mixing matrix of gradients. Row k gives each member of cluster k its
    weight (1, or n_i if `average` is "samples") divided by the summed weights of all participants
    of the round."""
    each = federation.train.count.astype(jnp.float32)
    real = federation.real & (each > 0)
    each = jnp.where(real, each if average == "samples" else 1.0, 0.0)
    present = jnp.where(cohort.mask, each[cohort.ids], 0.0)
    member = members(which, clusters, cohort.mask)
    return jnp.where(member, present[None, :] / jnp.maximum(jnp.sum(present), 1.0), 0.0)
