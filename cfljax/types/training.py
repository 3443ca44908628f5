"""Models and local training: its plan, its jobs and the updates that it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from cfljax.types.arrays import Array, Hyper, Tree


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
    """Clients of at most this many samples are trained on their Gram matrix (cfljax.local.gram), where that is exact."""
    stream: int = 0
    """Methods that only need sums of updates take the participants in blocks of this size; 0: all at once."""
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
    """The updates that local training returns."""

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
