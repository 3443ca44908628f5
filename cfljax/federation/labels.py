"""Partitions by label: sorted shards, a few classes per client, Dirichlet mixes."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation.common import Rng, Sized, class_counts, commonest, cut, evenly, label_of, mirror, test_rows, wrong
from cfljax.options import option
from cfljax.registry import Entry
from cfljax.types import Parts, Source


CUT_HELP = '"shards": the test part is cut like the training part; "classes": by each client\'s class mix'


@dataclasses.dataclass(frozen=True)
class Shards(Sized):
    """Options of `shards`."""

    shards: int = option(2, "shards per client", low=1)
    holdout: float = option(0.0, "share of the training samples that becomes the test part; 0: the source's test set", low=0, high=0.9)
    test_cut: str = option("shards", CUT_HELP, choices=("shards", "classes"))


def _shards(rows: np.ndarray, source: Source, owner: np.ndarray) -> list[np.ndarray]:
    """Rows sorted by label and cut into `owner.size` shards; a client gets those at its row of `owner` [C, shards]."""
    pieces = cut(rows[np.argsort(label_of(source, rows), kind="stable")], evenly(len(rows), owner.size))
    return [np.concatenate([pieces[s] for s in of]) for of in owner]


def shards(options: Shards, source: Source, rng: Rng) -> Parts:
    """Samples sorted by label and cut into shards, which are dealt at random (OCFL's non-IID and non-IID2).

    The true group is a client's commonest label.
    """
    kept = len(source.y_train) - int(round(options.holdout * len(source.y_train)))
    rows = rng.permutation(len(source.y_train))
    rows, held_out = rows[:kept], rows[kept:] if options.holdout else rng.permutation(test_rows(source))
    pieces = options.clients * options.shards
    if pieces > kept:
        raise wrong("clients", options.clients, f"{pieces} shards of {kept} training samples; at most {kept // options.shards}")
    if options.samples_per_client is not None:
        if options.samples_per_client * options.clients > kept:
            why = f"{options.clients} clients share {kept} training samples; at most {kept // options.clients}"
            raise wrong("samples_per_client", options.samples_per_client, why)
        rows = rows[: options.samples_per_client * options.clients]
    owner = rng.permutation(pieces).reshape(options.clients, options.shards)
    train = _shards(rows, source, owner)
    test: list[np.ndarray] | np.ndarray = held_out
    if options.test == "own":
        by_mix = options.test_cut == "classes"
        test = mirror(class_counts(train, source), held_out, source, rng) if by_mix else _shards(held_out, source, owner)
    return Parts(train, test, commonest(train, source))


SHARDS = Entry(Shards, shards)
