"""The types of a clustering method (pure functions on the state of a run) and of the report on a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from cfljax.types.arrays import Array, Hyper, Tree
from cfljax.types.federation import ClientState, Cohort, Federation

if TYPE_CHECKING:  # so that `Method` alone is `Method[Any]`: Python 3.11 to 3.12 know no default
    import typing_extensions

    State = typing_extensions.TypeVar("State", default=Any)
else:
    State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
State_contra = TypeVar("State_contra", contravariant=True)


class Traffic(NamedTuple):
    """Communication of a round, summed over the participants: the numbers of whole parameter vectors (d floats each) and of single
    floats, i32[] each. "Down" is from the server to participants, "up" the other way."""

    vectors_down: Array
    vectors_up: Array
    floats_down: Array
    floats_up: Array


class Info(NamedTuple):
    """What a round reports besides the state."""

    traffic: Traffic
    train_loss: Array
    """f32[] the mean training loss, weighted by samples. This and the next two are NaN if there were no participants."""
    discrepancy: Array
    """f32[] the mean of ‖w_i − w‖ over participants i: the trained model, and its cluster's after the round (FedGroup eq. 4)."""
    drift: Array  # f32[] the same, where w is the model that the participant started from
    nonfinite: Array  # i32[] the number of participants' updates that had a NaN or Inf and were left out
    lost: Array  # bool[] whether there were participants but none of their updates was finite
    diag: dict[str, Array]  # Name → value: further diagnostics of the method. Their names and shapes are the same in each round.
    finite: Array | None = None  # bool[S]: whether each participant's update is finite; None: unknown
    home: Array | None = None
    """f32[S, n]: each participant's update of its client-side parameters (`Updates.home`); None: there are none."""
    kept: ClientState = ClientState()
    """`Cohort.kept` after the round, with the participants' new rows and the updates of the clients that began in this round. With
    updates in flight, the other fields are of those that arrive in the round."""
    cohort: Cohort | None = None  # The participants, where the method has drawn them itself; None: those that were drawn for it


class Init(Protocol[State_co]):
    """Makes the state that a run starts with. A pure function."""

    def __call__(self, key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State_co:
        """Return the state before the first round. `setup` holds the arrays that `Method.setup` returned, if any."""


class Round(Protocol[State]):
    """One communication round. A pure function: the engine compiles it, loops it over rounds and batches it over runs."""

    def __call__(self, key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        """Run a round: return the new state and the report. Each round gets another random key."""


class Models(Protocol[State_contra]):
    """The models of a run, and the model that each client belongs to."""

    def __call__(self, state: State_contra, /) -> tuple[Array, Array]:
        """Return (f32[K, d] the models, i32[C] the label of each client: the index of its model; −1: none yet)."""


class Setup(Protocol):
    """HOST. Computes what a method needs before its first round. It may train clients, and may call scikit-learn."""

    def __call__(self, key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        """Compute arrays for `init`, by name. Numbers are not traced here; `hyper["participants"]` says how many a round draws."""


class Regroup(Protocol[State]):
    """HOST. Changes the state between two rounds. It may call scikit-learn."""

    def __call__(self, key: Array, state: State, federation: Federation, hyper: Hyper, round: int) -> State:
        """Return the state with which the run continues. `round` is the number of rounds done so far."""


class Settle(Protocol[State]):
    """Brings a state in line with models that were changed after the round (by `train.server`)."""

    def __call__(self, before: State, after: State, federation: Federation, hyper: Hyper) -> State:
        """Return `after` with everything updated that depends on its models. `before`: the state before the round."""


class Score(Protocol[State_contra]):
    """Chooses the model that each client is scored with."""

    def __call__(self, state: State_contra, federation: Federation, hyper: Hyper) -> Array:
        """i32[C] indices of models: a client's label, or for a client without a label the model that the method would give it.
        `hyper` holds the numbers of the next round."""


class Adapt(Protocol[State_contra]):
    """Makes the models that clients are scored with from `models`."""

    def __call__(self, state: State_contra, federation: Federation, hyper: Hyper) -> Array:
        """f32[K, d]: as many models as `models` gives, each in the place of one of them."""


class Mixture(Protocol[State_contra]):
    """Gives the weights with which each client mixes the predictions of the models."""

    def __call__(self, state: State_contra, federation: Federation, hyper: Hyper) -> Array:
        """f32[C, K]: non-negative rows that sum to one. A client is scored by the so weighted mean of the models' probabilities."""


class Method(NamedTuple, Generic[State]):
    """A clustering method as functions on its state. The function `make(config, model, solver)` in the method's file returns it."""

    init: Init[State]
    round: Round[State]
    models: Models[State]
    setup: Setup | None = None
    regroup: Regroup[State] | None = None  # Changes the state after the rounds that `regroup_after` lists
    regroup_after: Callable[[int], tuple[int, ...]] | None = None
    """(rounds of the run) -> the numbers of rounds after which `regroup` is called; None: it is never called."""
    score: Score[State] | None = None
    """None: each client is scored with the model of its label, clients without a label with model 0."""
    extras: Callable[[State], dict[str, Array]] | None = None
    """(state after the last round) -> arrays of any shape, by name, that are saved with the results."""
    also: Callable[[State], dict[str, tuple[Array, Array]]] | None = None
    """(state) -> further models that clients have besides the one that they are scored with (a personal model, a global one), by
    name: (f32[K, d] the models, i32[C] the index of each client's model). Each evaluation records their mean accuracy over the
    clients that hold training data as the diagnostic `accuracy_<name>`."""
    chooses: bool = True
    """How a client that holds no training data is scored. True: with the model, of those in use, that has the smallest loss on its
    test data (see `engine.evaluation`). False: with the model that `models` and `score` give it (its group is known, or it has a
    model)."""
    mixture: Mixture[State] | None = None  # None: each client is scored with one model, chosen by `score`
    adapt: Adapt[State] | None = None  # None: clients are scored with the models of `models`. Results keep these in both cases.
    travels: tuple[float, int] | None = None
    """The numbers of a vector of `Traffic` on its way (down, up), where only parts of models travel; None: d both ways."""
    follow: Callable[[State, Federation], State] | None = None
    """(state, federation of a round) -> the state with the labels of this round's true groups: for methods whose clusters are the
    true groups, where these change (`data.drift`). None: the labels are the method's own."""
    settle: Settle[State] | None = None  # None: nothing else in the state of a round depends on the models after it
    newcomers_choose: bool = False
    """Whether a newcomer takes the model with the least loss on its labelled samples, whatever `score` says: for methods whose
    `score` ignores the data of a client that was never drawn."""
    shares: Mixture[State] | None = None
    """The weights f32[C, K] of each client in K models, where they do not decide how it is scored: for the record and the report. K
    may be the number of clients, where these mix each other's models. None: the weights of `mixture`, if there are any."""
