"""Methods of 2024 and later against plain numpy programs, and where they differ from their
neighbours."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import Train, read_spec
from cfljax.errors import SpecError
from cfljax.kernels import host, simplex
from cfljax.methods import METHODS
from cfljax.methods.fedccfa import head_step
from cfljax.methods.fedgwc import split
from cfljax.methods.fedproto import head_rows
from cfljax.registry.options import list_traced
from cfljax.round.common import first_models
from cfljax.types import LocalStep
from tests import play, toy
from tests.methods.test_host_clusters import ALL, CLIENTS, NET, SEED, check, federation
from tests.often import rarely
from tests.reference import host_clusters, plain
from tests.reference import recent as reference

# OCFL of Zuziak


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


# CFL-GP


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


# Adaptive-FedAvg


def test_adaptive_fedavg_follows_the_plain_program():
    betas = {"beta1": 0.7, "beta2": 0.3, "beta3": 0.6}
    out = play.rounds("adaptive_fedavg", federation(), 6, 5, 0, lr=0.3, **betas)
    w, factors = reference.adaptive_fedavg(
        NET, plain.Clients(federation()), toy.start(0), 6, 5, 0.3, *betas.values()
    )
    assert np.abs(out.models()[0] - w).max() < 1e-5
    assert np.allclose([info.diag["rate"] for info in out.infos], factors[1:], rtol=1e-4)
    assert min(factors) < 0.3 < 1 == factors[1]


# SR-FCA


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


# FedRoD


def first_model_of(model):
    return np.asarray(first_models(keys.root(0), model, 1)[0], np.float64)


@pytest.mark.parametrize("labels", ["the same", "other ones"])
def test_fedrod_follows_the_plain_program(labels):
    """Also where labels change after the first round."""
    made, model = toy.federation("classes", clients=7, classes_per_client=2, seed=4), toy.model(7)
    made = made if labels == "the same" else toy.relabelled(made, round=1)
    out = play.rounds("fedrod", made, 3, 4, 0, lr=0.2, model=model)
    w, own = reference.fedrod(
        plain.Net(6, 4, 7),
        lambda t: plain.Clients(made.at(t)),
        first_model_of(model),
        3,
        4,
        0.2,
        4,
    )
    assert np.abs(np.asarray(out.method.also(out.states[-1])["global"][0][0]) - w).max() < 1e-5
    assert np.abs(out.models() - own).max() < 1e-5


def test_fedrod_needs_one_label_for_each_sample():
    with pytest.raises(SpecError, match='method.name = "fedrod": counts samples by their label'):
        METHODS.check("fedrod", {}, "method.fedrod").check_labels("method.fedrod")


# MOON


def test_moon_follows_the_plain_program():
    made, model, numbers = (
        toy.federation("classes", clients=7, classes_per_client=2, seed=4),
        toy.model(7),
        {"mu": 3.0, "tau": 0.4},
    )
    out, without = (
        play.rounds("moon", made, 4, 4, 0, lr=0.2, model=model, **numbers | off)
        for off in ({}, {"mu": 0.0})
    )
    w = reference.moon(
        plain.Net(6, 4, 7), plain.Clients(made), first_model_of(model), 4, 4, 0.2, **numbers
    )
    assert (
        np.abs(out.models()[0] - w).max()
        < 1e-5
        < 1e-3
        < np.abs(out.models() - without.models()).max()
    )
    assert np.allclose(
        without.models(),
        play.rounds("fedavg", made, 4, 4, 0, lr=0.2, model=model).models(),
        atol=1e-6,
    )


@pytest.mark.parametrize("name", ["moon", "fedpac"])
def test_methods_of_features_need_a_body(name):
    with pytest.raises(SpecError, match='model "mclr": has one layer, so its head is all of it'):
        play.rounds(name, federation(), 1)


# FedALA


def test_fedala_follows_the_plain_program():
    made, model = toy.federation("classes", clients=7, classes_per_client=2, seed=4), toy.model(7)
    numbers = {"eta": 30.0, "share": 0.7, "first_epochs": 3}
    out = play.rounds("fedala", made, 5, 4, 0, lr=0.2, model=model, **numbers)
    w, own, weights = reference.fedala(
        plain.Net(6, 4, 7), plain.Clients(made), first_model_of(model), 5, 4, 0.2, **numbers
    )
    assert np.abs(np.asarray(out.states[-1].w[0]) - w).max() < 1e-5
    assert np.abs(out.models() - own).max() < 1e-5
    kept = np.asarray(out.states[-1].home)[:, 2 * model.size - weights.shape[1] : 2 * model.size]
    assert np.abs(kept - weights).max() < 1e-4 and ((weights > 0.01) & (weights < 0.99)).any()


def test_fedala_that_learns_no_weights_is_fedavg():
    out, average = (
        play.rounds(name, federation(), 3, 3, 0, **more)
        for name, more in (("fedala", {"eta": 0.0}), ("fedavg", {}))
    )
    assert (
        np.array_equal(out.states[-1].w, average.models())
        and (out.models() == average.models()).all()
    )


# FedProto


def test_fedproto_follows_the_plain_program():
    made, model = toy.federation("classes", clients=7, classes_per_client=2, seed=4), toy.model(7)
    clients, net = plain.Clients(made), plain.Net(6, 4, 7)
    hypers = [{"lr": 0.2, "lam": 4.0}, {"lr": 0.2, "lam": 0.0}]
    out, other = play.batch("fedproto", made, 4, 3, [0, 0], hypers, model=model)
    own, protos, sent = reference.fedproto(net, clients, first_model_of(model), 4, 3, 0.2, 4.0)
    assert np.abs(out.models - own).max() < 1e-5
    assert [out.history[f"bytes_{way}"][-1] / 4 for way in ("down", "up")] == sent
    assert np.abs(other.models - own).max() > 1e-3
    right = total = 0
    for w, (x, y) in zip(own, clients.test, strict=True):
        near = [
            min(protos, key=lambda label: np.sum((z - protos[label]) ** 2))
            for z in net.features(w, x)
        ]
        right, total = right + np.sum(near == y), total + len(y)
    assert out.diag["accuracy_prototypes"][-1] == pytest.approx(right / total)


@pytest.mark.parametrize(
    "train", [{"privacy": {"clip": 1.0}}, {"compress": "sign"}, {"robust": "median"}], ids=str
)
def test_fedproto_refuses_what_is_for_updates(train):
    with pytest.raises(
        SpecError,
        match=f"train.{next(iter(train))} with method.fedproto: it sends prototypes, not updates",
    ):
        METHODS.check("fedproto", {}, "m").check_train("method.fedproto", Train(**train))


# FedPAC


def test_fedpac_weights_of_equal_clients_are_the_inverse_variances():
    v, there = np.array([0.2, 0.1, 0.4, 9.0], np.float32), np.array([True, True, True, False])
    found = jax.jit(simplex.combine_heads)(v, np.ones((4, 6), np.float32), there)
    assert np.allclose(found, [2 / 7, 4 / 7, 1 / 7, 0], atol=1e-3)


def test_fedpac_weights_of_clients_that_differ_much_are_their_own():
    far = 100 * np.eye(5, dtype=np.float32)
    assert np.allclose(
        jax.jit(simplex.combine_heads)(np.full(5, 0.1, np.float32), far, np.ones(5, bool)),
        np.eye(5),
        atol=1e-3,
    )


def test_fedpac_of_one_participant_and_without_a_pull_is_fedrep():
    """Adam shows that the body begins with a new optimiser."""
    made, model = toy.federation("dirichlet", clients=7, alpha=0.5, seed=2), toy.model(7)
    given = {
        "lr": 0.05,
        "model": model,
        "work": {"epochs": 2, "optimizer": "adam"},
        "head_epochs": 1,
    }
    ours, fedrep = (
        play.rounds(name, made, 4, 1, **given, **more)
        for name, more in (("fedpac", {"lam": 0.0}), ("fedrep", {}))
    )
    body = slice(0, 7 + 6 * 7)
    assert np.abs(ours.models()[:, body] - fedrep.models()[0, body]).max() < 1e-5
    assert np.abs(ours.models() - ours.models(0)).max() > 0.1


def test_fedpac_leaves_out_whose_features_are_not_finite():
    made, model = (
        toy.broken(toy.federation("dirichlet", clients=7, alpha=0.5, seed=2), 3, value=1e25),
        toy.model(7),
    )
    out = play.rounds("fedpac", made, 2, None, lr=0.0, model=model)
    centroids, size = np.asarray(out.states[-1].shared).reshape(4, -1), plain.Clients(made).size
    assert np.isfinite(centroids).all() and centroids[:, -1].sum() == size.sum() - size[3]
    assert np.allclose(out.models(), out.models(0), atol=1e-6)


@pytest.mark.parametrize(("head_epochs", "participants"), [rarely(1, 4), (2, 7)])
def test_fedpac_follows_the_plain_program(head_epochs, participants):
    made, model = toy.federation("dirichlet", clients=7, alpha=0.5, seed=2), toy.model(7)
    clients, net, given = (
        plain.Clients(made),
        plain.Net(6, 4, 7),
        {"head_epochs": head_epochs, "lam": 4.0},
    )
    out, other = play.batch(
        "fedpac",
        made,
        4,
        participants,
        [0, 0],
        [{"lr": 0.2, "lam": 4.0}, {"lr": 0.2, "lam": 0.0}],
        {"epochs": 2},
        model,
        head_epochs=head_epochs,
    )
    own, sent = reference.fedpac(
        net, clients, first_model_of(model), 4, participants, 0.2, epochs=2, **given
    )
    assert np.abs(out.models - own).max() < 1e-4 < 1e-3 < np.abs(other.models - own).max()
    assert [
        out.history[f"bytes_{way}"][-1] / 4 - 4 * participants * model.size
        for way in ("down", "up")
    ] == sent


# FedCCFA


def test_fedccfa_follows_the_plain_program():
    made, model = toy.federation("dirichlet", clients=9, alpha=0.7, seed=2), toy.model(7)
    clients, net = plain.Clients(made), plain.Net(6, 4, 7)
    numbers = {"head_lr": 0.3, "eps": 0.05, "gamma": 0.5, "tau": 0.3}
    lr = {"lr": 0.15, "momentum": 0.5}
    fixed = {"align_after": 1, "balanced_steps": 4, "balanced_samples": 3}
    others = [{"eps": 0.0}, {"gamma": 1e9}]
    hypers = [lr | numbers | other for other in ({}, *others)]
    out, *others = play.batch("fedccfa", made, 4, 6, [0] * 3, hypers, model=model, **fixed)
    own, sent, clusters = reference.fedccfa(
        net, clients, first_model_of(model), 4, 6, **lr, **numbers, **fixed
    )
    drawn = np.unique([plain.cohort(0, t, clients.uid, 6) for t in range(4)])
    assert np.abs(out.models - own)[drawn].max() < 1e-5
    assert [
        out.history[f"bytes_{way}"][-1] / 4 - 4 * 6 * model.size for way in ("down", "up")
    ] == sent
    assert any(1 < len(set(found)) < len(found) for found in clusters)
    assert all(np.abs(other.models - own)[drawn].max() > 1e-3 for other in others)


def test_fedccfa_s_heads_have_ten_times_the_rate_of_the_round():
    numbers = {"lr": 0.03, "momentum": 0.9}
    assert "head_lr" not in list_traced(METHODS.check("fedccfa", {}, "m"))
    assert head_step(numbers) == LocalStep.of(numbers)._replace(lr=10 * 0.03)
    assert head_step(numbers | {"head_lr": 0.5}) == LocalStep.of(numbers)._replace(lr=0.5)


def test_fedccfa_finds_which_classes_have_another_meaning_for_a_group():
    """And that a prototype is known is no mean: in float32 14 times 1/14 are more than 1."""
    made, model = toy.federation("label_swap", clients=14, groups=2, seed=1), toy.model(7)
    out = play.rounds("fedccfa", made, 6, None, 0, model=model, align_after=2)
    heads = out.models()[:, head_rows(model)]
    found = [
        host_clusters.renamed(np.unique(heads[:, c], axis=0, return_inverse=True)[1]).tolist()
        for c in range(4)
    ]
    swapped = np.ptp(np.asarray(made.view.labels), axis=0) > 0
    assert swapped.tolist() == [True, True, False, False]
    assert found == [np.asarray(made.group).tolist() if apart else [0] * 14 for apart in swapped]
    known = np.asarray(out.states[-1].shared)[:, :-1].reshape(14, 4, -1)[:, :, -1]
    assert (known == 1).all()
    assert [int(info.traffic.floats_down) for info in out.infos] == [0] + 5 * [14 * 4 * 7]


def test_fedccfa_needs_an_output_for_each_class():
    with pytest.raises(
        SpecError,
        match='model "three": has 3 outputs for 4 classes; take a model with one for each',
    ):
        METHODS.entry("fedccfa").options().first_shared(
            toy.model(7, classes=3)._replace(name="three"), federation()
        )


# FedGWC


@pytest.mark.parametrize(("eps", "gamma"), [(1.0, 4.0), rarely(1e-9, 4.0)])
def test_fedgwc_follows_the_plain_program(eps, gamma):
    made = toy.federation("label_permutation", clients=12, groups=2, seed=1)
    clients, w0 = plain.Clients(made), toy.start(SEED).astype(np.float64)
    options = {"clients_per_cluster": 3, "notes": 2, "eps": eps, "gamma": gamma, "max_clusters": 12}
    out = play.rounds("fedgwc", made, 9, None, SEED, **options)
    models, labels, ws = reference.fedgwc(NET, clients, w0, 9, 3, 0.1, 2, gamma, eps, SEED)
    check(out, dict(enumerate(models)), labels)
    for k, w in enumerate(ws):
        own = np.flatnonzero(labels == k)
        assert np.allclose(np.asarray(out.states[-1].memory[0])[np.ix_(own, own)], w, atol=1e-5)
    assert len(models) == (1 if eps < 1 else 4)


@pytest.mark.parametrize(
    ("given", "clients", "train", "said"),
    [
        ({}, {"clients": 20}, {}, []),
        ({}, {"clients": 20, "new_clients": {"share": 0.1}}, {}, ["20 members, and 18 clients"]),
        ({"clients_per_cluster": 6}, {"clients": 11}, {"participation": 0.5}, ["participation with", "12 members"]),
        ({"clients_per_cluster": 5}, {"clients": 11}, {"participation": 3}, ["clients_per_cluster = 5"]),
        ({"name": "ocfl"}, {"clients": 11}, {"participation": 0.5}, ["participation with"]),
        ({"name": "ifca"}, {"clients": 11}, {"participation": 0.5}, []),
    ],
)  # fmt: skip
def test_a_line_says_that_participation_is_not_used_and_that_no_cluster_can_split(
    given, clients, train, said
):
    table = {
        "data": {"name": "digits", "partition": "iid"} | clients,
        "model": "mclr",
        "train": {"rounds": 9} | train,
        "method": {"name": "fedgwc"} | given,
    }
    lines = read_spec(table).warnings
    assert len(lines) == len(said) and all(a in b for a, b in zip(said, lines, strict=True))


def test_fedgwc_tries_no_split_of_fewer_than_twice_the_participants_of_a_cluster():
    """As its program: of 19 members of which ten take part no split is tried, of 20 one is."""
    two = np.kron(np.eye(2), np.ones((10, 10)))
    for members, parts in ((19, 1), (20, 2)):
        w = two[:members, :members] + np.random.default_rng(0).uniform(0, 1e-3, (members, members))
        assert split(w, 1.0, min(int(members / 10) + 1, 5)).max() + 1 == parts


# WeCFL


@pytest.mark.parametrize(
    ("partition", "average", "participants", "compare"),
    [
        rarely("dirichlet", "samples", 6, "last"),
        rarely("label_permutation", "uniform", 9, "last"),
        ("dirichlet", "samples", 6, "whole"),
    ],
)
def test_wecfl_follows_the_plain_program(partition, average, participants, compare):
    options = {"alpha": 0.3} if partition == "dirichlet" else {"groups": 3}
    made, model = toy.federation(partition, clients=9, seed=0, **options), toy.model(7)
    w, last = (
        np.asarray(first_models(keys.root(0), model, 1)[0], np.float64),
        np.arange(6 * 7 + 7 + 4, model.size),
    )
    out = play.rounds(
        "wecfl",
        made,
        4,
        participants,
        0,
        lr=0.3,
        model=model,
        clusters=3,
        average=average,
        compare=compare,
    )
    columns = last if compare == "last" else slice(None)
    models, labels = reference.wecfl(
        plain.Net(6, 4, 7),
        plain.Clients(made),
        w,
        columns,
        3,
        4,
        participants,
        0,
        average == "samples",
    )
    check(out, models, labels)
    assert len(models) == 3


# FLUX


@pytest.mark.parametrize(
    ("part", "seed"),
    [({"partition": "label_permutation", "groups": 2}, 2), rarely({"partition": "dirichlet"}, 3)],
)
def test_flux_follows_the_plain_program(part, seed):
    """Two clients come after the clustering. In the first federation a tie decides the clusters."""
    options = {"alpha": 0.3} if part["partition"] == "dirichlet" else {}
    made = toy.replace(
        toy.federation(clients=10, seed=seed, **part, **options),
        arrive=np.array([0] * 8 + [3, 3], np.int32),
    )
    clients, model, net = plain.Clients(made), toy.model(7), plain.Net(6, 4, 7)
    out = play.rounds("flux", made, 4, None, seed, model=model, cluster_after=2, max_clusters=10)
    found, nearest = reference.flux(
        net, clients, out.models(2)[0].astype(np.float64), 4, np.arange(8)
    )
    before, own = np.array([0] * 8 + [-1, -1]), np.append(found, [-1, -1])
    assert np.array_equal(out.labels(1), before) and np.array_equal(out.labels(2), own)
    assert np.array_equal(out.labels()[8:], nearest[8:]) and len(set(found)) > 1
    # 5 parts of 4 directions, of which late clients send one
    assert [int(info.traffic.floats_up) for info in out.infos] == [
        0,
        0,
        8 * (2 * 5 * 4 + 1),
        2 * 2 * 4,
    ]
    w, key = (
        np.asarray(first_models(keys.root(seed), model, 1)[0], np.float64),
        functools.partial(plain.round_key, seed),
    )

    def rule(t, models, labels, updates):
        return (
            (models, labels) if t != 2 else (dict.fromkeys(range(found.max() + 1), models[0]), own)
        )

    models, _ = host_clusters.rounds(net, clients, w, before, key, lambda t: np.arange(8), rule, 3)
    assert max(np.abs(out.models(3)[k] - w).max() for k, w in models.items()) < 1e-5


def test_flux_bills_who_comes_later():
    """Before the clustering nobody describes anything; after it a client does so when it first
    takes part, by the model of the clustering."""
    made = toy.replace(
        toy.federation("label_permutation", groups=2, clients=10, seed=2),
        arrive=np.array([0] * 7 + [1, 3, 4], np.int32),
    )
    model = toy.model(7)
    out = play.rounds("flux", made, 6, None, 2, model=model, cluster_after=2, max_clusters=10)
    sent = [info.traffic for info in out.infos]
    assert [int(each.floats_up) for each in sent] == [0, 0, 8 * (2 * 5 * 4 + 1), 2 * 4, 2 * 4, 0]
    assert [int(each.vectors_down) for each in sent] == [7, 8, 8, 9 + 1, 10 + 1, 10]
    assert [int(each.vectors_up) for each in sent] == [7, 8, 8, 9, 10, 10]


@pytest.mark.parametrize("unit", [1, 1 / 3, 0.7])
@pytest.mark.parametrize(
    ("distances", "at"),
    [
        ([1, 1.1, 1.2, 1.3, 5, 9], 3),
        # no elbow
        ([0, 1, 2, 3, 4], 4),
        ([1, 1, 1, 1, 1], 4),
        # two that are each other's nearest: the mirrored curve is 0.55, 0.35, 0.4, 0.2, 0 above the
        # line, and 0.35 is not below 0.55 − 1/5, so that the elbow is where it is 0.4
        ([1, 1, 1, 2, 2, 5], 2),
        # three pairs: −0.2, 0.1, −0.1, 0.2, 0 are never below
        ([1, 1, 2, 2, 3, 3], 5),
    ],
)
def test_the_elbow_is_kneedle_s(distances, at, unit):
    assert host.elbow(np.array(distances) * unit) == at
