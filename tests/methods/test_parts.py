"""Models that are shared in part (`train.parts`) against a plain numpy program, their identities,
what is sent, and refusals."""

import numpy as np
import pytest

import cfljax
from cfljax import keys, models
from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.federation import cohort
from cfljax.local.parts import divide_model
from cfljax.methods import METHODS
from cfljax.models.flat import head_of
from tests import play, toy
from tests.methods.parts import (
    HEAD,
    MODEL,
    NET,
    PARTICIPANTS,
    ROUNDS,
    SEED,
    kinds,
    made,
    run,
    starts,
    two_rounds,
)
from tests.often import every, rarely
from tests.play import seven_clients as federation
from tests.reference import parts, plain


@pytest.mark.parametrize("average", [rarely("uniform"), "samples"])
@pytest.mark.parametrize(
    "table",
    [
        rarely({"body": "all"}),
        rarely({"head": "all"}),
        rarely({"head": "client"}),
        {"body": "all", "head": "client"},
    ],
)
def test_ifca_in_parts_follows_the_plain_program(table, average):
    out = run("ifca", table, clusters=3, average=average)
    clients = plain.Clients(federation())
    wanted, own, labels = parts.run(
        NET, clients, starts(3), SEED, ROUNDS, PARTICIPANTS, kinds(table), average
    )
    state, home = out.states[-1], kinds(table) == "client"
    away = ~home
    assert np.array_equal(state.labels, labels)
    assert np.abs(np.asarray(state.models)[:, away] - wanted[:, away]).max() < 1e-5
    if home.any():
        assert np.abs(np.asarray(state.client_params) - own[:, home]).max() < 1e-5
        mine, guess = out.models(), np.asarray(state.scored_by)
        assert np.abs(mine - np.where(home, own, wanted[guess])).max() < 1e-5


@pytest.mark.parametrize(
    "way",
    [{"gram": 500}, rarely({"stream": 2}), rarely({"sequential": False}), rarely({"lanes": 2})],
    ids=str,
)
@pytest.mark.parametrize("table", [rarely({"body": "all"}), {"head": "client"}], ids=str)
def test_all_ways_of_training_give_the_same(table, way):
    plainly, other = (run("ifca", table, work, clusters=3, average="samples") for work in ({}, way))
    assert np.allclose(plainly.models(), other.models(), atol=1e-5)
    assert np.array_equal(plainly.labels(), other.labels())


METHODS_IN_PARTS = [
    name
    for name in METHODS
    if METHODS.check(name, {}, name).averaged and not METHODS.entry(name).options.parts
]


@pytest.mark.parametrize("name", ["fedgroup"])
def test_what_everybody_shares_is_equal_in_all_clusters_and_the_rest_is_not(name):
    out = two_rounds(name, {"body": "all"})[0]
    found = out.models()
    assert np.allclose(found[:, ~HEAD], found[0, ~HEAD]) and not np.allclose(
        found[0, ~HEAD], out.models(0)[0, ~HEAD]
    )
    if len(found) > 1:
        assert not np.allclose(found[:, HEAD], found[0, HEAD])


@pytest.mark.parametrize("name", every(METHODS_IN_PARTS, often=("ifca",)))
def test_what_stays_with_a_client_changes_with_its_own_training_only(name):
    out, fed, hyper = two_rounds(name, {"head": "client"})
    each = [keys.fold(keys.root(SEED), "round", t) for t in (0, 1)]
    drawn = [np.asarray(play.drawn(each[t], fed, PARTICIPANTS, t, hyper).ids) for t in (0, 1)]
    if name == "ocfl":  # draws some of each cluster
        labels = out.states[0].labels
        runs = [play.drawn(each[t], fed, PARTICIPANTS, t, hyper) for t in (0, 1)]
        own = [
            cohort.draw_inside(each[t], fed, labels, len(out.models(0)), 10, runs[t], hyper)
            for t in (0, 1)
        ]
        drawn = [np.asarray(some.ids)[np.asarray(some.mask)] for some in own]
    if name == "fl_hc":
        drawn[0] = np.arange(fed.clients)  # the warm-up
    for t in (0, 1):
        moved = np.any(
            np.asarray(out.states[t + 1].client_params) != np.asarray(out.states[t].client_params),
            axis=1,
        )
        assert sorted(np.flatnonzero(moved)) == sorted(drawn[t])
    heads = [
        np.asarray(getattr(state, METHODS.check(name, {}, name).averaged[0]))[:, HEAD]
        for state in out.states
    ]
    assert all(np.array_equal(head, heads[0]) for head in heads)


@pytest.mark.parametrize(
    "table", [rarely({"body": "all"}), {"body": "all", "head": "client"}], ids=str
)
def test_clusters_that_are_made_between_rounds_share_parts_as_others_do(table):
    numbers = {"threshold": np.float32(0.9)}
    out = run("fl_hc", table, hyper=numbers, warmup_rounds=0, metric="cosine", linkage="average")
    labels, clients = np.asarray(out.states[0].labels), plain.Clients(federation())
    assert labels.min() == 0 and (number := labels.max() + 1) > 1
    begin, home = np.tile(starts(1), (number, 1)), kinds(table) == "client"
    wanted, own, _ = parts.run(
        NET, clients, begin, SEED, ROUNDS, PARTICIPANTS, kinds(table), "samples", assign=labels
    )
    assert np.abs(np.asarray(out.states[-1].models)[:number, ~home] - wanted[:, ~home]).max() < 1e-5
    if home.any():
        assert np.abs(np.asarray(out.states[-1].client_params) - own[:, home]).max() < 1e-5


def test_a_split_copies_what_the_cluster_shares_and_new_clusters_have_what_all_share():
    tries = {
        name: np.float32(value)
        for name, value in {"eps1": 9.0, "eps2": 0.0, "gamma_max": 0.0}.items()
    }
    split = run(
        "cfl_sattler", {"body": "all"}, rounds=2, hyper=tries, min_rounds=1, max_clusters=7
    ).states[-1]
    assert np.sum(split.active) > 1 and not np.allclose(
        split.models[0, HEAD], split.models[np.unique(split.labels)[1], HEAD]
    )
    numbers = {name: np.float32(0) for name in ("eta_g", "mu")}
    anew = run(
        "fedgroup", {"body": "all"}, hyper=numbers, every=2, clusters=2, alpha=2, pretrain_steps=4
    )
    for found in (split.models, *(state.models for state in anew.states)):
        assert np.array_equal(
            found[:, ~HEAD], np.broadcast_to(found[0, ~HEAD], found[:, ~HEAD].shape)
        )
    assert np.asarray(anew.infos[2].traffic.vectors_up) > np.asarray(
        anew.infos[1].traffic.vectors_up
    )


def test_ocfl_whose_clusters_share_all_is_fedavg_whatever_the_run_draws():
    whole = {"body": "all", "head": "all"}
    found, average = (
        run("ocfl", whole, clients_per_cluster=7),
        play.rounds("fedavg", federation(), ROUNDS, 7, SEED, model=MODEL),
    )
    assert len(np.unique(found.labels())) > 1
    assert np.allclose(found.models(), average.models()[0], atol=1e-6)


@pytest.mark.parametrize("name", ["fedper", "ifca"])
def test_clients_with_a_part_of_their_own_are_scored_by_their_own_models(name):
    method, fed = made(name, (("head", "client"),), (), ())[0], federation()
    assert method.score(None, fed, {}).tolist() == [*range(fed.clients)] and not method.chooses


def test_a_broken_client_keeps_its_own_part_and_moves_nobody():
    drawn = int(plain.cohort(SEED, 0, np.arange(7), PARTICIPANTS)[0])
    out = run("fedavg", {"head": "client"}, fed=toy.broken(federation(), drawn))
    assert np.isfinite(out.models()).all() and sum(int(info.nonfinite) for info in out.infos) > 0
    assert np.array_equal(out.states[-1].client_params[drawn], out.states[0].client_params[drawn])


IN_PARTS = {"name": "ifca", "clusters": 2}
OF_SERVERS = {"parts": {"head": "client"}, "freeze": "head", "server": {"name": "adam", "lr": 0.1}}
OWN_SERVERS = [
    (name, {key: value}, f"train.{key}.* with method.{name}: the step of the server is its own")
    for name in ("scaffold", "feddyn")
    for key, value in OF_SERVERS.items()
]
BODY_SIZE, HEAD_SIZE = 49, 32


@pytest.mark.parametrize(
    ("method", "train", "down", "up"),
    [
        rarely("fedper", {}, BODY_SIZE, BODY_SIZE),
        rarely("lg_fedavg", {}, HEAD_SIZE, HEAD_SIZE),
        # all nine train in the warm-up, and once more for the clustering
        rarely(
            {"name": "fl_hc", "warmup_rounds": 1},
            {"parts": {"head": "client"}},
            BODY_SIZE * 23 / 10,
            BODY_SIZE * 23 / 10,
        ),
        (IN_PARTS, {"parts": {"body": "all"}}, 2 * HEAD_SIZE + BODY_SIZE, HEAD_SIZE + BODY_SIZE),
        rarely(IN_PARTS, {"parts": {"dense_0": "all", "dense_1": "client"}}, BODY_SIZE, BODY_SIZE),
        rarely("fedper", {"compress": {"name": "topk", "keep": 0.5}}, BODY_SIZE, 2 * 25),
        rarely("fedbabu", {}, BODY_SIZE, BODY_SIZE),
        rarely("fedavg", {"freeze": "body"}, HEAD_SIZE, HEAD_SIZE),
        rarely(IN_PARTS, {"freeze": "head"}, 2 * BODY_SIZE, BODY_SIZE),
        rarely(IN_PARTS, {"freeze": ["head"], "parts": {"body": "all"}}, BODY_SIZE, BODY_SIZE),
        rarely("fedavg", {"freeze": ["head", "dense_0/bias"]}, 42, 42),
        rarely("fedbabu", {"compress": {"name": "topk", "keep": 0.5}}, BODY_SIZE, 2 * 25),
    ],
    ids=str,
)
def test_bytes_are_those_of_what_travels(method, train, down, up):
    data = {
        "name": "blobs",
        "samples": 300,
        "features": 6,
        "classes": 4,
        "partition": "iid",
        "clients": 9,
    }
    more = {"rounds": 2, "participation": 5, "finetune_steps": 2}
    history = cfljax.run(method, data, {"name": "mlp", "hidden": [7]}, train=more | train).history
    assert (float(history["bytes_down"][-1]) / 40, float(history["bytes_up"][-1]) / 40) == (
        down,
        up,
    )


@pytest.mark.parametrize(
    ("method", "train", "told"),
    [
        (
            "ditto",
            {"parts": {"body": "all"}},
            "train.parts with method.ditto: it keeps other models",
        ),
        ("fedper", {"parts": {"body": "all"}}, "it has parts itself"),
        ("fedavg", {"parts": {"body": "some"}}, "train.parts.body"),
        ("fedavg", {"parts": {"conv": "all"}}, 'has no parameters "conv"'),
        ("fedavg", {"parts": {"body": "client", "head": "client"}}, 'use method "local"'),
        ({"name": "ifca", "aggregate": "gradient"}, {"parts": {"body": "all"}}, "aggregate"),
        ("fedrep", {"steps": 3}, "train.steps"),
        ("ditto", {"freeze": "head"}, "train.freeze with method.ditto: it keeps other models"),
        (
            "fedper",
            {"freeze": "body"},
            r"train.freeze with method.fedper: it has parts itself \(head = \"client\"\)",
        ),
        (
            "fedbabu",
            {"parts": {"body": "all"}},
            r"train.parts with method.fedbabu: it has parts itself \(head = \"frozen\"\)",
        ),
        ("fedavg", {"freeze": ["body", "head"]}, "train.freeze: no shared part is left to train"),
        (
            "fedavg",
            {"freeze": "head", "parts": {"head": "all"}},
            'train.freeze = "head": train.parts lists it too',
        ),
        ("fedavg", {"freeze": "conv"}, 'has no parameters "conv"'),
        ("fedavg", {"freeze": []}, r"train.freeze = \[\]: must name a part"),
        ("fedavg", {"finetune_steps": -1}, "train.finetune_steps = -1: must be at least 0"),
        *OWN_SERVERS,
    ],
)
def test_what_cannot_be_is_refused_in_one_line(method, train, told):
    with pytest.raises(SpecError, match=told) as caught:
        cfljax.run(method, "digits", "mlp", rounds=1, train=train)
    assert "\n" not in str(caught.value)


def test_heads_are_the_last_dense_layers():
    cnn = models.build("cnn", {}, (28, 28, 1), 10)
    assert (
        head_of(cnn) == "head/dense_1" and head_of(models.build("lstm", {}, (5, 3), 3)) == "dense_1"
    )
    assert head_of(models.build("cnn_cifar", {}, (32, 32, 3), 10)) == "out"
    with pytest.raises(SpecError, match="one layer"):
        divide_model(toy.model(), [("head", "client")])


@pytest.mark.parametrize("name", ["moon", "fedpac"])
def test_methods_of_features_need_a_body(name):
    with pytest.raises(SpecError, match='model "mclr": has one layer, so its head is all of it'):
        play.rounds(name, federation(), 1)


def test_an_unset_table_and_one_of_clusters_only_are_no_part_of_the_id():
    assert Train(parts={"body": "cluster"}) == Train() and Train(parts={"body": "all"}) != Train()
