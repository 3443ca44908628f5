"""SR-FCA against a plain numpy program, by distances and by losses, and what the latter cost."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play, toy
from tests.methods.host_clusters import ALL, CLIENTS, NET, SEED, check, federation
from tests.often import rarely
from tests.reference import host_clusters, plain
from tests.reference import sr_fca as reference

LOSSES = {"distance": "cross_entropy"}


@pytest.mark.parametrize(("fraction", "clusters"), [(0.3, 2), rarely(0.05, 2), rarely(0.9, 1)])
def test_sr_fca_follows_the_plain_program(fraction, clusters):
    follow_sr_fca(fraction, clusters, {})


@pytest.mark.parametrize(("fraction", "clusters"), [(0.3, 2), rarely(0.05, 2), rarely(0.9, 1)])
def test_sr_fca_by_losses_follows_the_plain_program(fraction, clusters):
    follow_sr_fca(fraction, clusters, LOSSES)


def follow_sr_fca(fraction, clusters, more):
    w0, clients, root = (
        toy.start(SEED).astype(np.float64),
        plain.Clients(federation()),
        keys.root(SEED),
    )
    alone = keys.fold(root, "pretrain")
    local = [
        plain.fit(NET, w0, clients.train[i], plain.local_key(alone, i), 0.1, batch=5, epochs=3)[0]
        for i in ALL
    ]

    def luck(t, n):
        return np.asarray(
            keys.scores(keys.fold(root, "regroup", t) if t else root, "pivots", np.arange(n))
        )

    def loss(w, i):
        return NET.loss(w, *clients.train[i])

    labels, rule = reference.sr_fca(
        w0, np.array(local), fraction, 2, 2, 1, luck, loss if more else None
    )
    models, key = dict.fromkeys(set(labels), w0), functools.partial(plain.round_key, SEED)
    start = np.array(list(models.values()))
    models, labels = host_clusters.rounds(
        NET, clients, start, labels, key, lambda t: plain.cohort(SEED, t, ALL, 5), rule, 4
    )
    options = {
        "fraction": fraction,
        "min_size": 2,
        "pretrain_epochs": 3,
        "refine_every": 2,
        "refinements": 1,
    }
    out = play.rounds("sr_fca", federation(), 4, 5, SEED, max_clusters=CLIENTS, **options | more)
    check(out, models, labels)
    assert len(models) == clusters


def by_losses(made, rounds=4, fraction=0.3):
    options = {"pretrain_epochs": 3, "refine_every": 2, "refinements": 1, "fraction": fraction}
    return play.rounds("sr_fca", made, rounds, 5, SEED, max_clusters=CLIENTS, **options | LOSSES)


def test_sr_fca_bills_the_models_whose_losses_it_compares():
    """Every client gets the local models of all others before the first round, and the clusters'
    models before a refinement."""
    out = by_losses(federation())
    pairs, clusters = CLIENTS * (CLIENTS - 1), int(out.states[1].active.sum())
    sent = [[int(n) for n in info.traffic] for info in out.infos]
    assert sent[0] == [5 + CLIENTS + pairs, 5 + CLIENTS, 0, pairs]
    assert sent[2] == [5 + CLIENTS * clusters, 5, 0, CLIENTS * clusters]
    assert sent[1] == sent[3] == [5, 5, 0, 0]


def test_sr_fca_leaves_broken_clients_out_of_comparisons_by_losses():
    pool, split = federation().pool, federation().train
    third, fourth = (
        np.asarray(split.rows)[int(split.start[c]) :][: int(split.count[c])] for c in (3, 4)
    )
    x = np.array(pool.x)
    x[np.intersect1d(third, fourth)] = np.nan  # samples that no others have
    made = toy.replace(federation(), pool=pool._replace(x=jnp.asarray(x)))
    out = by_losses(made, 3, 0.15)  # six pairs: those of three clients in each group
    healthy = ~np.isin(ALL, (3, 4))
    groups = host_clusters.renamed(np.asarray(federation().group)[healthy])
    for t in (0, 2):
        assert np.array_equal(host_clusters.renamed(out.labels(t)[healthy]), groups)
    assert out.labels(2)[~healthy].tolist() == [-1, -1]
    assert np.isfinite(out.models(3)[out.labels(3)[healthy]]).all()


def test_sr_fca_compares_no_sketches_by_losses():
    with pytest.raises(SpecError, match='m.similarity = "sketch": .*cross_entropy'):
        METHODS.check("sr_fca", LOSSES | {"similarity": "sketch"}, "m")
