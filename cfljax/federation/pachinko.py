"""The Pachinko allocation of CIFAR-100 (Reddi et al. 2021, appendix F), for any data with coarse
labels over their classes.

Each client draws a mix of coarse labels from Dir(α), and for each coarse label a mix of its classes
from Dir(β). It draws its samples one after another: a coarse label, a class of it, and one of the
samples of that class that nobody has. A class without samples left is taken out, a coarse label
without classes left, too, and what is left of the mix is scaled up to 1. Clients draw one after
another.

Readings. Paper: 500 clients of 100 training samples. Here: all samples are divided evenly unless
`samples_per_client` is given. Paper: 100 other clients hold the test samples, divided in the same
way. Here: each client is tested on samples in its own mix of classes (`test = "own"`), or all on
the whole test set. Paper: not said what happens if all the weight of a mix lies on what is taken
out (to machine precision). Here: the rest is as likely each. The true group is a client's commonest
coarse label."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation import common
from cfljax.federation.common import Partition, Rng, Sized
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Pachinko(Sized):
    """Options of `pachinko`."""

    clients: int = option(500, "number of clients", low=1)
    alpha: float = option(
        0.1, "concentration of a client's mix of coarse labels: small is few of them", above=0
    )
    beta: float = option(10.0, "concentration of its mix of classes within a coarse label", above=0)


def pachinko(options: Pachinko, source: Source, rng: Rng) -> Parts:
    """Draw each client's coarse labels from Dir(alpha), and classes within them from Dir(beta), as
    in federated CIFAR-100."""
    common.check_single(source)
    if source.coarse is None:
        why = (
            f"{source.name} has no coarse labels; bring them as y_coarse_train (an integer per "
            "sample), or take dirichlet"
        )
        raise common.bad_option("partition", "pachinko", why)
    size = len(common.training_rows(options, source, rng)) // options.clients
    sizes = np.full(options.clients, size)
    train = allocate(source.y_train, source.coarse, sizes, options, rng)
    coarse = source.coarse[np.stack([source.y_train[mine] for mine in train])]
    group = np.array([np.bincount(mine).argmax() for mine in coarse], np.int32)
    return Parts(train, common.choose_test_part(options, train, source, rng), group)


def allocate(
    fine: np.ndarray, coarse: np.ndarray, sizes: np.ndarray, options: Pachinko, rng: Rng
) -> list[np.ndarray]:
    """Allocate rows to clients, `sizes` i[C] to each. fine i[n]: the class of each row; coarse
    i[classes]."""
    left = [np.flatnonzero(fine == y).tolist() for y in range(len(coarse))]
    of = [
        np.array([y for y in np.flatnonzero(coarse == c) if left[y]])
        for c in range(coarse.max() + 1)
    ]
    train = []
    for size in sizes:
        open_ = np.array([c for c, classes in enumerate(of) if len(classes)])
        mix = rng.dirichlet(np.full(len(open_), options.alpha))
        within = [rng.dirichlet(np.full(len(of[c]), options.beta)) for c in open_]
        mine = []
        for u in rng.random((size, 3)):
            at = _pick(mix, u[0])
            c = open_[at]
            y_at = _pick(within[at], u[1])
            pile = left[of[c][y_at]]
            mine.append(pile.pop(int(u[2] * len(pile))))
            # Nobody gets this class any more
            if not pile:
                of[c] = np.delete(of[c], y_at)
                within[at] = np.delete(within[at], y_at)
            if not len(of[c]):
                open_ = np.delete(open_, at)
                mix = np.delete(mix, at)
                del within[at]
        train.append(np.array(mine, np.int64))
    return train


def _pick(weights: np.ndarray, u: float) -> int:
    sums = np.cumsum(weights)
    if not sums[-1] > 0:
        return int(u * len(weights))
    return min(int(np.searchsorted(sums, u * sums[-1], side="right")), len(weights) - 1)


PACHINKO = Entry[Partition](Pachinko, pachinko)
