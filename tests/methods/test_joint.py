"""Joint gradient and loss against a plain loop over devices, its bill, and without similarity IFCA."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.methods import joint as module
from cfljax.round.ask import Ask
from cfljax.round.state import State
from cfljax.types import Cohort
from tests import play, toy
from tests.methods.eight_clients import close, federation
from tests.often import rarely
from tests.reference import plain
from tests.reference.joint import joint

NAMES = {"steps": "local_steps", "how": "similarity", "reseeding": "reseed"}
CASES = {
    "defaults": {},
    "literal": {"how": "literal", "reseeding": "always"},
    "euclidean": {
        "how": "euclidean",
        "summed": True,
        "steps": 5,
        "reseeding": "never",
        "average": "samples",
    },
}


def ours(seed=0, participants=5, **options):
    options = {NAMES.get(k, k): v for k, v in options.items()}
    if "summed" in options:
        options["loss_reduction"] = "sum" if options.pop("summed") else "mean"
    return play.rounds(
        "joint",
        federation(),
        4,
        participants,
        seed,
        0.05,
        {"epochs": 9},
        clusters=3,
        batch=7,
        **options,
    )


@pytest.mark.parametrize("case", [rarely("defaults"), rarely("literal"), "euclidean"])
def test_agrees_with_a_plain_loop_over_devices(case):
    options = {"lam": 0.2, "how": "descent", "summed": False, "reseeding": "when_empty"} | CASES[
        case
    ]
    parted = []
    for seed, lam in ((0, 0.2), (1, 0.9)):  # one program
        options["lam"] = lam
        states, _, method = ours(seed, **options)
        given = plain.Net(6, 4), plain.Clients(federation()), states[0].models, seed, 4, 5, 0.05, 7
        wanted = joint(*given, **options)
        close(states, method, wanted)
        by_loss = joint(*given, **options | {"lam": 0.0})
        parted.append(any((a[1] != b[1]).any() for a, b in zip(wanted, by_loss, strict=True)))
    assert any(parted), "the similarity decides nothing here"


@pytest.mark.parametrize("summed", [rarely(False), True])
def test_the_penalty_of_a_model_counts_once_however_many_samples_are_summed(summed):
    square = lambda params: 0.25 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))  # noqa: E731
    options = {"lam": 0.2, "how": "euclidean", "summed": summed, "reseeding": "never", "steps": 3}
    states, _, method = ours(model=toy.model()._replace(penalty=square), **options)
    wanted = joint(
        plain.Net(6, 4),
        plain.Clients(federation()),
        states[0].models,
        0,
        4,
        5,
        0.05,
        7,
        decay=0.5,
        **options,
    )
    close(states, method, wanted)


def test_without_similarity_it_is_ifca_on_the_same_batch():
    states, _, method = ours(lam=0.0, how="descent", summed=False, reseeding="when_empty")
    work = {"steps": 1, "batch": 7}
    theirs, _, ifca = play.rounds(
        "ifca", federation(), work=work, lr=0.05, clusters=3, estimate="batch", reseed="when_empty"
    )
    a, b = play.models_of(method, states), play.models_of(ifca, theirs)
    np.testing.assert_array_equal(a[1], b[1])
    np.testing.assert_allclose(a[0], b[0], atol=1e-6)


def test_the_last_move_is_sent_where_devices_may_have_missed_it():
    some = ours(lam=0.2, how="descent", summed=False, reseeding="when_empty")[1]
    assert [int(n) for n in some[0].traffic] == [2 * 3 * 5, 5, 0, 0]
    everyone = ours(participants=8, lam=0.2, how="descent", summed=False, reseeding="when_empty")[1]
    assert [int(n) for n in everyone[0].traffic] == [3 * 8, 8, 0, 0]


@pytest.mark.parametrize(
    "number, round, dropout, missed",
    [(8, 2, 0, [0, 1, 0]), (8, 0, 0, [0, 0, 0]), (8, 2, 1, [1, 1, 0]), (7, 2, 0, [1, 1, 0])],
)
def test_devices_that_dropped_out_or_come_late_have_missed_the_last_move(
    number, round, dropout, missed
):
    late = dataclasses.replace(federation(), arrive=jnp.array([0, 2, 0, 0, 0, 0, 0, 0]))
    cohort = Cohort(jnp.arange(number), jnp.arange(number) != 2, jnp.ones(number), jnp.int32(round))
    ask = Ask(None, None, late, cohort, {"dropout": 0.1} if dropout else {})
    found = cohort.mask & ask.missed_last_round
    assert found[:3].tolist() == [bool(each) for each in missed]


def test_a_device_without_a_cluster_is_scored_by_the_same_rule(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", (3 * 28, 3 * 28))  # three devices at a time
    options = {"clusters": 3, "batch": 8, "similarity": "literal", "lam": 1.0}
    (out,) = play.batch("joint", federation(), 2, 3, **options)
    _, model, method, *_ = play.prepared("joint", **options)
    last = jnp.asarray(np.eye(3, model.size), jnp.float32)
    state = State(jnp.asarray(out.models), jnp.asarray(out.labels[-1]), memory=last)
    chosen = np.asarray(
        method.score(state, federation(), {"lr": jnp.float32(0.1), "lam": jnp.float32(1.0)})
    )
    net, clients, key = (
        plain.Net(6, 4),
        plain.Clients(federation()),
        keys.fold(keys.root(0), "score"),
    )
    for c in range(8):
        x, y = clients.train[c]
        rows = plain.batches(plain.local_key(key, c), len(y), 8, steps=1)[0]
        gradients = [net.gradient(w, x[rows], y[rows]) for w in out.models.astype(float)]
        along = [g[k] / np.linalg.norm(g) for k, g in enumerate(gradients)]
        assert chosen[c] == (np.argmax(along) if out.labels[-1][c] < 0 else out.labels[-1][c])
    assert (out.labels[-1] < 0).any() and out.history["scored"][-1] == 8


def test_impossible_options_are_one_line():
    with pytest.raises(SpecError, match="lam = 1.5"):
        METHODS.check("joint", {"lam": 1.5}, "method.joint")
    with pytest.raises(SpecError, match="only 8 clients train"):
        play.prepared("joint", clusters=9).method.setup(jax.random.key(0), toy.federation(), {})
