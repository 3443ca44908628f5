"""Every type that modules share, with shapes. One letter per axis everywhere:
C clients, S participants (cohort), K clusters, N samples of a client, d parameters, R runs, P pool rows, T rows of a split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
"""On the host, before the engine puts things on the device, a numpy array stands in its place (`on_host`)."""
Tree = Any
"""A tree of arrays (JAX's pytree) whose form depends on the model, the method or the caller."""
Hyper = dict[str, Array]
"""Traced numbers of a run (`lr`, `mu`, `beta`, …): f32[] each, so that a grid over them is one compiled program."""


State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
State_contra = TypeVar("State_contra", contravariant=True)


def on_host(array: np.ndarray) -> Array:
    """HOST. The numpy array itself, where the type says jax.Array: JAX takes either."""
    return cast(Array, array)


class Source(NamedTuple):
    """HOST. A named data set as numpy arrays: what `cfljax.data` returns."""

    name: str
    x_train: np.ndarray
    """u8, f32 or i32 (token ids) [n_train, ...]."""
    y_train: np.ndarray
    """i32[n_train], 0 … classes − 1."""
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    user_train: np.ndarray | None = None
    """i32[n_train]: who made the sample, where the data set knows."""
    user_test: np.ndarray | None = None
    population: np.ndarray | None = None
    """i32[users]: the true population of each user, where the data set knows."""
    table: np.ndarray | None = None
    """f32[vocabulary, width]: frozen embedding, when x holds token ids."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """HOST. What a partition returns: who holds what. Rows below `len(source.y_train)` are training samples of the
    source, rows from there on its test samples."""

    train: list[np.ndarray]
    """i64[n_i] rows per client; an empty array makes a test-only client that never trains."""
    test: list[np.ndarray] | np.ndarray
    """Rows per client, or one array of rows that is everybody's test set."""
    group: np.ndarray
    """i32[C] true group, or −1."""
    view: np.ndarray | None = None
    """i32[C] which of the views below a client sees; None: everybody sees the data as it is."""
    pixels: np.ndarray | None = None
    """i32[V, F] for each view, where each value of the flattened sample comes from (−1: zero)."""
    labels: np.ndarray | None = None
    """i32[V, classes] for each view, what each label becomes."""
    gain: np.ndarray | None = None
    """f32[V]: after scaling, the sample is multiplied by this …"""
    offset: np.ndarray | None = None
    """f32[V]: … and this is added."""
    source: Source | None = None
    """Set by partitions that make samples of their own (a recipe that copies or draws data)."""


class Pool(NamedTuple):
    """Every sample once. A model sees `(x − mean) · scale` as float32, or `table[x]` for token ids."""

    x: Array
    """u8, f32 or i32 [P, ...]."""
    y: Array
    """i32[P]."""
    mean: Array
    """f32[] or f32[...] (the shape of one sample)."""
    scale: Array
    """As `mean`."""
    table: Array | None = None
    """f32[vocabulary, width]."""


class View(NamedTuple):
    """How a group sees the pool (rotation, label map, feature shift), applied as samples are gathered: the pool is
    never copied. A field is None where no view needs it. Fields as in `Parts`."""

    of: Array
    pixels: Array | None = None
    labels: Array | None = None
    gain: Array | None = None
    offset: Array | None = None


class Grams(NamedTuple):
    """The matrices of inner products of each client's samples, for clients that are trained on them."""

    start: Array
    """i32[C]: where a client's rows begin in the array for its size."""
    rows: tuple[Array, ...]
    """f32[rows, n] for each size n, the smallest first: a client's are those of its samples, one client after another."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """A client is in the array for the first of these that it does not exceed."""
        return tuple(each.shape[1] for each in self.rows)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Split:
    """Who holds which pool rows: client c has `rows[start[c] : start[c] + count[c]]`. Nothing is padded to the largest
    client; what lies between or behind the clients' ranges is never read."""

    rows: Array
    """i32[T]."""
    start: Array
    """i32[C]."""
    count: Array
    """i32[C]."""
    longest: int = dataclasses.field(metadata={"static": True})
    """An upper bound of `count` (a shape, so static)."""
    shared: bool = dataclasses.field(default=False, metadata={"static": True})
    """Everybody has the same rows (one global test set)."""
    grams: Grams | None = None
    """Made beforehand (local.products); None: made in each client's turn."""

    def take(self, clients: Array) -> Split:
        """The same rows, held by these clients alone, i32[n] in this order."""
        grams = None if self.grams is None else self.grams._replace(start=self.grams.start[clients])
        return dataclasses.replace(self, start=self.start[clients], count=self.count[clients], grams=grams)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Federation:
    """The clients and their data, on the device."""

    pool: Pool
    train: Split
    test: Split
    uid: Array
    """i32[C] identity, from which random keys are derived; −1: a dummy that pads the client axis."""
    group: Array
    """i32[C] true group or −1."""
    arrive: Array
    """i32[C] first round in which the client can take part."""
    view: View | None = None
    owner: Array | None = None
    """i32[C] which device of a mesh has the client's samples (local.shards); None: each has all."""
    classes: int = dataclasses.field(default=0, metadata={"static": True})
    groups: int = dataclasses.field(default=0, metadata={"static": True})
    """How many true groups there are; 0: unknown."""

    @property
    def clients(self) -> int:
        """C, dummies included."""
        return self.uid.shape[0]

    @property
    def real(self) -> Array:
        """bool[C]: clients that are not dummies."""
        return self.uid >= 0

    @property
    def trains(self) -> Array:
        """bool[C]: real clients that hold training data, late ones included."""
        return self.real & (self.train.count > 0)

    def take(self, clients: Array) -> Federation:
        """These clients alone, i32[n] in this order. They keep their identities, rows and groups."""
        view, owner = self.view, self.owner
        return dataclasses.replace(
            self,
            train=self.train.take(clients),
            test=self.test.take(clients),
            uid=self.uid[clients],
            group=self.group[clients],
            arrive=self.arrive[clients],
            view=None if view is None else view._replace(of=view.of[clients]),
            owner=None if owner is None else owner[clients],
        )


class Cohort(NamedTuple):
    """The participants of one round, padded."""

    ids: Array
    """i32[S] positions on the client axis."""
    mask: Array
    """bool[S]: False for padding, dropped-out clients and clients that have not arrived."""
    work: Array
    """f32[S] in (0, 1]: the share of its local steps that a straggler manages."""
    round: Array
    """i32[] the number of the round, from 0."""

    def repeat(self, times: int) -> Cohort:
        """Each participant `times` times in a row, for methods in which it trains several models."""
        ids, mask, work = (jnp.repeat(each, times) for each in (self.ids, self.mask, self.work))
        return Cohort(ids, mask, work, self.round)


class Forward(Protocol):
    """The network of a model."""

    def __call__(self, params: Tree, x: Array, /, key: Array | None = None) -> Array:
        """Logits f32[B, outputs] of the samples x f32[B, ...]. A key means training: it draws crops, flips and dropout."""


class OfLogits(Protocol):
    """A number for each sample, from the outputs of the network and the label."""

    def __call__(self, logits: Array, y: Array, /) -> Array:
        """f32[B] or bool[B] of logits f32[B, outputs] and labels y i32[B]."""


class Model(NamedTuple):
    """A model as functions of flat parameter vectors. `forward` takes the unravelled parameters, so that a local solver
    unravels once and not once a step."""

    name: str
    size: int
    """d."""
    init: Callable[[Array], Array]
    """key -> f32[d]: the initial parameters."""
    unravel: Callable[[Array], Tree]
    """f32[d] -> params: the flat vector as the network's tree of parameters."""
    ravel: Callable[[Tree], Array]
    """params -> f32[d]."""
    forward: Forward
    loss: OfLogits
    """f32[B]: the loss of each sample."""
    correct: OfLogits
    """bool[B]: whether each sample is classified correctly."""
    penalty: Callable[[Tree], Array] | None = None
    """params -> f32[]: regularisation that belongs to the model (weight decay on some layers)."""


class Plan(NamedTuple):
    """An execution plan: how local training is carried out. Static. Plans differ in speed, not in results (beyond rounding)."""

    lanes: int = 1
    """Clients side by side at a time: one, the fast way on a CPU, or many (cfljax.local.lanes), or all of them (0)."""
    gram: int = 0
    """Clients of at most so many samples are trained on their Gram matrix (cfljax.local.gram), where that is exact."""
    stream: int = 0
    """Methods that only need sums of updates take the participants in blocks of so many; 0: all at once."""
    alike: bool = False
    """All clients have as much to do: devices get equally many of them, and none has places in reserve."""
    on_cpu: bool = True
    """Samples pass through models in blocks that stay in a CPU's cache; False: in blocks that keep an accelerator busy."""

    @property
    def sequential(self) -> bool:
        """Clients one after another."""
        return self.lanes == 1


class LocalStep(NamedTuple):
    """The numbers of a step of local SGD: traced f32[].

    g ← gradient + weight_decay · w + mu · (w − anchor); u ← momentum · u + g; w ← w − lr · u. What is None is left out."""

    lr: Array
    momentum: Array | None = None
    weight_decay: Array | None = None
    mu: Array | None = None
    """Strength of the pull to the anchor (`Jobs.anchor`): a proximal term mu/2 · ‖w − anchor‖² in the local loss."""

    @classmethod
    def of(cls, hyper: Hyper) -> LocalStep:
        """The step that the table `train` asks for."""
        return cls(hyper["lr"], hyper.get("momentum"), hyper.get("weight_decay"))


class Jobs(NamedTuple):
    """Local training to do: participant s starts from `start[which[s]]`."""

    client: Array
    """i32[S] positions on the client axis."""
    mask: Array
    """bool[S]: a masked job costs nothing and returns a zero update."""
    work: Array
    """f32[S] share of the local steps to do."""
    start: Array
    """f32[K, d]."""
    which: Array | None
    """i32[S] into `start` (and `velocity`); None: each picks the start with the least loss on its data (`Solver.chooses`)."""
    anchor: Array | None = None
    """f32[A, d]: what the proximal term pulls to; None: the start."""
    anchor_of: Array | None = None
    """i32[S] into `anchor`; None: as `which`."""
    velocity: Array | None = None
    """f32[K, d]: momentum buffers to start from; None: zero (reset at each local start)."""
    weights: Array | None = None
    """f32[S, N]: by which the loss of each sample of a participant is multiplied, in the order of its samples; N is at least
    `Split.longest`. The loss of a batch is the mean of these products over its samples. None: all weights are 1."""

    def take(self, which: Array) -> Jobs:
        """These of the jobs, i32[n]; −1 is a free place, whose job is masked."""
        of_each = {name: each[which] for name, each in self._of_each().items()}
        return self._replace(**of_each | {"mask": of_each["mask"] & (which >= 0)})

    def _of_each(self) -> dict[str, Array]:
        """The fields with an entry for each job."""
        fields = {name: getattr(self, name) for name in ("client", "mask", "work", "which", "anchor_of", "weights")}
        return {name: each for name, each in fields.items() if each is not None}


class Updates(NamedTuple):
    """What local training returns."""

    delta: Array
    """f32[S, d] = w_i − w_start."""
    loss: Array
    """f32[S] mean training loss over the samples visited."""
    steps: Array
    """i32[S] optimiser steps taken."""
    velocity: Array | None = None
    """f32[S, d] momentum buffers at the end, where they were given."""
    which: Array | None = None
    """i32[S] the start that was picked, where each picks its own."""


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
    """Which models there are, and whose they are."""

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
