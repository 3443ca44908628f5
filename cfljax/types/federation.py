"""Data, clients, and the participants of a round."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.types.arrays import Array


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
    """Of the same shape as `mean`."""
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
    """The number of true groups; 0: unknown."""

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
