"""PACFL against a plain numpy program, its angles and clusterings, its identities and newcomers."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.kernels import subspaces as kernel
from cfljax.methods import METHODS, pacfl
from cfljax.types.federation import NEVER
from tests import play, toy
from tests.methods.host_clusters import NET, SEED, check, same
from tests.reference import host_clusters as reference
from tests.reference import plain


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
