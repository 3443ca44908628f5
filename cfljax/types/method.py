"""The types of a clustering method (pure functions on the state of a run) and of the report on a
round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from cfljax.types.arrays import Array, Hyper, Tree
from cfljax.types.federation import ClientState, Cohort, Federation

if TYPE_CHECKING:  # so that `Method` alone is `Method[Any]`: Python 3.11 to 3.12 know no default
    import typing_extensions

    State = typing_extensions.TypeVar("State", default=Any)
else:
    State = TypeVar("State")


class Traffic(NamedTuple):
    """Communication of a round, summed over the participants: the numbers of whole parameter
    vectors (d floats each) and of single floats, i32[] each. "Down" is from the server to
    participants, "up" the other way."""

    vectors_down: Array
    """Whole vectors that participants receive."""
    vectors_up: Array
    """Whole vectors that they send."""
    floats_down: Array
    """Single floats that they receive."""
    floats_up: Array
    """Single floats that they send."""

    def bytes(self, vector: tuple[float, float]) -> tuple[Array, Array]:
        """Return the bytes (down, up) of this traffic.

        Args:
            vector: The bytes of a vector (down, up).
        """
        down, up = vector
        return (
            down * self.vectors_down + 4 * self.floats_down,
            up * self.vectors_up + 4 * self.floats_up,
        )


class PreRound(NamedTuple):
    """What clients send before a round begins, to be clustered: they need be no participants."""

    traffic: Traffic
    """What they are sent and send, a part of the traffic that the round reports."""
    senders: Array
    """i32[]: how many send something."""


class Info(NamedTuple):
    """What a round reports besides the state: `report` and `report_trained` make it."""

    traffic: Traffic
    """What was sent."""
    train_loss: Array
    """f32[]: the mean training loss, weighted by samples. This and the next two are NaN if there
    were no participants."""
    discrepancy: Array
    """f32[]: the mean of ‖w_i − w‖ over participants i: the trained model, and its cluster's after
    the round (FedGroup eq. 4)."""
    drift: Array
    """f32[]: the same, where w is the model that the participant started from."""
    nonfinite: Array
    """i32[]: the number of participants' updates that had a NaN or Inf and were left out."""
    lost: Array
    """bool[]: whether there were participants but none of their updates was finite."""
    diag: dict[str, Array]
    """Name → value: further diagnostics of the method. Their names and shapes are the same in each
    round."""
    kept: ClientState = ClientState()
    """`Cohort.kept` after the round, with the participants' new rows and the updates of the clients
    that began in this round. With updates in flight, the other fields are of those that arrive in
    the round."""
    steps: Array | None = None
    """f32[C]: the local steps of each client in this round, in all its trainings together, for the
    simulated clock; None: there is no clock."""
    before: PreRound | None = None
    """What of the traffic is sent before the round begins; None: nothing."""


Models = Callable[[State], tuple[Array, Array]]
"""(state) -> (f32[K, d] the models, i32[C] the label of each client: the index of its model; −1:
none yet)."""
OfClients = Callable[[State, Federation, Hyper], Array]
"""(state, federation, numbers of the next round) -> an array over the clients, or over their
models."""


class Method(NamedTuple, Generic[State]):
    """A method as pure functions on its state, which the function `make(config, model, solver)`
    returns. The recipes make one; a method with a round of its own makes its own. `state` is any
    tree of arrays.

    C clients, K models, d parameters. `hyper` has the numbers of the run by name, traced f32[]
    each; a key is a random key of JAX.

    Example:
        ```python
        def make(config, model, solver):
            def init(key, federation, hyper, setup): ...
            def round(key, state, federation, cohort, hyper): ...
            return Method(init, round, models=lambda state: (state.models, state.labels))
        ```
    """

    init: Callable[[Array, Federation, Hyper, dict[str, Tree]], State]
    """(key, federation, hyper, arrays that `setup` returned) -> the state before the first
    round."""
    round: Callable[[Array, State, Federation, Cohort, Hyper], tuple[State, Info]]
    """(key, state, federation, cohort, hyper) -> (new state, report). The engine compiles it, loops
    it over rounds and batches it over runs. Each round gets another random key."""
    models: Models[State]
    """(state) -> (f32[K, d] the models, i32[C] the label of each client: the index of its model;
    −1: none yet)."""
    setup: Callable[[Array, Federation, Hyper], dict[str, Tree]] | None = None
    """HOST. (key, federation, hyper) -> arrays for `init`, by name. It may train clients, and call
    scikit-learn. Numbers are not traced here; `hyper["participants"]` says how many a round
    draws."""
    regroup: Callable[[Array, State, Federation, Hyper, int], State] | None = None
    """HOST. (key, state, federation, hyper, rounds done) -> the state with which the run continues,
    after each of the rounds that `regroup_after` lists. It may call scikit-learn."""
    regroup_after: Callable[[int], tuple[int, ...]] | None = None
    """(rounds of the run) -> the numbers of rounds after which `regroup` is called; None: it is
    never called."""
    score: OfClients[State] | None = None
    """i32[C]: the model that each client is scored with: its label, or for a client without one
    that which the method would give it. None: the model of its label, for clients without a label
    model 0."""
    extras: Callable[[State], dict[str, Array]] | None = None
    """(state after the last round) -> arrays of any shape, by name, that are saved with the
    results."""
    also: Callable[[State], dict[str, tuple[Array, Array]]] | None = None
    """(state) -> further models that clients have besides the one that they are scored with (a
    personal model, a global one), by name: (f32[K, d] the models, i32[C] the index of each client's
    model). Each evaluation records their mean accuracy over the clients that hold training data as
    the diagnostic `accuracy_<name>`."""
    chooses: bool = True
    """How a client that holds no training data is scored. True: with the model, of those in use,
    that has the smallest loss on its test data (see `engine.evaluation`). False: with the model
    that `models` and `score` give it (its group is known, or it has a model)."""
    mixture: OfClients[State] | None = None
    """f32[C, K]: non-negative rows that sum to one. A client is scored by the so weighted mean of
    the models' probabilities. None: by one model, chosen by `score`."""
    adapt: OfClients[State] | None = None
    """f32[K, d]: the models that clients are scored with, each in the place of one of `models`.
    None: `models`, which results keep in both cases."""
    travels: tuple[float, int] | None = None
    """The numbers of a vector of `Traffic` on its way (down, up), where only parts of models
    travel; None: d both ways."""
    follow: Callable[[State, Federation], State] | None = None
    """(state, federation of a round) -> the state with the labels of this round's true groups: for
    methods whose clusters are the true groups, where these change (`data.drift`). None: the labels
    are the method's own."""
    after_server_step: Callable[[State, State, Federation, Hyper], State] | None = None
    """(state before the round, state after it, federation, hyper) -> the latter with all updated
    that depends on its models, which `train.server` has changed. None: nothing else depends on
    them."""
    newcomers_choose: bool = False
    """Whether a newcomer takes the model with the least loss on its labelled samples, whatever
    `score` says: for methods whose `score` ignores the data of a client that was never drawn."""
    shares: OfClients[State] | None = None
    """The weights f32[C, K] of each client in K models, where they do not decide how it is scored:
    for the record and the report. K may be the number of clients, where these mix each other's
    models. None: the weights of `mixture`, if there are any."""
