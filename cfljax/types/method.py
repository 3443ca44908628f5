"""Methods as pure functions, and what a round reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from cfljax.types.arrays import Array, Hyper, Tree
from cfljax.types.federation import Cohort, Federation

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
State_contra = TypeVar("State_contra", contravariant=True)


class Traffic(NamedTuple):
    """Communication of a round, in whole parameter vectors (d floats each) and single floats."""

    vectors_down: Array
    """i32[]."""
    vectors_up: Array
    floats_down: Array
    floats_up: Array


class Info(NamedTuple):
    """What a round reports besides the state."""

    traffic: Traffic
    train_loss: Array
    """f32[] sample-weighted over the participants; NaN where nobody took part, as the next two."""
    discrepancy: Array
    """f32[] mean over participants of ‖w_i − w‖, w = their model after this round's aggregation (FedGroup eq. 4)."""
    drift: Array
    """f32[] the same with w = the model they started from."""
    nonfinite: Array
    """i32[] participants' updates that were NaN or Inf and were left out."""
    lost: Array
    """bool[] there were participants, and none of their updates was finite."""
    diag: dict[str, Array]
    """The method's own diagnostics, constant shapes."""


class Init(Protocol[State_co]):
    """Makes the state that a run starts with. Pure."""

    def __call__(self, key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State_co:
        """`setup` is what the method's own `setup` returned, as arrays; an empty table where the method has none."""


class Round(Protocol[State]):
    """One communication round. Pure: it is compiled, looped over rounds and batched over runs."""

    def __call__(self, key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        """The state after the round, and what the round reports. `key` is the round's own."""


class Models(Protocol[State_contra]):
    """The models of a run, and whose they are."""

    def __call__(self, state: State_contra, /) -> tuple[Array, Array]:
        """(f32[K, d] models, i32[C] the model that each client belongs to; −1: none yet)."""


class Setup(Protocol):
    """HOST. What is found before the first round: it may train, and may call scikit-learn."""

    def __call__(self, key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        """Arrays for `init`. `hyper` has concrete numbers; `hyper["participants"]` is how many clients a round draws."""


class Regroup(Protocol[State]):
    """HOST. A step between two rounds that may call scikit-learn."""

    def __call__(self, key: Array, state: State, federation: Federation, hyper: Hyper, round: int) -> State:
        """The state to go on with after `round` rounds."""


class Score(Protocol[State_contra]):
    """Which model scores each client."""

    def __call__(self, state: State_contra, federation: Federation, hyper: Hyper) -> Array:
        """i32[C]: a client's label; for a client without one, the model that the method would choose for it. `hyper` is that of
        the next round."""


class Mixture(Protocol[State_contra]):
    """With which weights each client mixes the models."""

    def __call__(self, state: State_contra, federation: Federation, hyper: Hyper) -> Array:
        """f32[C, K]: each row is non-negative and sums to one. A client is scored by the weighted mean of the probabilities that
        the models give to its labels."""


class Method(NamedTuple, Generic[State]):
    """A method as pure functions; made by `make(config, model, solver)` of its file."""

    init: Init[State]
    round: Round[State]
    models: Models[State]
    setup: Setup | None = None
    regroup: Regroup[State] | None = None
    """Called after the rounds in `regroup_after`."""
    regroup_after: Callable[[int], tuple[int, ...]] | None = None
    """(number of rounds of the run) -> after which rounds `regroup` is called."""
    score: Score[State] | None = None
    """None: model 0 scores clients without a label."""
    mixture: Mixture[State] | None = None
    """None: each client is scored by one model, the one of `score`."""
    extras: Callable[[State], dict[str, Array]] | None = None
    """(state) -> arrays that are kept once, after the last round (a similarity matrix, an embedding); any shapes."""
    also: Callable[[State], dict[str, tuple[Array, Array]]] | None = None
    """(state) -> name → (f32[K, d], i32[C]): other models that clients have besides the one that counts (a personal model, a
    global one). Their accuracy on the clients that hold training data is recorded at each evaluation as the diagnostic
    `accuracy_<name>`."""
    chooses: bool = True
    """Whether a client that holds no training data takes the model in use with the smallest loss on its test data. False: `models`
    and `score` say which it has (the method knows its group, or its clients have models of their own)."""
