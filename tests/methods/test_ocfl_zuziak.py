"""Zuziak's OCFL against a plain numpy program, and when it clusters."""

import functools

import numpy as np
import pytest

from cfljax.errors import SpecError
from tests import play, toy
from tests.methods.host_clusters import ALL, CLIENTS, NET, SEED, check, federation
from tests.often import rarely
from tests.reference import host_clusters, plain
from tests.reference import ocfl_zuziak as reference


def zuziak(rounds=5, **options):
    return play.rounds(
        "ocfl_zuziak", federation(), rounds, None, SEED, **{"max_clusters": CLIENTS} | options
    )


@pytest.mark.parametrize("algorithm", [rarely("mean_shift"), "hdbscan"])
def test_ocfl_zuziak_follows_the_plain_program(algorithm):
    rule, heats = reference.zuziak(algorithm)
    clients, key = plain.Clients(federation()), functools.partial(plain.round_key, SEED)
    models, labels = host_clusters.rounds(
        NET, clients, toy.start(SEED), ALL * 0, key, lambda t: ALL, rule, 5
    )
    check(zuziak(algorithm=algorithm), models, labels)
    assert len(heats) == 2 and len(models) > 1
    assert algorithm == "mean_shift" or np.array_equal(labels, federation().group)


def test_ocfl_zuziak_clusters_once_when_the_temperature_has_risen():
    out = zuziak(1)
    cosines, _ = out.states[-1].memory
    heat = np.float32(
        np.linalg.norm(1 - np.asarray(cosines, np.float64)) / np.sqrt(4 * CLIENTS * (CLIENTS - 1))
    )
    for last, clusters, kept in (
        (np.inf, 1, heat),
        (heat + 0.01, 1, heat),
        (heat, 1, heat),
        (heat - 0.01, 5, np.inf),
    ):
        before = out.states[-1]._replace(memory=(cosines, np.float32(last)))
        after = out.method.regroup(plain.round_key(SEED, 0), before, federation(), {}, 2)
        assert after.active.sum() == clusters and np.isclose(after.memory[1], kept)


def test_ocfl_zuziak_has_no_more_clusters_than_room():
    with pytest.raises(
        SpecError, match="method.ocfl_zuziak.max_clusters = 2: there are 6 clusters"
    ):
        zuziak(max_clusters=2)
