"""Parts of a model that all clients, a cluster or nobody shares (`train.parts`), or that do not
train (`train.freeze`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.mix import usable
from cfljax.lazy import jax, jnp
from cfljax.local import send
from cfljax.local.schedule import Task
from cfljax.local.send import Sending
from cfljax.local.train import Turns
from cfljax.models.flat import (
    columns_of_statistics,
    fix_statistics,
    mask_head,
    norm_of,
    part_of,
)
from cfljax.types import Array, Federation, Hyper, Model, Updates

# Who shares a part: all clients, the members of a cluster, or nobody; or it does not train in the
# rounds
ALL = "all"
CLUSTER = "cluster"
CLIENT = "client"
FROZEN = "frozen"
# Names of parts, beside the paths of parameters
BODY = "body"
HEAD = "head"
NORM = "norm"


@dataclasses.dataclass(frozen=True)
class ModelParts:
    """Who shares which numbers of the flat parameter vector. Static: equal divisions are equal."""

    # The number d of parameters
    size: int
    # (begin, end, kind) of consecutive numbers of one kind, in their order
    runs: tuple[tuple[int, int, str], ...]
    head: tuple[tuple[int, int], ...] = ()
    """(begin, end) of the numbers of the head, for methods that train it apart from the body."""

    def columns(self, *kinds: str) -> np.ndarray:
        """Return i32[n]: the positions in the vector of the parts of these kinds, ascending."""
        found = [
            np.arange(begin, end, dtype=np.int32) for begin, end, kind in self.runs if kind in kinds
        ]
        return np.concatenate([np.zeros(0, np.int32), *found])

    @cached_property
    def shared(self) -> np.ndarray:
        """Return i32[n]: the positions that everybody shares."""
        return self.columns(ALL)

    @cached_property
    def home(self) -> np.ndarray:
        """Return i32[n]: the positions that stay with the client."""
        return self.columns(CLIENT)

    @cached_property
    def away(self) -> np.ndarray:
        """Return i32[d − n]: the positions that travel."""
        return self.columns(ALL, CLUSTER)

    @cached_property
    def kept(self) -> np.ndarray:
        """Return i32[n]: the positions that do not travel."""
        return self.columns(CLIENT, FROZEN)

    @cached_property
    def frozen(self) -> np.ndarray:
        """Return i32[n]: the positions that do not train."""
        return self.columns(FROZEN)


def divide_model(
    model: Model, table: Iterable[tuple[str, str]], head_apart: bool = False
) -> ModelParts:
    """Divide a model by a table of pairs (name, kind). A name is `body`, `head`, `norm` or a prefix
    of the paths of parameters. A path counts before `norm`, `norm` before `body` and `head`, and of
    paths the longest; parameters without a match are of kind "cluster". `head_apart`: the
    method trains the head separately."""
    # Later assignments win: the most general names first
    kinds = np.full(model.size, CLUSTER, dtype="<U7")
    head = np.zeros(model.size, bool)
    named = dict(table)
    if head_apart or named.keys() & {BODY, HEAD}:
        head = mask_head(model)
        for name, which in ((BODY, ~head), (HEAD, head)):
            kinds[which] = named.get(name, CLUSTER)
    if NORM in named:
        kinds[norm_of(model)] = named[NORM]
    for name in sorted(named.keys() - {BODY, HEAD, NORM}, key=len):
        kinds[part_of(model, name)] = named[name]
    if not np.isin(kinds, (ALL, CLUSTER)).any():
        if FROZEN in kinds:
            raise SpecError("train.freeze: no shared part is left to train; freeze fewer parts")
        raise SpecError('train.parts: nothing is shared; use method "local"')
    ends = [*np.flatnonzero(kinds[1:] != kinds[:-1]) + 1, model.size]
    runs = [(int(a), int(b), str(kinds[a])) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], head, [0]])))
    return ModelParts(
        model.size, tuple(runs), tuple((int(a), int(b)) for a, b in edges.reshape(-1, 2))
    )


def freeze_statistics(model: Model, parts: ModelParts) -> Model:
    """Return the model whose frozen layers of BatchNorm use their running statistics in training:
    these statistics do not follow the batches, and the model is scored with them."""
    frozen = np.isin(np.arange(parts.size), parts.frozen)
    fixed = frozenset(path for path in model.statistics if frozen[part_of(model, path)].any())
    return fix_statistics(model, fixed) if fixed else model


def find_sent_statistics(model: Model, parts: ModelParts | None) -> tuple[int, ...]:
    """Return the positions of running statistics of batches in the vector that travels."""
    columns = columns_of_statistics(model)
    sent = columns if parts is None else columns[parts.away]
    return tuple(np.flatnonzero(sent).tolist())


def insert_home(parts: ModelParts | None, own: Array | None, client: Array, start: Array) -> Array:
    """Insert the client's parameters, of all f32[C, n], into the model f32[d]."""
    return start if parts is None or own is None else start.at[parts.home].set(own[client])


def mask_home(parts: ModelParts | None, row: Array) -> Array:
    """Set the client-side and frozen parts of the row f32[d] to zero."""
    return row if parts is None or not parts.kept.size else row.at[parts.kept].set(0.0)


def split_home(parts: ModelParts | None, updates: Updates) -> Updates:
    """Separate the client-side part of one participant's update. If it is broken, the participant
    sends nothing usable."""
    if parts is None or not parts.home.size:
        return updates
    home = updates.delta[parts.home]
    delta = jnp.where(usable(home[None])[0], mask_home(parts, updates.delta), jnp.nan)
    velocity = None if updates.velocity is None else mask_home(parts, updates.velocity)
    return updates._replace(delta=delta, velocity=velocity, home=home)


def receive(
    sending: Sending,
    parts: ModelParts | None,
    hyper: Hyper,
    key: Array,
    uid: Array,
    row: Array,
    residual: Array | None = None,
    unit: Array | float = 1.0,
) -> tuple[Array, Array | None]:
    """Do what `send.receive` does with the parts of row and residual f32[d] that travel; the rest
    of both is zero."""
    if parts is None or not parts.kept.size:
        return send.receive(sending, hyper, key, uid, row, residual, unit)
    away = None if residual is None else residual[parts.away]
    sent, left = send.receive(sending, hyper, key, uid, row[parts.away], away, unit)

    def insert_zeros(travels: Array) -> Array:
        return jnp.zeros_like(row).at[parts.away].set(travels)

    return insert_zeros(sent), None if left is None else insert_zeros(left)


def send_parts(
    sending: Sending,
    parts: ModelParts | None,
    one_vector: bool,
    lr: Array,
    hyper: Hyper,
    federation: Federation,
    task: Task,
    updates: Updates,
) -> Updates:
    """Return the updates of one participant as the server receives them. The change of its momentum
    buffer is sent, too; times `lr` it has the scale of an update. With `one_vector` only the buffer
    is sent, and the update is computed from it. It comes with the client's new residual, if there
    is one."""
    uid = federation.uid[task.client]

    def arrive(
        of: tuple[Array, Array | None, Array | None],
    ) -> tuple[Array, Array | None, Array | None]:
        delta, velocity, left = of
        if one_vector and velocity is not None:
            buffer = receive(sending, parts, hyper, task.key, uid, velocity, unit=lr)[0]
            return -lr * buffer, buffer, left
        delta, left = receive(sending, parts, hyper, task.key, uid, delta, left)
        if velocity is None or task.velocity is None:
            return delta, None, left
        # A key of its own: with the update's, the rounding of both vectors would be correlated
        own_key = keys.fold(task.key, "velocity")
        change = receive(sending, parts, hyper, own_key, uid, velocity - task.velocity, unit=lr)[0]
        return delta, task.velocity + change, left

    # Padding sends nothing, and takes no time if clients train one after another
    delta, velocity, left = jax.lax.cond(
        task.mask,
        arrive,
        lambda of: of,
        (updates.delta, updates.velocity, task.rows.get("residual")),
    )
    rows = updates.rows if left is None else updates.rows | {"residual": left}
    return updates._replace(delta=delta, velocity=velocity, rows=rows)


def make_turns(parts: ModelParts | None, epochs: int) -> Turns | None:
    """Return which parts train when: the first `epochs` epochs train the head. None: all parts
    train in all epochs."""
    if parts is None or not (epochs or parts.frozen.size):
        return None
    head = np.zeros(parts.size, bool)
    for begin, end in parts.head:
        head[begin:end] = True
    return Turns(epochs, head, _training_mask(parts))


def kernel_trains(parts: ModelParts | None, model: Model, kernel: tuple[str, ...]) -> bool:
    """Return whether the layer with the kernel at this path of keys trains; if not, no Gram matrix
    is needed."""
    return (
        parts is None
        or not parts.frozen.size
        or bool(_training_mask(parts)[part_of(model, "/".join(kernel))].any())
    )


def _training_mask(parts: ModelParts) -> np.ndarray:
    return ~np.isin(np.arange(parts.size), parts.frozen)
