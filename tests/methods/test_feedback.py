"""Error feedback (`train.compress.feedback`) against a plain numpy program, what it conserves,
where it helps, and who has it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment import batching
from cfljax.experiment.batching import Size
from cfljax.kernels.mix import usable
from cfljax.local.attacks import Attack
from cfljax.local.compressors.int8 import Int8
from cfljax.local.compressors.sign import Sign
from cfljax.local.compressors.topk import TopK
from cfljax.local.send import Sending, receive
from cfljax.types import ClientState, Jobs
from tests import play, toy
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import feedback, plain

SEED, ROUNDS, PARTICIPANTS, KEEP = 5, 6, 5, 0.15
NET = plain.Net(6, 4)
TOP = Sending(TopK(keep=KEEP), feedback=True)
QUICK = ("ifca", "fedgroup")
REFUSED = ("scaffold", "feddyn", "cfl_mgd", "fedem", "fedrc", "ccs_rfedavg", "stocfl")
ROW = np.random.default_rng(0).normal(size=200).astype(np.float32)
arrived = jax.jit(receive, static_argnums=0)


def played(
    name="fedavg",
    sending=TOP,
    made=None,
    rounds=ROUNDS,
    participants=PARTICIPANTS,
    hyper=None,
    work=None,
    **options,
):
    work = {"batch": 5, "sending": sending} | (work or {})
    return play.rounds(
        name, made or federation(), rounds, participants, SEED, hyper=hyper, work=work, **options
    )


def whole_sum(sending, steps=20, **numbers):
    """(what a client sent over some rounds, what it keeps then, its updates summed), all of whole
    numbers."""
    hyper = {name.replace("_", "."): value for name, value in numbers.items()}
    rng, kept, sent, true = (
        np.random.default_rng(1),
        np.zeros(50, np.float32),
        np.zeros(50),
        np.zeros(50),
    )
    for t in range(steps):
        row = rng.integers(-8, 9, 50).astype(np.float32)
        told, kept = arrived(
            sending, hyper, keys.fold(keys.root(0), "t", t), np.int32(3), row, kept
        )
        true, sent = true + row, sent + np.asarray(told, np.float64)
    return sent, np.asarray(kept, np.float64), true


def test_fedavg_follows_the_plain_program():
    found = played()
    wanted = feedback.fedavg(
        NET,
        plain.Clients(federation()),
        toy.start(SEED),
        ROUNDS,
        PARTICIPANTS,
        0.1,
        KEEP,
        SEED,
        batch=5,
        epochs=1,
    )
    for state, (w, residual, true, sent) in zip(found.states[1:], wanted, strict=True):
        np.testing.assert_allclose(state.method.models[0], w, atol=2e-6)
        np.testing.assert_allclose(state.stages[0], residual, atol=2e-6)
        np.testing.assert_allclose(sent + residual, true, atol=1e-12)
    assert np.abs(np.asarray(found.states[-1].stages[0])).max() > 0.01


def test_what_is_sent_and_what_is_kept_are_all_updates_to_the_bit():
    sent, kept, true = whole_sum(Sending(TopK(keep=0.1), feedback=True))
    assert (sent + kept == true).all() and kept.any() and sent.any()
    for compressor in (Int8(), Sign()):
        sent, kept, true = whole_sum(Sending(compressor, feedback=True))
        np.testing.assert_allclose(sent + kept, true, atol=1e-3)


def test_liars_send_all_of_their_lies():
    sent, kept, true = whole_sum(
        Sending(TopK(keep=0.1), attack=Attack("sign_flip", 0.0), feedback=True),
        attack_share=1.0,
        attack_factor=2.0,
    )
    assert (sent + kept == -2 * true).all() and kept.any()


def test_clipping_cuts_what_arrives_and_is_not_fed_back():
    ones = np.ones(200, np.float32)
    rows = [
        arrived(TOP, hyper, keys.root(0), np.int32(0), ROW, ones)
        for hyper in ({}, {"privacy.clip": 0.5})
    ]
    assert (
        np.linalg.norm(rows[1][0]) == pytest.approx(0.5, rel=1e-5)
        and np.linalg.norm(rows[0][0]) > 1
    )
    np.testing.assert_array_equal(rows[0][1], rows[1][1])


@pytest.mark.parametrize("name", ["fedper"])
def test_where_all_is_sent_feedback_changes_nothing(name):
    options = play.options(name)
    whole, plainly = (
        played(name, Sending(TopK(keep=1.0), feedback=True), **options),
        played(name, Sending(), **options),
    )
    np.testing.assert_allclose(whole.models(), plainly.models(), atol=1e-6)
    assert not np.asarray(whole.states[-1].stages[0]).any()


def test_only_participants_with_finite_updates_change_what_they_keep():
    broken = toy.broken(federation(), 2)
    found = played(made=broken, rounds=4)
    taken = [
        np.asarray(plain.cohort(SEED, t, np.asarray(broken.uid), PARTICIPANTS)) for t in range(4)
    ]
    assert any(2 in ids for ids in taken) and sum(int(info.nonfinite) for info in found.infos) > 0
    for before, after, ids in zip(found.states, found.states[1:], taken, strict=False):
        changed = np.asarray(before.stages[0] != after.stages[0]).any(axis=1)
        assert set(np.flatnonzero(changed)) == set(ids) - {2}
    assert np.isfinite(found.models()).all() and not np.asarray(found.states[-1].stages[0][2]).any()


def test_a_client_that_breaks_later_keeps_what_it_had():
    for bad in (np.nan, np.inf):
        told, after = arrived(
            TOP,
            {},
            keys.root(0),
            np.int32(0),
            np.where(np.arange(200) == 7, np.float32(bad), 0),
            ROW,
        )
        assert not usable(told[None])[0] and np.array_equal(after, ROW)


def test_parts_that_stay_at_home_are_never_fed_back():
    name = "fedper"
    found = played(name, **play.options(name))
    residual = np.asarray(found.states[-1].stages[0])
    home = np.arange(residual.shape[1]) >= 7 + 42
    assert not residual[:, home].any() and residual[:, ~home].any()


@pytest.mark.parametrize("name", ["ifca"])
def test_a_method_keeps_what_was_dropped(name):
    who = None if name in play.EVERYBODY else PARTICIPANTS
    options = {
        "made": play.nine_clients(),
        "rounds": 3,
        "participants": who,
        "work": {"epochs": 1},
        **play.options(name),
    }
    fed, plainly = (played(name, TOP._replace(feedback=on), **options) for on in (True, False))
    assert np.isfinite(fed.models()).all() and np.asarray(fed.states[-1].stages[0]).any()
    assert np.array_equal(fed.models(0), plainly.models(0)) and np.allclose(
        fed.models(1), plainly.models(1), atol=1e-6
    )
    assert not np.allclose(fed.models(), plainly.models(), atol=1e-5)


def test_top_k_alone_stalls_and_with_feedback_arrives():
    """Two clients with f(w) = ½ ‖w − c‖², c = (±10, 1), which send one number each. The first one
    is always larger, and the two clients' cancel: without feedback w never leaves 0. With it w
    comes to the optimum (0, 1)."""
    goals = np.array([[10.0, 1.0], [-10.0, 1.0]])

    def last(sending):
        w, kept = np.zeros(2), [np.zeros(2, np.float32) if sending.feedback else None] * 2
        path = []
        for t in range(400):
            key, told = keys.fold(keys.root(0), "t", t), []
            for i, goal in enumerate(goals):
                row, kept[i] = arrived(
                    sending, {}, key, np.int32(i), (0.02 * (goal - w)).astype(np.float32), kept[i]
                )
                told.append(np.asarray(row, np.float64))
            w = w + np.mean(told, axis=0)
            path.append(w)
        return np.array(path)

    one = Sending(TopK(keep=0.5))
    stalled, fed = last(one), last(one._replace(feedback=True))
    assert (stalled == 0).all()
    assert np.abs(fed[-100:].mean(axis=0) - [0.0, 1.0]).max() < 0.05


@pytest.mark.parametrize(
    "plan",
    [{"stream": 2}, rarely({"lanes": 3}), rarely({"sequential": False}), rarely({"gram": 64})],
    ids=str,
)
def test_plans_change_nothing(plan):
    one, other = played(), played(work=plan)
    np.testing.assert_allclose(one.models(), other.models(), atol=2e-6)
    np.testing.assert_allclose(one.states[-1].stages[0], other.states[-1].stages[0], atol=2e-6)


@pytest.mark.parametrize("robust", [rarely("median"), "krum"])
def test_robust_rules_take_what_arrives(robust):
    found = played(
        sending=TOP._replace(robust=robust),
        hyper={"robust.liars": 0.2} if robust == "krum" else None,
    )
    np.testing.assert_array_equal(found.states[1].stages[0], played(rounds=1).states[1].stages[0])
    assert np.isfinite(found.models()).all()


def test_updates_that_are_made_for_a_choice_of_clusters_are_sent_without():
    found = played("ocfl", made=play.nine_clients(), rounds=0, **play.options("ocfl"))
    assert not np.asarray(found.states[0].stages[0]).any()


def test_where_true_groups_change_clients_take_along_what_they_keep():
    made, sending = federation(), TOP
    found = play.rounds(
        "oracle",
        toy.replace(made, groups=2, group=jnp.zeros(7, jnp.int32)),
        2,
        None,
        work={"sending": sending},
    )
    followed = found.method.follow(
        found.states[-1], toy.replace(made, group=jnp.ones(7, jnp.int32))
    )
    assert (np.asarray(found.method.models(followed)[1]) == 1).all()
    np.testing.assert_array_equal(followed.stages[0], found.states[-1].stages[0])


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_send_more_than_one_update_refuse_it_in_one_line(name):
    table = {
        "data": "digits",
        "method": name,
        "train": {"compress": {"name": "sign", "feedback": True}},
    }
    with pytest.raises(
        SpecError, match=f"train.compress.feedback = true with method.{name}: .*leave it out"
    ) as error:
        read_spec(table).runs()
    assert "\n" not in str(error.value)


def test_ids_and_memory():
    ways = ("sign", {"name": "sign", "feedback": False}, {"name": "sign", "feedback": True})
    made = [
        read_spec({"data": "digits", "method": "fedavg", "train": {"compress": way}}).runs()[0]
        for way in ways
    ]
    assert made[0].id == made[1].id != made[2].id
    assert made[0].train.vector_bytes(1000) == made[2].train.vector_bytes(1000)
    assert [batching.count_client_state(run, Size(10, 1000, 10)) for run in made] == [
        0,
        0,
        4 * 10 * 1000,
    ]
    (quiet,) = read_spec(
        {"data": "digits", "method": "local", "train": {"compress": ways[2]}}
    ).runs()
    assert (
        batching.count_client_state(quiet, Size(10, 1000, 10)) == 4 * 10 * 1000
    )  # of the models alone


def test_without_it_local_training_is_the_same_program():
    solver = toy.solver(toy.model(), batch=5, sending=Sending(TopK(keep=KEEP)))
    jobs = Jobs(
        jnp.arange(3), jnp.ones(3, bool), jnp.ones(3), jnp.zeros((1, 28)), jnp.zeros(3, jnp.int32)
    )
    fit = jax.jit(lambda jobs: solver.fit(keys.root(0), federation(), jobs, {"lr": 0.1}))
    text = fit.lower(jobs).as_text()
    more = fit.lower(
        jobs._replace(kept=ClientState(rows={"residual": jnp.zeros((7, 28))}))
    ).as_text()
    assert "7x28" not in text and "7x28" in more
