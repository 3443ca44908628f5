"""The base class of a method's options, and the questions that the rest of the program asks it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from cfljax.errors import SpecError, join_errors
from cfljax.quantity import Quantity
from cfljax.registry.options import Value
from cfljax.registry.renamed import need_new_names
from cfljax.round.refused import tell

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.local.solver import Solver
    from cfljax.types import Federation, Method, Model

OF_GLOBAL = {"accuracy_global": Quantity("accuracy of the global model", "share")}
"""What recipes report that score clients by a global model, too."""


class TrainOptions(Protocol):
    """The options of a run's table `train` that a method may read."""

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""

    @property
    def participation(self) -> int | float:
        """The clients of a round: a share of those that train, or a number."""

    @property
    def dropout(self) -> float:
        """The chance that a participant drops out of a round."""

    @property
    def clock_table(self) -> Any:
        """The options of the table `clock`; None: there is no simulated clock."""

    @property
    def transit(self) -> Any:
        """The options of the tables `privacy`, `compress`, `attack` and `robust`."""


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """The base class of a method's options. A subclass defines its options as fields made by
    `option(…)`, and overrides the attributes and functions below whose defaults do not fit the
    method. The recipes are subclasses.

    Example:
        ```python
        @dataclasses.dataclass(frozen=True)
        class Config(MethodConfig):
            pull: float = option(1.0, "how far the server moves", low=0, traced=True)
        ```
    """

    clusters = 1
    """The number K of models. Most methods have an option with this name instead."""
    max_clusters = 0
    """The number of clusters that there is room for, of methods that have this option instead of
    `clusters`; 0: others."""
    searches_lr = True
    """Whether `train.lr` is the method's learning rate, so that `cfljax tune` tries values."""
    own = False
    """Whether each client is scored by a model of its own."""
    own_steps = False
    """Whether clients take steps of the method's own (`Solver.with_own_steps`), which cannot be
    done on Gram matrices."""
    server_models = ""
    """The field of the method's state with its averaged models f32[K, d], on which `train.server`
    takes its steps; "": the first of `averaged`, if it has any. The K clusters must be the same
    ones in all rounds. Not inherited."""
    server_step_is_own = False
    """Whether the server's step is the method's own, and more than a mean of updates: then
    `train.server`, `train.parts` and `train.freeze` are refused with this as the reason."""
    parts = cast("tuple[tuple[str, str], ...]", ())
    """The parts (name, kind) that the method itself has, instead of `train.parts` and, with kind
    "frozen", `train.freeze`."""
    head_epochs = 0
    """The epochs of the head before the body's, where the method itself trains them apart."""
    finetune_steps = 0
    """The local steps that clients train on after all rounds, for a last score, where
    `train.finetune_steps` does not say it."""
    sends = True
    """Whether participants send updates."""
    asynchronous_unsupported = "its round needs the updates of all participants at once"
    """Why the server must wait for all participants of a round, so that `train.asynchronous` is
    refused; "": it need not, as the round mixes updates by `averages` and `train_and_mix`, and
    nothing else in it looks at them. A reason is inherited, "" not."""
    trains_once = True
    """Whether a participant trains once a round, by the run's optimiser, whose state
    `train.optimizer_state` may keep."""
    publishes_one_sum_per_round = False
    """Whether each round makes one sum over all participants public and nothing else that tells who
    they were, and what a client sends does not depend on when it was drawn before. Not
    inherited."""
    counts_labels = ""
    """Why samples must not have several labels, for the message; "": they may."""
    needs_clients = True
    """Whether more `clusters` than clients that train are refused."""
    vectors_kept = 0
    """How many vectors of a model's size a run holds for each client at once."""
    similarity = ""
    """How updates are compared: "exact" or "sketch", for methods with an option of this name; "":
    they are not."""

    diagnostics = cast("dict[str, Quantity]", {})
    """What the numbers mean that the method itself reports (`diag` of a round, and the accuracies
    `accuracy_<name>` of further models), by name. What base classes report is added."""

    def __init_subclass__(cls) -> None:
        need_new_names(cls)
        cls.diagnostics = {
            name: quantity
            for base in reversed(cls.__mro__)
            for name, quantity in vars(base).get("diagnostics", {}).items()
        }
        # Not inherited: a subclass that does not say them has another round, perhaps
        for name, nothing in (("server_models", ""), ("publishes_one_sum_per_round", False)):
            if name not in vars(cls):
                setattr(cls, name, nothing)
        if "asynchronous_unsupported" not in vars(cls):
            # "" of a base class is not a reason: the next one up decides
            reasons = (vars(base).get("asynchronous_unsupported") for base in cls.__mro__[1:])
            cls.asynchronous_unsupported = next(reason for reason in reasons if reason)

    @property
    def averaged(self) -> tuple[str, ...]:
        """The fields of the method's state that hold K averaged arrays f32[K, d], the models first.
        Parts of them may be shared by all or stay with clients (`train.parts`); (): the method has
        other models, and refuses that."""
        return ()

    @property
    def chooses_by_loss(self) -> bool:
        """Whether each participant of a round chooses its cluster by losses, so that
        `train.privacy.choice` can make that private."""
        return False

    @property
    def reveals(self) -> str:
        """What clients send besides updates, or what else follows from their data, that gets no
        noise of `train.privacy`, for the message; "": nothing."""
        return ""

    @property
    def moved_by_server(self) -> str:
        """Where in the state the models are that `train.server` moves; "": it is refused."""
        return self.server_models or next(iter(self.averaged), "")

    @property
    def lacks_models(self) -> str:
        """Why it has no models for `moved_by_server`, for the message; "": it has."""
        if self.moved_by_server:
            return ""
        if self.server_step_is_own:
            return "the step of the server is its own"
        return (
            "it has no cluster models that stay what they are: it averages nothing, or begins "
            "other ones"
        )

    @property
    def models_kept(self) -> int:
        """The number of models that a run keeps; 1 where the options do not tell it."""
        return self.max_clusters or self.clusters

    @property
    def shared_copies_downloaded(self) -> float:
        """How many of the vectors that a participant receives hold the same parameters where
        everybody shares them: K where it gets all K models."""
        return 1.0

    @property
    def places_unlabelled(self) -> bool:
        """Whether a client that never trains and has no labels gets a model by the method's rule
        (`data.new_clients.shots = 0`)."""
        return self.own

    @property
    def needs_groups(self) -> bool:
        """Whether each client must have a true group."""
        return False

    @property
    def fixed_downloads(self) -> str:
        """Why `train.compress` cannot change models on their way down, for the message; "": it
        can, because participants get all models by `Ask.download`."""
        return "its participants get more than the models of clusters"

    @property
    def no_feedback(self) -> str:
        """Why clients cannot keep what compression drops (`train.compress.feedback`), for the
        message; "": they can."""
        return ""

    def check(self, where: str) -> None:
        """Raise SpecError if options contradict each other.

        Args:
            where: The name of the options' table, for the message.
        """

    def check_federation(self, where: str, federation: Federation) -> None:
        """HOST. Raise SpecError if the method cannot have these clients, before anything is
        compiled.

        Args:
            where: The name of the options' table, for the message.
            federation: The clients' data.
        """

    def check_labels(self, where: str) -> None:
        """Raise SpecError if a sample must have one class. It is called where samples have several
        labels, or none.

        Args:
            where: The name of the options' table, for the message.
        """
        if self.counts_labels:
            raise SpecError(
                f'method.name = "{where.removeprefix("method.")}": {self.counts_labels}'
            )

    @property
    def without(self) -> dict[str, str]:
        """What of the table `train` must stay at its default, by dotted name, and why: a stage of
        the round needs what the method does not have. A method that needs more adds to
        `super().without`."""
        reasons: dict[str, str] = {}
        if getattr(self, "average", "") == "nova":
            why = 'average = "nova" is for means of steps of SGD, of the whole model'
            reasons |= dict.fromkeys(("optimizer", "robust"), why)
        reasons["asynchronous"] = self.asynchronous_unsupported
        if not self.trains_once:
            why = "its clients do not train once a round by train.optimizer"
            reasons["optimizer_state"] = why
        if self.sends:
            reasons["compress.feedback"] = self.no_feedback
        if not self.chooses_by_loss:
            reasons["privacy.choice"] = "its clients do not choose a cluster by loss"
        reasons["server"] = self.lacks_models
        reasons |= dict.fromkeys(("parts", "freeze"), self._lacks_parts)
        return {name: why for name, why in reasons.items() if why}

    @property
    def _lacks_parts(self) -> str:
        """Why models cannot be shared in part, for the message; "": they can."""
        own = ", ".join(f'{name} = "{kind}"' for name, kind in self.parts)
        if own:
            return f"it has parts itself ({own})"
        if self.averaged:
            return ""
        if self.server_step_is_own:
            return "the step of the server is its own, on whole models"
        return "it keeps other models than averages of clusters"

    def check_train(self, where: str, train: TrainOptions) -> None:
        """Raise SpecError for all that the method must do `without`.

        Args:
            where: The name of the options' table, for the message.
            train: The options of the table `train`.
        """
        if lines := tell(where, train, self.refuse(train)):
            raise join_errors(lines)

    # `data` is for subclasses
    def refuse(self, train: TrainOptions, data: Value = None) -> dict[str, str]:  # noqa: ARG002
        """Return what of a run's table `train` must stay at its default, by dotted name, and why:
        `without`, and what depends on the run.

        Args:
            train: The options of the table `train`.
            data: The options of the table `data`; None: what depends on them does not count.
        """
        reasons = dict(self.without)
        compress = train.transit.compress
        if compress is not None and compress.changes_downloads and self.fixed_downloads:
            why = f"it changes models on their way down, and {self.fixed_downloads}"
            reasons["compress.name"] = why
        return reasons

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Raise SpecError if options contradict other tables in a way that `without` does not tell.

        Args:
            where: The name of the options' table, for the message.
            train: The options of the table `train`.
            data: The options of the table `data`.
            model: The options of the table `model`.
        """

    # The arguments are for subclasses
    def warn_run(self, where: str, train: TrainOptions, data: Value) -> list[str]:  # noqa: ARG002
        """Return lines on options that are taken, but do not do what one may expect of them.

        Args:
            where: The name of the options' table, for the message.
            train: The options of the table `train`.
            data: The options of the table `data`.
        """
        privacy = train.transit.privacy
        private = train.transit.choice is not None
        if not self.reveals or private or privacy is None or not privacy.noise:
            return []
        advice = "; give train.privacy.choice" if self.chooses_by_loss else ""
        return [
            f"train.privacy.noise with {where}: {self.reveals} has no noise, and ε does not "
            f"include what it reveals{advice}"
        ]

    def per_client(self, clients: int, d: int) -> int:
        """Return how many numbers a run holds in memory for each of its clients.

        Args:
            clients: C.
            d: The number of parameters.
        """
        return self.vectors_kept * d

    def releases(self, rounds: int) -> tuple[int, int]:
        """Return how many noised sums a run publishes, for the accounting of `train.privacy`: (over
        the participants of a round, over all clients).

        Args:
            rounds: How many rounds the run has.
        """
        return rounds, 0


class PersonalConfig(MethodConfig):
    """The base class of the options of methods that keep a model for each client."""

    own = True
    vectors_kept = 1
    asynchronous_unsupported = "its clients' state would change before their updates arrive"


Config = TypeVar("Config", bound=MethodConfig, contravariant=True)


class MakeMethod(Protocol[Config]):
    """The type of `make` in a method's file, which the registry holds."""

    def __call__(self, config: Config, model: Model, solver: Solver, /) -> Method[Any]:
        """Return the method for these options, this model and this solver. Lists show its
        docstring's first line."""
