"""FL+HC against a plain numpy program, its clusterings, its limits and newcomers."""

import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.methods import METHODS
from cfljax.methods import fl_hc as fl_hc_module
from tests import play, toy
from tests.methods.host_clusters import (
    ALL,
    CLIENTS,
    NET,
    ROUNDS,
    SEED,
    arriving,
    check,
    federation,
    plain_rounds,
    same,
)
from tests.reference import host_clusters as reference
from tests.reference import plain

HC = {"warmup_rounds": 2, "max_clusters": CLIENTS - 1}


def fl_hc(federation_=None, threshold=0.9, participants=5, **options):
    hyper = {"threshold": threshold}
    return play.rounds(
        "fl_hc",
        federation_ or federation(),
        ROUNDS,
        participants,
        SEED,
        hyper=hyper,
        **(HC | options),
    )


def clustering_updates(w, federation_):
    """What all clients send for the clustering, and who they are."""
    key = plain.keys.fold(plain.keys.fold(plain.keys.root(SEED), "regroup", 2), "pretrain")
    clients = plain.Clients(federation_)
    each = [
        plain.fit(NET, w, clients.train[i], plain.local_key(key, i), 0.1, batch=5)[0] - w
        for i in ALL
    ]
    return np.array(each)


@pytest.mark.parametrize(("metric", "linkage", "unit", "threshold"), [
    ("l1", "complete", "median", 0.9), ("l2", "average", "median", 0.7), ("cosine", "single", "absolute", 0.4),
    ("l2", "ward", "median", 1.5),
])  # fmt: skip
def test_fl_hc_clusters_updates_as_scipy_does(metric, linkage, unit, threshold):
    updates = clustering_updates(toy.start(SEED), federation()).astype(np.float32)
    config = METHODS.check("fl_hc", {"metric": metric, "linkage": linkage, "unit": unit}, "method")
    labels = config.cluster(
        updates, host.distance_matrix(updates, fl_hc_module.METRICS[metric]), threshold
    )
    assert np.array_equal(
        labels, reference.fl_hc_labels(updates, metric, linkage, threshold, unit == "median")
    )
    assert 1 < len(set(labels)) < CLIENTS


def test_equal_updates_are_one_cluster():
    config = METHODS.check("fl_hc", {}, "method")
    for n in (1, 5):
        assert not config.cluster(np.ones((n, 3)), np.zeros((n, n)), 0.9).any()


def test_the_threshold_of_fl_hc_is_in_median_distances():
    """Of 0, 1 and 10 it is 9, and the largest is 10; their mean is 6.7."""
    config, points = METHODS.check("fl_hc", {}, "method"), np.array([[0.0], [1.0], [10.0]])
    for threshold, clusters in ((1.0, 2), (1.2, 1)):
        labels = config.cluster(points, host.distance_matrix(points, "l1"), threshold)
        assert labels.max() + 1 == clusters


def test_fl_hc_follows_the_plain_program():
    def between(t, models, labels, updates):
        if t == 2:
            labels = reference.fl_hc_labels(
                clustering_updates(models[0], federation()), "l1", "complete", 0.9, True
            )
            models = {k: models[0].copy() for k in range(labels.max() + 1)}
        return models, labels

    ids = lambda t: ALL if t < 2 else plain.cohort(SEED, t, ALL, 5)  # noqa: E731
    models, labels = plain_rounds(between, ids=ids)
    assert len(models) > 1
    check(fl_hc(), models, labels)


def test_fl_hc_finds_the_groups_and_counts_what_is_sent():
    out = fl_hc()
    assert same(out.labels(), np.asarray(federation().group)) and not out.labels(1).any()
    assert [int(i.traffic.vectors_up) for i in out.infos] == [8, 8, 5 + 8, 5]
    assert [int(i.traffic.vectors_down) for i in out.infos] == [8, 8, 5 + 8, 5]


def test_fl_hc_has_no_more_clusters_than_room():
    with pytest.raises(SpecError, match="max_clusters = 7"):
        fl_hc(threshold=0.0)


def test_fl_hc_newcomers_join_after_the_clustering():
    out = fl_hc(arriving(), participants=CLIENTS)
    assert all(out.labels(t)[-1] == -1 for t in range(4)) and out.labels(4)[-1] >= 0
    assert same(out.labels(4), np.asarray(federation().group))


def test_fl_hc_refuses_what_cannot_be():
    with pytest.raises(SpecError, match="ward"):
        METHODS.check("fl_hc", {"linkage": "ward"}, "method")
    with pytest.raises(SpecError, match="warmup_rounds = 10"):
        METHODS.check("fl_hc", {}, "method").check_run("method.fl_hc", Train(rounds=10), None, None)
