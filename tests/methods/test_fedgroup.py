"""FedGroup: every option against a plain loop over clients, and the neighbours it reduces to."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.engine.program import Settings
from cfljax.engine.settings import Assembled
from cfljax.engine.simulate import simulate
from cfljax.errors import SpecError
from cfljax.kernels.mix import Rule
from cfljax.methods import METHODS
from cfljax.round.pretrain import means
from tests import play, toy
from tests.often import rarely
from tests.reference import plain
from tests.reference.fedgroup import Options, Work, fedgroup

WORK = {"epochs": 2, "batch": 5}
BASE = {"clusters": 2, "alpha": 3, "pretrain_steps": 6}
LATEST = {
    "cold_start": "madc", "newcomer": "latest", "inter_group": "normalised", "eta_g": 0.1,
    "average": "uniform", "snapshots": True,
}  # fmt: skip


@functools.cache
def federation(groups=2, clients=12):
    return toy.federation("label_permutation", seed=3, clients=clients, groups=groups)


def close(states, method, wanted):
    models, labels = play.models_of(method, states)
    for t, (right, assigned) in enumerate(wanted):
        np.testing.assert_array_equal(labels[t], assigned, err_msg=f"round {t}")
        np.testing.assert_allclose(
            models[t], right, atol=1e-5 * np.abs(right).max(), err_msg=f"round {t}"
        )


@pytest.mark.parametrize("options", [
    rarely({}), rarely({"mu": 0.5, "eta_g": 0.1}), LATEST,
    rarely({"newcomer": "auxiliary", "inter_group": "weighted", "eta_g": 0.2, "pretrain_epochs": 1, "pretrain_steps": 50}),
    rarely({"cold_start": "rcc", "assign": "random"}), rarely({"assign": "random", "rac": "always"}),
], ids=("edc", "mu", "madc-latest", "auxiliary", "rcc-rac", "rac-always"))  # fmt: skip
def test_agrees_with_a_plain_loop_over_clients(options):
    options = BASE | options
    states, infos, method = play.rounds(
        "fedgroup", federation(), rounds=4, participants=4, work=WORK, **options
    )
    net, clients, w0 = plain.Net(6, 4), plain.Clients(federation()), toy.start()
    names, options = (
        np.asarray(states[0].labels),
        {k: v for k, v in options.items() if k != "snapshots"},
    )
    wanted, before = fedgroup(net, clients, w0, names, 0, 4, 4, Work(0.1, 5, 2), Options(**options))
    close(states, method, wanted)
    # one model down and one update up per participant and per pre-training, in the round in which
    # it happens
    assert [[int(n) for n in info.traffic] for info in infos] == [
        [4 + n, 4 + n, 0, 0] for n in before
    ]
    assigned = [(labels >= 0).sum() for _, labels in wanted]
    assert [int(i.diag["newcomers"]) for i in infos] == np.diff(assigned).tolist()
    assert [int(i.diag["members"].sum()) for i in infos] == assigned[1:]


@pytest.mark.parametrize("newcomer", ["initial", "latest"])
def test_clients_without_a_group_are_scored_with_the_one_they_would_join(newcomer):
    options = BASE | ({} if newcomer == "initial" else LATEST)
    states, _, method = play.rounds(
        "fedgroup", federation(), rounds=1, participants=4, work=WORK, **options
    )
    labels, hyper = np.asarray(states[1].labels), {"lr": jnp.float32(0.1), "mu": jnp.float32(0)}
    chosen = np.asarray(method.score(states[1], federation(), hyper))
    assert (labels < 0).any() and np.array_equal(chosen[labels >= 0], labels[labels >= 0])
    group = np.asarray(federation().group)
    assert np.array_equal(chosen == chosen[0], group == group[0])


def test_whoever_is_scored_without_a_group_gets_the_learning_rate_of_the_round():
    """Pre-training for scoring takes the step that a newcomer of the next round would take."""
    model = toy.model()
    method = METHODS.entry("fedavg").make(
        METHODS.check("fedavg", {}, "method"), model, toy.solver(model)
    )

    def seen(state, federation, hyper):
        return jnp.where(hyper["lr"] < 0.3, 1, 0) * jnp.ones(12, jnp.int32)

    pair = method._replace(
        models=lambda state: (jnp.stack([state.models[0], 0 * state.models[0]]), state.labels),
        score=seen,
    )
    hyper = {"lr": 1.0, "lr_decay": 0.5}
    (out,) = simulate(
        Assembled(pair, model, federation(), Settings(3, 4, evaluations=4)), [0], [hyper]
    )
    by_zeros = np.abs(out.history["loss"] - np.log(4)) < 1e-5
    assert by_zeros.tolist() == [False, False, True, True]


def test_a_broken_founder_is_left_out_and_joins_later():
    whole = federation()
    founders = np.flatnonzero(
        play.rounds("fedgroup", whole, rounds=0, participants=4, work=WORK, **BASE)[0][
            0
        ].memory.founder
    )
    states, infos, _ = play.rounds(
        "fedgroup", toy.broken(whole, founders[0]), rounds=4, participants=4, work=WORK, **BASE
    )
    assert int(states[0].labels[founders[0]]) == -1 and bool(states[0].memory.founder[founders[0]])
    assert np.isfinite(states[-1].models).all() and all(np.isfinite(i.discrepancy) for i in infos)


def test_late_clients_are_newcomers():
    whole = federation()
    arrive = np.zeros(12, np.int32)
    arrive[[1, 5]] = 2
    late = toy.replace(whole, arrive=jnp.asarray(arrive))
    states, _, _ = play.rounds("fedgroup", late, rounds=4, participants=12, work=WORK, **BASE)
    _, labels = play.models_of(play.prepared("fedgroup", WORK, **BASE).method, states)
    assert (labels[:3, [1, 5]] == -1).all() and (labels[3:, [1, 5]] >= 0).all()
    group = np.asarray(whole.group)
    assert np.array_equal(labels[-1] == labels[-1][0], group == group[0])


def test_alike_clients_fill_one_group_and_empty_ones_stay_unused():
    states, _, _ = play.rounds(
        "fedgroup", federation(), rounds=2, participants=4, lr=0.0, work=WORK, **BASE
    )
    assert states[0].memory.active.sum() == 1 and set(np.asarray(states[-1].labels).tolist()) <= {
        -1,
        0,
    }
    assert np.isfinite(states[-1].models).all()


def test_snapshots_keep_what_the_cold_start_saw():
    states, _, method = play.rounds("fedgroup", federation(), rounds=0, work=WORK, **BASE | LATEST)
    kept = method.extras(states[0])
    assert (
        kept["edc"].shape == kept["madc"].shape == (6, 6)
        and kept["edc"].max() > 0
        and kept["madc"].max() > 0
    )
    states, _, method = play.rounds("fedgroup", federation(), rounds=0, work=WORK, **BASE)
    assert method.extras(states[0]) == {}


def test_impossible_options_are_one_line_errors():
    with pytest.raises(SpecError, match="clusters = 20, but only 12 clients"):
        play.rounds("fedgroup", federation(), rounds=0, work=WORK, clusters=20)
    with pytest.raises(SpecError, match="not both"):
        METHODS.check("fedgroup", {"pretrain_steps": 3, "pretrain_epochs": 1}, "method")


def test_the_direction_of_a_group_is_the_median_of_its_finite_updates():
    """With `train.robust`. A group without updates has none."""
    rows = np.array([[1, 5], [2, 4], [9, 0], [np.nan, 1], [7, 7]], np.float32)
    parts = [(np.arange(3), rows[:3]), (np.arange(3, 5), rows[3:])]
    found = means(parts, np.array([0, 0, 0, 0, 2]), 3, Rule("median"))
    assert found.tolist() == [[2, 4], [0, 0], [7, 7]]
