"""Models and local training: its plan, its jobs and the updates that it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from cfljax.types.arrays import Array, Hyper, Tree
from cfljax.types.federation import ClientState


class Forward(Protocol):
    """Runs the network of a model."""

    def __call__(
        self, params: Tree, x: Array, /, key: Array | None = None, mask: Array | None = None
    ) -> Array:
        """Logits f32[B, outputs] of the samples x f32[B, ...]. With a key the network is in
        training, and the key draws crops, flips and dropout; None: evaluation. With a mask bool[B],
        BatchNorm has the statistics of these samples."""


OfLogits = Callable[[Array, Array], Array]
"""(logits f32[B, outputs], labels y i32[B], or i32[B, classes] where a sample may have several, or
f32[B] of a continuous target) -> f32[B] or bool[B]."""


class Score(NamedTuple):
    """What says how good predictions are: the mean of the scores of samples. The higher the better;
    1 is perfect."""

    name: str = "accuracy"
    """Columns have it where those of classes have "accuracy"."""
    explains: bool = False
    """Whether the scores of samples are squared errors, of which the engine makes R²: 1 less their
    mean over the variance of all test targets."""

    def rename(self, name: str) -> str:
        """Return the name of a quantity of this score.

        Args:
            name: the quantity of an accuracy, as "val_accuracy".
        """
        return name.replace("accuracy", self.name)


class Model(NamedTuple):
    """A model whose parameters are a flat vector. `forward` takes them as a tree, so that training
    unravels the vector once."""

    name: str
    size: int
    """The number d of parameters."""
    init: Callable[[Array], Array]
    """Key -> f32[d]: the initial parameters."""
    unravel: Callable[[Array], Tree]
    """f32[d] -> params: the flat vector as the network's tree of parameters."""
    ravel: Callable[[Tree], Array]
    """Params -> f32[d]: the inverse of `unravel`."""
    forward: Forward
    loss: OfLogits
    """f32[B]: the loss of each sample."""
    correct: OfLogits
    """bool[B]: whether each sample is classified correctly; f32[B]: the score of each sample, with
    another `score`."""
    penalty: Callable[[Tree], Array] | None = None
    """params -> f32[]: a term that is added to the training loss (weight decay on some layers);
    None: no such term."""
    whole: Callable[[Tree], Tree] | None = None
    """params -> the parameters of the whole network, where the vector has only those that train;
    None: it has all."""
    statistics: tuple[str, ...] = ()
    """The paths of the running means and variances of BatchNorm among the parameters. They follow
    the batches of training."""
    first_models: Callable[[Array, int], Array] | None = None
    """(key, K) -> f32[K, d]: the models that K clusters begin with, where each has its own in
    `model.weights`. Raises SpecError for another number of clusters. None: `init` draws them."""
    score: Score = Score()
    """What the mean of `correct` is called."""


class Plan(NamedTuple):
    """How a machine carries out local training. Static. It changes the speed, not the results
    (beyond rounding)."""

    lanes: int = 1
    """How many clients train side by side at a time. 1, one after another, is fastest on a CPU.
    Larger numbers come from `cfljax.local.queue`. 0: all participants."""
    gram: int = 0
    """Clients of at most this number of samples are trained on their Gram matrix
    (`cfljax.local.gram`) if that is exact."""
    stream: int = 0
    """Methods that need only sums of updates train the participants in blocks of this size, to save
    memory; 0: all at once."""
    alike: bool = False
    """Whether all clients have the same amount of work. Then devices get equal numbers of them,
    without reserve slots."""
    on_cpu: bool = True
    """Whether `Solver.losses` works in blocks that fit into a CPU's cache; False: in the larger
    blocks of an accelerator."""
    asks_host: bool = False
    """Whether the host decides after each iteration of a loop whether there is another, as with a
    GPU: steps are then grouped."""
    quick: bool = False
    """Whether programs compile in half the time, to code that takes up to half as long again: for
    runs of less than a second."""
    queue: int = 0
    """In how many lanes an accelerator trains the clients of all runs of a batch, if these have
    unequal work (`local.queue`); 0: all side by side, or `lanes` at a time."""

    @property
    def sequential(self) -> bool:
        """Whether clients train one after another."""
        return self.lanes == 1


class LocalStep(NamedTuple):
    """The numbers of a step of local SGD, traced f32[] each.

    g ← gradient + weight_decay · w + mu · (w − anchor); u ← momentum · u + g; w ← w − lr · u. What
    is None has no term.

    Example:
        ```python
        def step(self, hyper):
            return LocalStep.of(hyper)._replace(mu=hyper["mu"])
        ```
    """

    lr: Array
    momentum: Array | None = None
    weight_decay: Array | None = None
    mu: Array | None = None
    """Strength of the pull to the anchor (`Jobs.anchor`): a proximal term mu/2 · ‖w − anchor‖² in
    the local loss."""
    head_lr: Array | None = None
    """The learning rate of the head (`head_of`); None: `lr`."""

    @classmethod
    def of(cls, hyper: Hyper) -> LocalStep:
        """Take the learning rate, the momentum and the weight decay of the spec's table `train`.

        Args:
            hyper: The numbers of the run.
        """
        return cls(hyper["lr"], hyper.get("momentum"), hyper.get("weight_decay"))

    @classmethod
    def with_head(cls, hyper: Hyper) -> LocalStep:
        """Take those numbers, and the rate of the head from an option `head_lr` of the method.

        Args:
            hyper: The numbers of the run.
        """
        return cls.of(hyper)._replace(head_lr=hyper.get("head_lr"))

    @classmethod
    def given(cls, numbers: Hyper) -> LocalStep:
        """Make a step from numbers by the names of the fields.

        Args:
            numbers: {field: f32[]}.
        """
        return cls(**numbers)


class Jobs(NamedTuple):
    """The local training of a round, one job per participant: participant s starts from
    `start[which[s]]`."""

    client: Array
    """i32[S]: positions of the participants on the client axis."""
    mask: Array
    """bool[S]: a masked job costs nothing and returns a zero update."""
    work: Array
    """f32[S] in (0, 1]: the share of its local steps that each participant does."""
    start: Array
    """f32[K, d]: the models that participants may start from."""
    which: Array | None
    """i32[S]: the row of `start` (and of `velocity`) of each participant; None: each participant
    starts from the model with the least loss on its data (see `Solver.chooses`)."""
    anchor: Array | None = None
    """f32[A, d]: the models that the proximal term pulls to; None: the models that participants
    start from."""
    anchor_of: Array | None = None
    """i32[S]: the row of `anchor` of each participant; None: the same as `which`."""
    velocity: Array | None = None
    """f32[K, d]: the momentum buffers that participants start with; None: zeros."""
    weights: Array | None = None
    """f32[S, N]: the weights of each participant's samples, in their order; N is at least
    `Split.longest`. The loss of a batch is the mean over its samples of weight · loss. None: all
    weights are 1."""
    home: Array | None = None
    """f32[S, m]: client-side numbers of each participant, for a method's own steps
    (`local.own_steps`); None: there are none."""
    kept: ClientState = ClientState()
    """What belongs to all clients in this round (`Cohort.kept`)."""

    def take(self, which: Array) -> Jobs:
        """Select jobs.

        Args:
            which: i32[n] their positions; −1 gives a masked job.
        """
        names = ("client", "mask", "work", "which", "anchor_of", "weights", "home")
        taken: dict[str, Any] = {
            name: each[which] for name in names if (each := getattr(self, name)) is not None
        }
        return self._replace(**taken | {"mask": taken["mask"] & (which >= 0)})


class Updates(NamedTuple):
    """The updates that local training returns: of `Solver.fit` as the server receives them."""

    delta: Array
    """f32[S, d]: the trained parameters minus the parameters at the start."""
    loss: Array
    """f32[S]: the mean training loss over all samples that the steps have seen."""
    steps: Array
    """i32[S]: the number of optimiser steps."""
    velocity: Array | None = None
    """f32[S, d]: the momentum buffers after training; None: `Jobs.velocity` was None."""
    which: Array | None = None
    """i32[S]: the row of `Jobs.start` that each participant has chosen; None: `Jobs.which` was
    given."""
    home: Array | None = None
    """f32[S, m]: the client-side numbers of each participant, never sent: after its own steps
    (`Jobs.home`), or the update of its parts (`ClientState.client_params`), where `delta` is zero.
    None: there are none."""
    rows: dict[str, Array] = {}
    """f32[S, n] by name: the new rows of the participants (`ClientState.rows`)."""
