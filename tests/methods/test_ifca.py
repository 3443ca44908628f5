"""IFCA against a plain loop over clients, in both forms, and who is scored without a cluster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.round.local import shares_of_all
from cfljax.types import Cohort
from tests import play, toy
from tests.methods.eight_clients import close, federation
from tests.often import rarely
from tests.reference import plain
from tests.reference.ifca import ifca

DEFAULTS = {"estimate": "full", "aggregate": "model", "average": "uniform", "reseed": "never"}
CASES = {
    "defaults": {},
    "mini-batch": {"estimate": "batch", "average": "samples", "reseed": "when_empty"},
    "gradient": {"aggregate": "gradient", "reseed": "always"},
    "gradient of a mini-batch": {
        "aggregate": "gradient",
        "estimate": "batch",
        "average": "samples",
    },
}
WORK = {"epochs": 2, "batch": 5}


@pytest.mark.parametrize("case", [*map(rarely, list(CASES)[::3]), *list(CASES)[1:3]])
def test_agrees_with_a_plain_loop_over_clients(case):
    options = DEFAULTS | CASES[case]
    states, _, method = play.rounds("ifca", federation(), work=WORK, clusters=3, **options)
    options["reseeding"] = options.pop("reseed")
    wanted = ifca(
        plain.Net(6, 4),
        plain.Clients(federation()),
        states[0].models,
        0,
        4,
        5,
        0.1,
        **WORK,
        **options,
    )
    close(states, method, wanted)


def test_choosing_and_training_in_one_go_agrees_with_it_too():
    eight, work = federation(), WORK | {"gram": 4096}
    assert toy.solver(toy.model(), **work).chooses(eight) and not toy.solver(
        toy.model(), **WORK
    ).chooses(eight)
    states, infos, method = play.rounds("ifca", eight, work=work, clusters=3, **DEFAULTS)
    options = DEFAULTS | {"reseeding": "never"}
    del options["reseed"]
    close(
        states,
        method,
        ifca(
            plain.Net(6, 4), plain.Clients(eight), states[0].models, 0, 4, 5, 0.1, **WORK, **options
        ),
    )
    _, apart, _ = play.rounds("ifca", eight, work=WORK, clusters=3, **DEFAULTS)
    for a, b in zip(infos, apart, strict=True):
        assert np.allclose(a.train_loss, b.train_loss, rtol=1e-5) and np.allclose(
            a.discrepancy, b.discrepancy, rtol=1e-4
        )


def test_gradients_are_divided_by_all_participants():
    made, ids = federation(), np.arange(5, dtype=np.int32)
    count = np.asarray(made.train.count) - 3 * np.arange(8, dtype=np.int32)
    eight = toy.replace(made, train=toy.replace(made.train, count=count))
    present, divided = (
        Cohort(ids, ids < 4, np.ones(5, np.float32), np.int32(0)),
        jax.jit(shares_of_all, static_argnums=(3, 4)),
    )
    n, which = np.asarray(eight.train.count, float), np.array([0, 1, 1, 0, 1], np.int32)
    for average, weight in (("uniform", np.ones(8)), ("samples", n)):
        got, total = np.asarray(divided(which, eight, present, 2, average))[1], weight[:4].sum()
        np.testing.assert_allclose(got, [0, weight[1] / total, weight[2] / total, 0, 0], rtol=1e-6)


def test_clients_without_a_cluster_are_scored_by_their_own_choice():
    (out,), model = (
        play.batch("ifca", federation(), 2, 2, work=WORK, clusters=3, **DEFAULTS),
        toy.model(),
    )
    without = out.labels[-1] < 0
    assert without.any() and not without.all()
    assert out.history["scored"][-1] == 8
    everyone = Cohort(jnp.arange(8), jnp.ones(8, bool), jnp.ones(8), jnp.int32(0))
    losses = np.asarray(
        toy.solver(model).losses(federation(), jnp.asarray(out.models), everyone.ids, everyone.mask)
    )
    labels = np.where(without, losses.argmin(axis=0), out.labels[-1])
    assert out.history["accuracy"][-1] == pytest.approx(
        plain.accuracy(
            plain.Net(6, 4), plain.Clients(federation()), out.models.astype(float), labels
        ),
        abs=1e-6,
    )
    assert out.history["bytes_down"][-1] == 2 * 3 * 2 * 4 * model.size
    assert out.history["bytes_up"][-1] == 2 * 2 * 4 * model.size


def test_more_clusters_than_clients_is_an_error():
    method = play.prepared("ifca", WORK, clusters=9).method
    with pytest.raises(SpecError, match="only 8 clients train"):
        method.setup(jax.random.key(0), federation(), {})
