"""`train.server` against a plain numpy program, its identities, and whose state it leaves alone."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.config.optimisers import list_optimisers
from cfljax.devices.machine import describe_machine
from cfljax.engine.simulate import simulate
from cfljax.experiment import batching
from cfljax.experiment.assemble import assemble
from cfljax.methods import METHODS
from cfljax.round.common import first_models
from cfljax.round.stages import add_stages
from cfljax.round.stages.server import Server
from cfljax.types import Method
from tests import play, toy
from tests.methods.served import PARTICIPANTS, ROUNDS, SEED, run
from tests.often import every, rarely
from tests.play import seven_clients as federation
from tests.reference import plain, server

SERVED = [name for name in METHODS if METHODS.check(name, {}, name).moved_by_server]
QUICK = ("fedavg", "ifca")
SERVERS = {
    "momentum": (("sgd", (("momentum", 0.9),)), lambda d: server.Momentum(d, 0.5, 0.9)),
    "adam": (("adam", (("eps", 1e-3),)), lambda d: server.Adam(d, 0.5, 1e-3)),
    "yogi": (("yogi", (("eps", 1e-3),)), lambda d: server.Adam(d, 0.5, 1e-3, yogi=True)),
    "fedadam": (("fedadam", ()), lambda d: server.Printed(d, 0.5, "adam", 0.9)),
    "fedyogi": (
        ("fedyogi", (("tau", 1e-2), ("b1", 0.5))),
        lambda d: server.Printed(d, 0.5, "yogi", 0.5, tau=1e-2),
    ),
    "fedadagrad": (("fedadagrad", ()), lambda d: server.Printed(d, 0.5, "adagrad", 0.0)),
    "adagrad": (("adagrad", ()), lambda d: server.Adagrad(d, 0.5, 1e-7)),
}


def starts(k, model=None):
    return np.asarray(first_models(keys.root(SEED), model or toy.model(), k), np.float64)


@pytest.mark.parametrize("kind", every(SERVERS, often=("fedadam",)))
@pytest.mark.parametrize(
    ("name", "k", "average"), [rarely("fedavg", 1, "samples"), ("ifca", 3, "uniform")]
)
def test_rounds_follow_the_plain_program(name, k, average, kind):
    optimiser, plainly = SERVERS[kind]
    out = run(name, optimiser, **({"clusters": k} if k > 1 else {}))
    wanted = server.run(
        plain.Net(6, 4),
        plain.Clients(federation()),
        starts(k),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        plainly,
        average,
    )
    for t, (models, members) in enumerate(wanted):
        assert np.abs(out.models(t + 1) - models).max() < 1e-4, t
        for row in np.flatnonzero(members == 0):  # nobody was there: model and state stay
            assert out.models(t + 1)[row].tobytes() == out.models(t)[row].tobytes()
            before, after = (
                jax.tree.map(lambda a, row=row: np.asarray(a)[row], s.stages[0].clusters)
                for s in out.states[t : t + 2]
            )
            assert all(
                a.tobytes() == b.tobytes()
                for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
            )
    assert k == 1 or any((members == 0).any() and t for t, (_, members) in enumerate(wanted))
    assert (
        np.abs(out.models() - run(name, None, **({"clusters": k} if k > 1 else {})).models()).max()
        > 0.05
    )


@pytest.mark.parametrize("name", ["ifca"])
def test_sgd_with_rate_one_is_the_method_itself(name):
    options = play.options(name)
    model, fed = options.pop("model", None), jax.device_put(play.nine_clients())
    both = [
        run(name, each, 1.0, model=model, rounds=3, fed=fed, participants=5, **options)
        for each in (None, ("sgd", ()))
    ]
    assert np.allclose(both[0].models(), both[1].models(), atol=1e-5) and np.array_equal(
        both[0].labels(), both[1].labels()
    )
    for plainly, served in zip(*(out.infos for out in both), strict=True):
        assert np.allclose(plainly.train_loss, served.train_loss, atol=1e-5)
    half = run(name, ("sgd", ()), 0.25, model=model, rounds=3, fed=fed, participants=5, **options)
    assert np.abs(half.models() - both[0].models()).max() > 1e-3


def test_joint_compares_with_the_moves_that_the_server_made():
    out = run("joint", ("sgd", ()), 0.25, clusters=2)
    for before, after in zip(out.states[:-1], out.states[1:], strict=True):
        assert np.allclose(
            after.method.memory, after.method.models - before.method.models, atol=1e-7
        )


@pytest.mark.parametrize("newcomer", [rarely("latest"), "auxiliary"])
def test_newcomers_are_compared_with_models_that_the_server_has_moved(newcomer):
    out = run(
        "fedgroup", ("sgd", ()), 0.25, clusters=2, alpha=2, pretrain_steps=4, newcomer=newcomer
    )
    for before, after in zip(
        (each.method for each in out.states[:-1]),
        (each.method for each in out.states[1:]),
        strict=True,
    ):
        compass, models = after.memory, np.asarray(after.models)
        start = models[np.asarray(compass.active)].mean(axis=0)
        moves = models - np.asarray(before.models)
        latest = np.where(np.asarray(compass.moved)[:, None], moves, before.memory.directions)
        from_start = np.where(np.asarray(compass.active)[:, None], models - start, 0.0)
        assert np.allclose(
            compass.directions, latest if newcomer == "latest" else from_start, atol=1e-6
        )
        assert np.allclose(compass.start, start, atol=1e-6) and compass.moved.any()


def test_a_part_of_a_cluster_goes_on_with_the_state_that_the_whole_had():
    tries, everybody = (
        {"min_rounds": 2, "eps1": 9.0, "eps2": 0.0, "max_clusters": 7},
        {"participants": 7},
    )
    out = run("cfl_sattler", SERVERS["momentum"][0], rounds=3, **tries, **everybody)
    alone = run("fedavg", SERVERS["momentum"][0], rounds=2, **everybody)
    split, momentum = out.states[2].method, jax.tree.leaves(out.states[2].stages[0].clusters)
    assert np.sum(split.active) == 2 and np.allclose(split.models[0], alone.models()[0], atol=1e-6)
    assert all(
        np.array_equal(each[0], each[1]) and np.any(each[0]) and not np.any(each[2])
        for each in momentum
    )
    assert np.allclose(
        split.memory.steps[0], np.linalg.norm(alone.models(2) - alone.models(1)), atol=1e-6
    )


def test_methods_without_lasting_clusters_are_not_served():
    none, others, own = (
        {"local", "fedbcd", "fedproto"},
        {"stocfl", "feddrift", "wecfl"},
        {"scaffold", "feddyn"},
    )
    assert set(METHODS) - set(SERVED) == none | others | own | {
        "fedamp",
        "gossip",
        "pfedgraph",
        "fedpac",
        "fedccfa",
    }


HIDDEN = 7
HEAD = np.arange(toy.model(HIDDEN).size) >= HIDDEN + 6 * HIDDEN


def test_what_everybody_shares_has_an_optimiser_of_its_own():
    optimiser, plainly = SERVERS["adam"]
    out = run("ifca", optimiser, table={"body": "all"}, model=toy.model(HIDDEN), clusters=3)
    net, clients = plain.Net(6, 4, HIDDEN), plain.Clients(federation())
    wanted = server.run(
        net,
        clients,
        starts(3, toy.model(HIDDEN)),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        plainly,
        "uniform",
        ~HEAD,
    )
    for t, (models, members) in enumerate(wanted):
        found = out.models(t + 1)
        assert np.abs(found - models).max() < 1e-4
        assert all(np.array_equal(row[~HEAD], found[0, ~HEAD]) for row in found)
        for row in np.flatnonzero(members == 0):
            assert np.array_equal(found[row, HEAD], out.models(t)[row, HEAD])


def test_what_stays_with_a_client_is_out_of_the_servers_reach():
    decays = ("adamw", (("weight_decay", 0.5),))
    out = run("fedper", decays, model=toy.model(HIDDEN), rounds=2)
    plainly = run("fedper", None, model=toy.model(HIDDEN), rounds=2)
    first = out.states[0].method.models
    assert np.array_equal(out.states[-1].method.models[:, HEAD], first[:, HEAD])
    assert np.array_equal(out.states[1].method.client_params, plainly.states[1].client_params)
    assert not np.allclose(
        out.states[1].method.models[:, ~HEAD], plainly.states[1].models[:, ~HEAD], atol=1e-3
    )


@pytest.mark.parametrize("head", [rarely("all"), "client", rarely("frozen")])
def test_no_part_needs_to_be_a_clusters_own(head):
    def of(body, head):
        return run(
            "fedavg",
            SERVERS["adam"][0],
            table={"body": body, "head": head},
            model=toy.model(HIDDEN),
        )

    shared, own = (
        of("all", head),
        of("cluster", "cluster" if head == "all" else head),
    )  # one cluster is everybody
    assert shared.states[-1].stages[0].clusters is None and own.states[-1].stages[0].common is None
    assert np.allclose(shared.models(), own.models(), atol=1e-6)
    assert np.abs(shared.models() - shared.models(0)).max() > 0.05


def test_a_client_is_scored_by_the_cluster_that_is_best_after_the_servers_step():
    model, rest = (
        toy.model(HIDDEN),
        {"table": {"head": "client"}, "rounds": 1, "participants": 2, "clusters": 3},
    )
    state = run("ifca", ("sgd", ()), 40.0, model=model, **rest).states[-1].method
    labels, found = np.asarray(state.labels), np.asarray(state.scored_by)
    assert np.array_equal(found[labels >= 0], labels[labels >= 0])
    net, clients = plain.Net(6, 4, HIDDEN), plain.Clients(federation())
    for c in np.flatnonzero(labels < 0):
        mine = np.array(state.models, np.float64)
        mine[:, HEAD] = state.client_params[c]
        assert found[c] == np.argmin([net.loss(w, *clients.train[c]) for w in mine])
    before = np.asarray(run("ifca", None, model=model, **rest).states[-1].scored_by)
    assert not np.array_equal(found, before)  # by the plain mean it would be another


class Two(NamedTuple):
    models: jax.Array
    labels: np.ndarray


def toward():
    """A method of two clusters whose rounds move the first one by hyper["change"] f32[d] and the
    other not at all."""

    def init(key, federation, hyper, setup):
        return Two(first_models(key, toy.model(HIDDEN), 2), np.zeros(7, np.int32))

    def round(key, state, federation, cohort, hyper):
        return state._replace(models=state.models.at[0].add(hyper["change"])), None

    return Method(init, round, lambda state: (state.models, state.labels))


def moved(name, arguments=()):
    """(the first state, the step) of two clusters with this optimiser: step(state, change f32[d],
    lr) moves the first one."""
    method = add_stages(toward(), (Server("models", name, arguments, toy.model(HIDDEN)),))

    @jax.jit
    def step(state, change, lr):
        return method.round(None, state, None, None, {"server.lr": lr, "change": change})[0]

    return jax.jit(
        lambda: method.init(keys.root(0), None, {"server.lr": np.float32(0.1)}, {})
    )(), step


@pytest.mark.parametrize("kind", SERVERS)
def test_steps_are_those_of_the_plain_optimiser(kind):
    optimiser, plainly = SERVERS[kind]
    state, step = moved(*optimiser)
    changes = np.random.default_rng(0).normal(size=(5, toy.model(HIDDEN).size)).astype(np.float32)
    w, own = np.asarray(state.method.models[0], np.float64), plainly(changes.shape[1])
    for change in changes:
        state, w = step(state, change, np.float32(0.5)), w + own.step(-change.astype(np.float64))
        assert np.abs(state.method.models[0] - w).max() < 1e-4


@pytest.mark.filterwarnings("ignore:Specifying a key")
@pytest.mark.parametrize(
    "name",
    every(
        set(list_optimisers()) - {"noisy_sgd"},
        often=("adafactor", "sm3"),
    ),
)
def test_any_optimiser_of_optax_serves(name):
    model = toy.model(HIDDEN)
    change = -np.random.default_rng(0).normal(size=model.size).astype(np.float32)
    state, step = moved(name)
    after = step(
        step(state, change, np.float32(0.1)), change, np.float32(0.1)
    )  # the first step of some does nothing
    assert jax.tree.structure(after) == jax.tree.structure(state)
    pairs = list(zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True))
    assert all(a.dtype == b.dtype and a.shape == b.shape for a, b in pairs)
    assert np.isfinite(after.method.models).all() and not np.array_equal(
        after.method.models[0], state.method.models[0]
    )
    kept = jax.tree.map(
        lambda a: np.asarray(a)[1], (state.stages[0].clusters, after.stages[0].clusters)
    )
    assert np.array_equal(after.method.models[1], state.method.models[1])
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, kept), strict=True))


BLOBS = {
    "name": "blobs",
    "samples": 300,
    "features": 6,
    "classes": 4,
    "partition": "label_permutation",
    "clients": 9,
    "groups": 2,
}


def spec(rates, name="ifca", seeds=(0,), **train):
    table = {"name": "adam", "lr": rates, "b1": 0.8}
    made = {
        "rounds": 4,
        "participation": 4,
        "batch": 5,
        "lr": 0.1,
        "eval_every": 2,
        "server": table,
    } | train
    method = {"name": name} | ({"clusters": 2} if name == "ifca" else {})
    return read_spec(
        {"data": BLOBS, "model": "mclr", "train": made, "method": [method], "seeds": list(seeds)}
    ).runs()


def outputs(runs, places=None, **more):
    """Outputs of a batch of these runs; `places`: which of them, else the first."""
    (batch,) = batching.make_batches(runs, len(runs))
    parts = assemble(batch.first, batch.width, describe_machine())
    settings = parts.settings._replace(sequential=more.pop("sequential", True))
    parts = parts._replace(settings=settings, program_key=batch.program_key)
    at = range(len(runs)) if places is None else places
    return simulate(parts, [batch.seeds[i] for i in at], [batch.hypers[i] for i in at], **more)


def test_rates_share_a_program_and_each_run_is_the_run_alone_to_the_bit():
    made = spec([0.01, 0.1], seeds=(0, 1))
    assert (
        len({batching.static_key(run) for run in made}) == 1 and len({run.id for run in made}) == 4
    )
    together = outputs(made)
    for i, each in enumerate(together):
        assert not play.unlike(each, outputs(made, [i])[0])
    assert np.abs(together[0].models - together[-2].models).max() > 1e-3


@pytest.mark.long
def test_chunks_and_resuming_give_the_same_bits():
    made, kept = spec(0.1), []
    whole = outputs(made)[0]
    parts = outputs(made, chunk_rounds=2, checkpoint=lambda make: kept.append(make()))[0]
    assert not play.unlike(whole, parts)
    middle = next(point for point in kept if point.done == 2)
    assert any("mu" in name for name in middle.carry)  # the state of Adam
    assert not play.unlike(whole, outputs(made, resume=middle)[0])


@pytest.mark.long
def test_blocks_and_lanes_do_not_matter():
    plainly = outputs(spec(0.1))[0]
    for plan in ({"stream": 2}, {"lanes": 0}):
        assert np.allclose(plainly.models, outputs(spec(0.1, plan=plan))[0].models, atol=1e-5)
