"""Sattler's CFL, FL+HC and PACFL against plain numpy programs, their identities, limits and
newcomers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.kernels import subspaces as kernel
from cfljax.methods import METHODS, cfl_sattler, pacfl
from cfljax.methods import fl_hc as fl_hc_module
from cfljax.round.state import State
from cfljax.types.federation import NEVER
from tests import play, toy
from tests.reference import host_clusters as reference
from tests.reference import plain

SEED, ROUNDS, CLIENTS = 2, 4, 8
NET = plain.Net(6, 4)
ALL = np.arange(CLIENTS)


@functools.cache
def federation():
    """Two groups of clients that call the classes by other names."""
    return toy.federation("label_permutation", clients=CLIENTS, groups=2, seed=1)


@functools.cache
def arriving():
    return toy.replace(federation(), arrive=jnp.array([0] * (CLIENTS - 1) + [3], jnp.int32))


def same(labels, others):
    return np.array_equal(reference.renamed(labels), reference.renamed(others))


def plain_rounds(between, labels=None, ids=None, rounds=ROUNDS):
    clients = plain.Clients(federation())
    labels = np.zeros(CLIENTS, int) if labels is None else labels
    key = functools.partial(plain.round_key, SEED)
    return reference.rounds(
        NET, clients, toy.start(SEED), labels, key, ids or (lambda t: ALL), between, rounds
    )


def check(out, models, labels):
    assert np.array_equal(out.labels(), labels)
    for k, w in models.items():
        assert np.abs(out.models()[k] - w).max() < 1e-5


# Sattler's CFL

SPLIT = {"min_rounds": 1, "max_clusters": 4}


def sattler(federation_=None, eps1=0.6, eps2=0.5, rounds=ROUNDS, hyper=None, **options):
    hyper = {"eps1": eps1, "eps2": eps2, "gamma_max": 0.0} | (hyper or {})
    return play.rounds(
        "cfl_sattler",
        federation_ or federation(),
        rounds,
        None,
        SEED,
        hyper=hyper,
        **(SPLIT | options),
    )


@pytest.mark.parametrize(("eps1", "eps2"), [(0.6, 0.5), (9.0, 0.0), (0.6, 9.0), (0.0, 0.5)])
def test_sattler_follows_the_plain_program(eps1, eps2):
    rounds = 3 if eps1 == 9.0 else ROUNDS  # with these numbers every cluster splits at each look
    rule = reference.sattler(plain.Clients(federation()), eps1, eps2, 1, 2, rounds)
    models, labels = plain_rounds(rule, rounds=rounds)
    check(sattler(eps1=eps1, eps2=eps2, rounds=rounds), models, labels)
    assert len(models) == {(0.6, 0.5): 2, (9.0, 0.0): 4}.get((eps1, eps2), 1)


@pytest.mark.parametrize("gamma_max", [0.0, 0.2, 1.0])
def test_sattler_guards_a_split_by_gamma_max(gamma_max):
    rule = reference.sattler(plain.Clients(federation()), 0.6, 0.5, 1, 2, ROUNDS, gamma_max)
    models, labels = plain_rounds(rule)
    check(sattler(hyper={"gamma_max": gamma_max}), models, labels)
    assert len(models) == (1 if gamma_max == 1 else 2)


def halves(similar, eps=(1.0, 0.0), norms=None, step=0.0, **more):
    """i32[n] the parts into which clients with these cosines are split. `norms`: of updates, whose
    mean has the norm `step`."""
    n = len(similar)
    nobody, norms = np.array([-1, -1]), np.ones(n) if norms is None else np.array(norms)
    looked = cfl_sattler.SplitStatistics(
        similar.astype(np.float32), norms, np.full(2, step), nobody, nobody.copy()
    )
    state = State(
        np.zeros((2, 1)), np.zeros(n, np.int32), active=np.array([True, False]), memory=looked
    )
    return cfl_sattler.split(state, np.arange(n), *eps, 1, 5, **more).labels


@pytest.mark.parametrize(
    ("norms", "step", "parts"),
    [([0.1, 0.1, 0.9], 0.3, 2), ([0.1, 0.1, 0.7], 0.3, 1), ([0.9, 0.9, 0.9], 0.5, 1)],
)
def test_a_split_needs_a_small_mean_of_updates_of_which_one_is_large(norms, step, parts):
    """With eps1 = 0.4 and eps2 = 0.8."""
    assert halves(np.eye(3), (0.4, 0.8), norms, step).max() + 1 == parts


@pytest.mark.parametrize(
    ("across", "gamma_max", "parts"),
    [(0.5, 0.0, 2), (0.5, 0.49, 2), (0.5, 0.51, 1), (-1.0, 0.99, 2)],
)
def test_a_split_needs_gamma_max_below_what_the_cosines_across_allow(across, gamma_max, parts):
    """γ_max < √((1 − α)/2), α being the largest cosine across: √(0.5/2) = 0.5."""
    similar = np.array([[1, 0.9, across], [0.9, 1, across], [across, across, 1]])
    assert halves(similar, gamma_max=gamma_max).max() + 1 == parts


def test_sattler_finds_the_groups_and_keeps_the_family_tree():
    out = sattler()
    assert same(out.labels(), np.asarray(federation().group))
    parent, born = out.states[-1].memory.parent, out.states[-1].memory.born
    assert parent.tolist() == [-1, 0, -1, -1] and born[0] == 0 and 1 <= born[1] < ROUNDS
    family = out.method.extras(out.states[-1])
    assert set(family) == {"parent", "born"}


def test_without_a_split_sattler_is_fedavg():
    out, average = sattler(eps1=0.0), play.rounds("fedavg", federation(), ROUNDS, None, SEED)
    assert np.allclose(out.models()[0], average.models()[0], atol=1e-6)
    assert [tuple(i.traffic) for i in out.infos] == [tuple(i.traffic) for i in average.infos]


def test_sattler_looks_at_declared_rounds_only():
    config = METHODS.check("cfl_sattler", {"min_rounds": 20, "split_every": 5}, "method")
    method = METHODS.entry("cfl_sattler").make(config, toy.model(), toy.solver(toy.model()))
    assert method.regroup_after(36) == (20, 25, 30, 35) and method.regroup_after(20) == ()


def test_sattler_leaves_small_clusters_whole():
    assert not sattler(min_size=CLIENTS).labels().any()
    state, uid = sattler().states[1], np.arange(CLIENTS)
    assert not cfl_sattler.split(state, uid, 9.0, 0.0, CLIENTS, 1).labels.any()
    assert cfl_sattler.split(state, uid, 9.0, 0.0, CLIENTS - 1, 1).labels.any()


def test_sattler_has_no_more_clusters_than_room():
    with pytest.raises(SpecError, match="max_clusters = 4"):
        sattler(eps1=9.0, eps2=0.0)


def test_sattler_survives_identical_clients():
    alike = sattler(toy.identical(federation()), eps1=9.0, eps2=0.0, rounds=2)
    assert np.isfinite(alike.models()).all()


def test_sattler_newcomers_join_the_cluster_with_the_least_loss():
    out = sattler(arriving())
    clients = plain.Clients(federation())
    assert all(out.labels(t)[-1] == -1 for t in range(4))
    at_arrival = out.models(3)[: out.states[3].active.sum()]
    losses = [NET.loss(w.astype(np.float64), *clients.train[-1]) for w in at_arrival]
    assert len(losses) == 2 and out.labels(4)[-1] == np.argmin(losses)
    scored = out.method.score(jax.tree.map(jnp.asarray, out.states[3]), arriving(), {})
    assert scored[-1] == np.argmin(losses) and np.array_equal(scored[:-1], out.labels(3)[:-1])


def test_sattler_wants_everybody_in_each_round():
    config = METHODS.check("cfl_sattler", {}, "method")
    for train in (Train(participation=0.5), Train(participation=4), Train(dropout=0.1)):
        with pytest.raises(SpecError, match="participation = 1.0"):
            config.check_run("method.cfl_sattler", train, None, None)
    config.check_run("method.cfl_sattler", Train(), None, None)


def test_sattler_runs_in_the_engine_between_its_chunks():
    hypers = [{"eps1": eps1, "eps2": 0.5, "gamma_max": 0.0} for eps1 in (0.6, 0.0)]
    seeds = [SEED, SEED]
    split, whole = play.batch(
        "cfl_sattler",
        federation(),
        ROUNDS,
        None,
        seeds,
        hypers,
        settings={"evaluations": ROUNDS},
        **SPLIT,
    )
    mine = sattler()
    assert np.array_equal(split.labels[-1], mine.labels()) and np.allclose(
        split.models, mine.models(), atol=1e-6
    )
    assert (
        split.history["clusters"][-1] == 2
        and split.history["ari"][-1] == 1.0
        and not whole.labels.any()
    )


# FL+HC

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


# PACFL


@functools.cache
def classes():
    """Three groups that hold two of the four classes each (0 1, 1 2, 2 3), or so."""
    return toy.federation("classes", clients=6, groups=3, classes_per_client=2, seed=4)


def run_pacfl(federation_=None, threshold=60.0, rounds=2, participants=6, **options):
    options = {"how": "labels", "threshold": threshold} | options
    return play.rounds("pacfl", federation_ or classes(), rounds, participants, SEED, **options)


@pytest.mark.parametrize("how", pacfl.HOW)
@pytest.mark.parametrize("p", [2, 3])
def test_pacfl_distances_follow_the_plain_program(how, p):
    by_label, formula = how in ("vectors", "labels"), "smallest" if how == "labels" else how
    data = [(x, y if by_label else np.zeros_like(y)) for x, y in plain.Clients(classes()).train]
    want = [
        [reference.angle_distance(a, b, p, formula) if a is not b else 0.0 for b in data]
        for a in data
    ]
    got = kernel.distances(pacfl.subspaces(classes(), np.arange(6), p, by_label), how)
    assert np.allclose(got, want, atol=1e-3)


def test_pacfl_angles_are_those_of_scipy():
    from scipy.linalg import subspace_angles

    bases = pacfl.subspaces(classes(), np.arange(6), 3, False).bases[:, 0]
    each = np.degrees([[subspace_angles(a.T, b.T) for b in bases] for a in bases])
    assert np.allclose(kernel.angles(bases, "smallest"), each.min(axis=2), atol=1e-5)
    assert np.allclose(kernel.angles(bases, "sum"), each.sum(axis=2), atol=1e-5)
    printed = [
        [np.trace(np.degrees(np.arccos(np.clip(np.abs(a @ b.T), 0, 1)))) for b in bases]
        for a in bases
    ]
    assert np.allclose(kernel.angles(bases, "trace"), printed, atol=1e-5)
    apart = ~np.eye(6, dtype=bool)
    assert (kernel.angles(bases, "trace") > kernel.angles(bases, "sum") + 1)[
        apart
    ].all()  # so the two are not the same thing


def test_pacfl_vectors_have_no_sign():
    sent = pacfl.subspaces(classes(), np.arange(6), 3, True)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], sent.bases.shape[:3])[..., None]
    for how in ("labels", "vectors"):
        assert np.allclose(
            kernel.distances(sent._replace(bases=sent.bases * signs), how),
            kernel.distances(sent, how),
            atol=1e-6,
        )


@pytest.mark.parametrize("linkage", ["average", "complete", "single"])
@pytest.mark.parametrize("threshold", [0.5, 60.0])
def test_pacfl_clusters_as_scipy_does(linkage, threshold):
    config = METHODS.check("pacfl", {"how": "labels", "linkage": linkage}, "method")
    method = METHODS.entry("pacfl").make(config, toy.model(), toy.solver(toy.model()))
    setup = method.setup(plain.keys.root(0), classes(), {"threshold": threshold})
    apart = kernel.distances(pacfl.subspaces(classes(), np.arange(6), 3, True), "labels")
    assert np.array_equal(setup["labels"], reference.cut(apart, threshold, linkage))
    assert setup["active"].tolist() == [k <= setup["labels"].max() for k in range(8)]


@pytest.mark.parametrize("threshold", [1.7, 2.0, 2.4])
def test_pacfl_by_default_clusters_as_its_authors_program_does(threshold):
    """Whose "average" is the mean of the two rows that it merges, however many clients they stand
    for."""
    whole = toy.federation("label_permutation", clients=12, groups=3, seed=4)
    method = METHODS.entry("pacfl").make(
        METHODS.check("pacfl", {}, "method"), toy.model(), toy.solver(toy.model())
    )
    labels = method.setup(plain.keys.root(0), whole, {"threshold": threshold})["labels"]
    data = plain.Clients(whole).train
    apart = np.array(
        [
            [reference.angle_distance(a, b, 3, "vectors") if a is not b else 0.0 for b in data]
            for a in data
        ]
    )
    assert (
        same(labels, reference.mean_of_rows(apart, threshold))
        and 1 < len(set(labels.tolist())) < 12
    )


def test_a_late_client_is_sent_all_models_in_use_once():
    """Three clients, of which the third comes in the second round, with three of eight places in
    use."""
    fed = toy.replace(classes(), arrive=jnp.array([0] * 5 + [1], jnp.int32))
    out = run_pacfl(fed)
    used = int(out.states[0].active.sum())
    assert [int(i.traffic.vectors_down) for i in out.infos] == [5, 6 + used - 1] and used > 1


def test_pacfl_clusters_once_and_averages_inside():
    out = run_pacfl()
    assert same(out.labels(0), np.asarray(classes().group)) and np.array_equal(
        out.labels(), out.labels(0)
    )
    clients, key = plain.Clients(classes()), functools.partial(plain.round_key, SEED)
    keep = lambda t, models, labels, updates: (models, labels)  # noqa: E731
    first = np.tile(toy.start(SEED), (3, 1))
    models, _ = reference.rounds(
        NET, clients, first, out.labels(0), key, lambda t: np.arange(6), keep, 2
    )
    check(out, models, out.labels(0))


def test_pacfl_sends_its_vectors_once():
    counts = [len(np.unique(y)) for _, y in plain.Clients(classes()).train]
    out = run_pacfl()
    assert [int(i.traffic.floats_up) for i in out.infos] == [sum(counts) * 3 * 6, 0]
    assert all(tuple(i.traffic[:2]) == (6, 6) for i in out.infos)


def test_a_wide_threshold_is_fedavg_and_a_narrow_one_is_everybody_alone():
    out, average = run_pacfl(threshold=1e9), play.rounds("fedavg", classes(), 2, 6, SEED)
    assert np.allclose(out.models()[0], average.models()[0], atol=1e-6)
    assert run_pacfl(threshold=0.0).labels().tolist() == list(range(6))
    assert not run_pacfl(toy.identical(classes()), threshold=0.0).labels().any()


def test_pacfl_newcomers_join_the_cluster_with_the_least_loss():
    fed = toy.replace(classes(), arrive=jnp.array([0] * 5 + [1], jnp.int32))
    out = run_pacfl(fed)
    assert out.labels(0)[-1] == out.labels(1)[-1] == -1
    w, (x, y) = out.models(1).astype(np.float64), plain.Clients(classes()).train[-1]
    active = out.states[1].active
    losses = [NET.loss(v, x, y) if used else np.inf for v, used in zip(w, active, strict=True)]
    assert out.labels(2)[-1] == np.argmin(losses)


@pytest.mark.parametrize("last", [0, NEVER], ids=["late", "late_and_new"])
def test_pacfl_bills_the_models_that_a_late_client_chooses_from(last):
    """Whether or not there are newcomers, who have a cluster by their data."""
    late = toy.replace(classes(), arrive=jnp.array([0, 0, 0, 0, 1, last], jnp.int32))
    out = run_pacfl(late, threshold=0.0)
    here = 5 + (last == 0)
    clusters = int(np.sum(np.asarray(out.states[0].active)))
    assert clusters == here - 1
    assert [int(info.traffic.vectors_down) for info in out.infos] == [
        here - 1,
        here + clusters - 1,
    ]


def test_leading_vectors_are_those_of_the_svd():
    rng = np.random.default_rng(0)
    for shape in ((40, 6), (6, 40), (2, 5), (1, 5)):
        x = rng.normal(size=shape)
        got = kernel.leading(x, 3)
        rank = min(*shape, 3)
        want = np.linalg.svd(x, full_matrices=False)[2][:rank]
        assert np.allclose(np.abs((got[:rank] * want).sum(axis=1)), 1) and not got[rank:].any()
    assert (
        not kernel.leading(np.zeros((4, 5)), 3).any()
        and not kernel.leading(np.zeros((0, 5)), 3).any()
    )
