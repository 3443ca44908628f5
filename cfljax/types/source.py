"""Data before they are packed for the device: a data set, and how it is divided among clients."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np


class Source(NamedTuple):
    """HOST. A named data set as numpy arrays. The readers of `cfljax.data` return it."""

    name: str
    x_train: np.ndarray  # u8, f32 or i32 (token ids) [n_train, ...]
    y_train: np.ndarray
    """i32[n_train], 0 … classes − 1; or i32[n_train, classes] of 0 and 1, where a sample may have several labels."""
    x_test: np.ndarray  # [n_test, ...], of the type of `x_train`
    y_test: np.ndarray  # i32[n_test], or i32[n_test, classes]
    classes: int  # The number of classes
    user_train: np.ndarray | None = None  # i32[n_train]: the user who made each sample; None: the data set does not say
    user_test: np.ndarray | None = None  # i32[n_test]: the same for the test samples
    population: np.ndarray | None = None  # i32[users]: the true population of each user; None: the data set does not say
    table: np.ndarray | None = None
    """f32[vocabulary, width]: the vector of each token, which training does not change; None: x holds no token ids."""
    coarse: np.ndarray | None = None
    """i32[classes]: the coarse label of each class, −1 for a class without samples; None: the data set does not say."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """HOST. What a partition returns: the samples of each client. A row r is training sample r of the source if r is below
    n = `len(source.y_train)`, else its test sample r − n."""

    train: list[np.ndarray]
    """i64[n_i] the training rows of each client. A client with an empty array never trains and is only tested."""
    test: list[np.ndarray] | np.ndarray
    """i64[n_i] the test rows of each client, or one array of rows that all clients are tested on."""
    group: np.ndarray  # i32[C] the true group of each client; −1: unknown
    view: np.ndarray | None = None
    """i32[C] through which of the V views below each client sees its samples; None: all clients see the data unchanged."""
    pixels: np.ndarray | None = None
    """i32[V, F] the index, in the original flattened sample, of each value that the view shows (−1: the value is zero)."""
    labels: np.ndarray | None = None  # i32[V, classes] the label that replaces each label in the view
    gain: np.ndarray | None = None
    """f32[V] the factor of the view: a sample x becomes gain · x + offset, after the scaling of `Pool`."""
    offset: np.ndarray | None = None  # f32[V] the number that the view adds, see `gain`
    source: Source | None = None
    """The data set of the rows, if the partition has made a new one (by copying or drawing samples); None: the given one."""
    origin: np.ndarray | None = None  # i64[n]: of which original sample each training sample of `source` is a copy; None: of none
    by_group: np.ndarray | None = None
    """i32[G, C] through which view each client would see its samples in each true group, where views are combined (none, i32[0, C],
    where that is not a matter of a view alone); None: as the other clients of the group do."""
