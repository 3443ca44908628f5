"""Methods with control variates (SCAFFOLD, FedDyn): where they come to rest, and what becomes of
the clients' vectors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.local.attacks import Attack
from cfljax.local.compressors.int8 import Int8
from cfljax.local.compressors.topk import TopK
from cfljax.local.send import Sending
from cfljax.methods import METHODS
from cfljax.registry.options import list_traced
from tests import play, toy
from tests.methods.control import NET, PARTICIPANTS, SEED, feddyn_is_plain, federation, play_on
from tests.methods.ways import WAYS
from tests.often import rarely
from tests.reference import plain

NAMES = ("scaffold", "feddyn")
both = pytest.mark.parametrize("name", NAMES)
LONG = {"batch": "full", "steps": 20}
DECAY = 0.1


@functools.cache
def optimum():
    """f64[d]: what minimises the mean over clients of their loss with weight decay."""
    clients, w = plain.Clients(federation()), toy.start(SEED)
    for _ in range(2000):
        w = w - 0.3 * (
            np.mean([NET.gradient(w, *data) for data in clients.train], axis=0) + DECAY * w
        )
    return w


def from_optimum(name, participants=None, **options):
    """How far a method is from the optimum after 200 rounds of many local steps."""
    out = play_on(
        name, LONG, {"weight_decay": DECAY}, rounds=200, participants=participants, **options
    )
    return float(np.linalg.norm(out.models()[0] - optimum()))


def test_fedavg_comes_to_rest_beside_the_common_optimum():
    assert from_optimum("fedavg", average="uniform") > 0.1


@pytest.mark.parametrize("participants", [rarely(None), 3])
@pytest.mark.parametrize(
    ("name", "options"), [("scaffold", {}), ("feddyn", {"alpha": 0.2})], ids=str
)
def test_both_come_to_rest_at_the_common_optimum(name, options, participants):
    assert from_optimum(name, participants, **options) < 1e-3


@both
def test_both_find_the_optimum_from_compressed_updates(name):
    way = LONG | {"sending": Sending(TopK(keep=0.5))}
    out = play_on(name, way, {"weight_decay": DECAY}, rounds=60, participants=None)
    assert np.linalg.norm(out.models()[0] - optimum()) < 1e-2


@both
@pytest.mark.parametrize(
    "sending",
    [rarely(Sending()), Sending(TopK(keep=0.2)), rarely(Sending(Int8()))],
    ids=["whole", "topk", "int8"],
)
def test_the_server_s_vector_is_the_mean_of_the_clients(name, sending):
    state = play_on(name, WAYS["batches"] | {"sending": sending}).states[-1]
    assert (
        np.allclose(state.control[0], np.asarray(state.rows).mean(axis=0), atol=1e-6)
        and np.abs(state.control).max() > 1e-3
    )


@both
def test_a_liar_does_not_believe_its_lie(name):
    lie = {"attack.share": 0.4, "attack.factor": 5.0}
    way = WAYS["batches"] | {"sending": Sending(attack=Attack("sign_flip", 0.0))}
    honest, lied_to = (
        play_on(name, way, lie | {"attack.share": share}, rounds=1, participants=None)
        for share in (0.0, 0.4)
    )
    assert np.array_equal(honest.states[1].rows, lied_to.states[1].rows)
    assert not np.allclose(honest.states[1].control, lied_to.states[1].control, atol=1e-3)


@both
def test_a_broken_client_harms_nobody(name):
    out = play_on(name, made=toy.broken(federation(), 1))
    state = out.states[-1]
    assert all(np.isfinite(each).all() for each in (state.models, state.control, state.rows))
    assert not np.any(state.rows[1]) and sum(int(info.nonfinite) for info in out.infos) > 0
    assert np.allclose(state.control[0], np.asarray(state.rows).mean(axis=0), atol=1e-6)


@both
def test_a_round_in_which_every_update_is_broken_changes_nothing(name):
    before = play_on(name).states[-1]
    assert np.abs(before.control).max() > 1e-3
    out = play_on(name, made=toy.broken(federation(), *range(7)), rounds=1, state=before)
    assert int(out.infos[0].nonfinite) == PARTICIPANTS and bool(out.infos[0].lost)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(out.states[-1]), strict=True)
    )


@both
def test_a_client_without_samples_does_not_count(name):
    made = toy.without_samples(federation(), 3)
    out = play_on(name, made=made, participants=7)
    assert np.allclose(
        out.states[-1].control[0], np.asarray(out.states[-1].rows).sum(axis=0) / 6, atol=1e-6
    )
    assert not np.any(out.states[-1].rows[3])
    if name == "feddyn":
        assert feddyn_is_plain(out, WAYS["batches"], made, 7, alpha=0.1)


@both
def test_a_round_without_participants_changes_nothing(name):
    state, key = play_on(name).states[-1], keys.root(0)
    hyper = {"lr": 0.1} | list_traced(METHODS.check(name, {}, "m"))
    nobody = play.drawn(key, federation(), PARTICIPANTS, 0, hyper)
    step = play.prepared(name, WAYS["batches"]).round
    hyper = {number: jnp.float32(value) for number, value in hyper.items()}
    after, info = step(
        key, state, federation(), nobody._replace(mask=np.zeros(PARTICIPANTS, bool)), hyper
    )
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True)
    )
    assert not any(int(each) for each in info.traffic)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("scaffold", {"lanes": 2}),
        rarely("feddyn", {"gram": 64}),
        rarely("scaffold", {"gram": 64}),
        rarely("feddyn", {"lanes": 2}),
    ],
    ids=str,
)
def test_other_plans_give_the_same(name, plan):
    usual, other = play_on(name), play_on(name, WAYS["batches"] | plan)
    assert np.allclose(usual.models(), other.models(), atol=1e-6)
    assert np.allclose(usual.states[-1].rows, other.states[-1].rows, atol=1e-5)


@pytest.mark.parametrize(("name", "vectors"), [("scaffold", 2), ("feddyn", 1)])
def test_what_is_sent(name, vectors):
    for info in play_on(name).infos:
        assert [int(each) for each in info.traffic] == [
            vectors * PARTICIPANTS,
            vectors * PARTICIPANTS,
            0,
            0,
        ]
