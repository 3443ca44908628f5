"""CFL-GP against a plain numpy program."""

import functools

import numpy as np

from cfljax import keys
from cfljax.round.common import first_models
from tests import play, toy
from tests.methods.host_clusters import ALL, NET, SEED, check, federation
from tests.reference import cfl_gp as reference
from tests.reference import host_clusters, plain


def updates_of(t, w):
    """f64[n, d]: what all clients make of w, asked after t rounds."""
    root, clients = keys.root(SEED), plain.Clients(federation())
    key = keys.fold(keys.fold(root, "regroup", t) if t else root, "pretrain")
    return np.array(
        [
            plain.fit(NET, w, clients.train[i], plain.local_key(key, i), 0.1, batch=5)[0] - w
            for i in ALL
        ]
    )


def test_cfl_gp_follows_the_plain_program():
    clients, key = plain.Clients(federation()), functools.partial(plain.round_key, SEED)
    start = np.asarray(first_models(keys.root(SEED), toy.model(), 2), np.float64)
    rule, drawn = reference.cfl_gp(2, 1, updates_of), lambda t: plain.cohort(SEED, t, ALL, 5)
    models, labels = host_clusters.rounds(
        NET, clients, start, ALL * 0 - 1, key, drawn, rule, 5, average="uniform"
    )
    out = play.rounds("cfl_gp", federation(), 5, 5, SEED, clusters=2, period=1)
    check(out, models, labels)
    assert host_clusters.renamed(labels).tolist() == np.asarray(federation().group).tolist()
