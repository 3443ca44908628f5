"""`auto = "val_loss"`: the number of clusters with which some rounds end with the least validation loss."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.methods.shared import tries
from cfljax.methods.shared.tries import least
from tests import play, toy
from tests.methods.test_auto import setup_of
from tests.often import rarely

NAMES = ("cfl_mgd", "fedgroup", "fesem", "ifca", "joint", "ocfl", "one_shot")
TRIED = {"auto": "val_loss", "most": 3, "try_rounds": 2}


@functools.cache
def federation():
    """Twelve clients in three groups; every client's last third is set aside."""
    whole = toy.federation("label_permutation", seed=1, clients=12, groups=3)
    count = whole.train.count
    part = lambda start, number: toy.replace(whole.train, start=start, count=number)  # noqa: E731
    aside = count // 3
    return toy.replace(whole, train=part(whole.train.start, count - aside), valid=part(whole.train.start + count - aside, aside))


def sums(infos):
    """i[4]: the traffic of these rounds."""
    return np.sum([[int(n) for n in info.traffic] for info in infos], axis=0)


def pretrained(name, played, options):
    """i[4]: what the pre-training of the first two rounds sends that is that of every number: from w_0, and so sent once."""
    clients = 12 if name in ("ocfl", "one_shot") or options.get("fesem_init") == "own" else 0
    if name == "fedgroup":  # founders, then those who take part without being one
        same = played.infos[: 1 if "newcomer" in options else 2]
        clients = int(np.asarray(played.states[2].founder).sum()) + sum(int(info.diag["newcomers"]) for info in same)
    return np.array([clients, clients, 0, 0])


def looked(name, played, number):
    """i[4]: what twelve clients send for the loss of their cluster's model after two rounds: who has none chooses by loss first."""
    without = int((played.labels(2) < 0).sum()) if name in ("cfl_mgd", "ifca", "joint") else 0
    return np.array([12 + without * (number - 1), 0, 0, 12])


CASES = [
    ("ifca", {}),
    *(rarely(name, {}) for name in NAMES if name not in ("fedgroup", "ifca", "ocfl")),
    rarely("fedgroup", {"alpha": 12}),
    rarely("fedgroup", {"alpha": 2}),
    rarely("fedgroup", {"alpha": 2, "newcomer": "latest"}),
    rarely("fesem", {"fesem_init": "own"}),
    rarely("ocfl", {"noise": "isolate"}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda case: str(case))
def test_a_number_that_is_tried_is_the_number_given_and_the_other_tries_are_paid_for(name, options):
    asked = "merge_to" if name == "ocfl" else "clusters"
    found = play.rounds(name, federation(), **{asked: "auto"} | TRIED | options)
    given = [play.rounds(name, federation(), **{asked: k} | options) for k in (1, 2, 3)]
    kept = found.method.extras(found.states[0])
    k = int(kept["auto_clusters"])
    curve = np.asarray(kept["auto_curve"])
    assert curve.shape == (2, 6) and k == 1 + int(np.nanargmin(curve[1])) and np.isnan(curve[1, 3:]).all()
    np.testing.assert_array_equal(found.labels(), given[k - 1].labels())
    np.testing.assert_allclose(found.models()[:k], given[k - 1].models()[:k], atol=1e-5)
    rounds = [sums(each.infos[:2]) - pretrained(name, each, options) for each in given]
    looks = [looked(name, each, number) for number, each in enumerate(given, 1)]
    others = np.sum(rounds, axis=0) - rounds[k - 1] + np.sum(looks, axis=0)
    np.testing.assert_array_equal(sums(found.infos[:1]) - sums(given[k - 1].infos[:1]), others)
    np.testing.assert_array_equal(sums(found.infos[1:]), sums(given[k - 1].infos[1:]))


@pytest.mark.parametrize("more", [{"clusters": 2, "auto": "val_loss"}, {"clusters": "auto"}, {}], ids=str)
def test_rounds_of_tries_are_for_tries(more):
    spec = {"data": {"name": "digits", "partition": "iid", "clients": 4, "validation": 0.1}}
    with pytest.raises(SpecError, match='method.ifca.try_rounds = 3: numbers .* with auto = "val_loss"; leave it out'):
        read_spec(spec | {"method": [{"name": "ifca", "try_rounds": 3} | more]}).runs()
    assert read_spec(spec | {"method": [{"name": "ifca", "try_rounds": 10} | more]}).runs()


TOP = {"compress": {"name": "topk", "keep": 0.05, "feedback": True}}


@pytest.mark.long
@pytest.mark.parametrize(("method", "more"), [("ifca", {}), rarely("one_shot", {}), rarely("ifca", TOP)], ids=str)
def test_the_curve_is_the_validation_loss_of_runs_with_each_number(method, more):
    data = {"name": "digits", "partition": "label_swap", "clients": 12, "groups": 3, "validation": 0.3}
    train = {"rounds": 3, "lr": 0.2, "lr_decay": 0.9, "batch": 10, "participation": 0.5, "dropout": 0.2} | more
    asked = {"name": method, "clusters": "auto", "auto": "val_loss", "most": 3, "try_rounds": 3}
    tried = cfljax.run(asked, data, "mclr", train=train)
    given = [cfljax.run({"name": method, "clusters": k}, data, "mclr", train=train) for k in (1, 2, 3)]
    losses = [run.history["val_loss"][-1] for run in given]
    curve = tried.diag[f"{method}/auto_curve"]
    np.testing.assert_allclose(curve[1, :3], losses, rtol=1e-4)
    assert int(tried.diag[f"{method}/auto_clusters"]) == 1 + int(np.argmin(losses))
    assert tried.history["val_loss"][-1] == pytest.approx(min(losses), rel=1e-4)


@pytest.mark.parametrize("name", ["ifca", rarely("fedgroup")])
def test_neither_groups_nor_test_samples_have_a_say_but_validation_samples_do(name):
    plain, rng = federation(), np.random.default_rng(0)
    y = np.array(plain.pool.y)
    others = np.setdiff1d(np.arange(len(y)), np.unique(np.asarray(plain.train.rows)))
    y[others] = rng.permutation(y[others])
    other = toy.replace(plain, group=jnp.asarray(rng.permutation(plain.group)), pool=plain.pool._replace(y=jnp.asarray(y)))
    wrong = toy.replace(plain, valid=toy.replace(plain.valid, start=plain.valid.start[::-1], count=plain.valid.count[::-1]))
    one, two, three = (setup_of(name, each, **TRIED)["number"] for each in (plain, other, wrong))
    assert np.array_equal(one.curve, two.curve, equal_nan=True) and int(one.clusters) == int(two.clusters)
    assert not np.array_equal(one.curve, three.curve, equal_nan=True)


def test_tries_are_as_precise_as_the_rounds(monkeypatch):
    seen, loss = [], tries.validation_loss

    def spy(*args):
        seen.append(jax.config.jax_default_matmul_precision)
        return loss(*args)

    monkeypatch.setattr(tries, "validation_loss", spy)
    with jax.default_matmul_precision("default"):  # as the engine prepares a method by train.precision
        setup_of("ifca", federation(), **TRIED)
    assert set(seen) == {"default"}


def test_the_fewest_clusters_win_among_equals_and_tries_that_diverge_never():
    assert least(np.array([np.nan, 0.5, -np.inf, 0.5])) == 1 and least(np.array([np.nan, np.inf])) == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, 'method.ifca.auto = "val_loss": needs a part .* add data.validation = 0.1, or take "silhouette"'),
        ({"data.validation": 0.1, "train.server": {"name": "adam", "lr": 0.1}}, "with train.server: numbers are tried with plain"),
        ({"data.validation": 0.1, "train.privacy": {"clip": 1.0, "noise": 0.5}}, "train.privacy.noise = 0.5: what the tries"),
        ({"data.validation": 0.1, "train.privacy": {"clip": 1.0, "choice": {"epsilon": 1.0}}}, "train.privacy.choice: the choices"),
        ({"data.validation": 0.1, "train.clock": {"step_ms": 1.0}}, "with train.clock: the time of the tries is not counted"),
        (
            {"data.validation": 0.1, "data.drift": {"at": [9], "what": "labels"}},
            "data.drift: each number is tried for 10 rounds on",
        ),
    ],
)
def test_what_cannot_be_tried_is_refused_in_a_line(more, told):
    spec = {"data": {"name": "digits", "partition": "iid", "clients": 4}, "train": {}}
    for name, value in more.items():
        table, _, key = name.partition(".")
        spec[table][key] = value
    method = {"name": "ifca", "auto": "val_loss"}
    with pytest.raises(SpecError, match=told):
        read_spec(spec | {"method": [method | {"clusters": "auto"}]}).runs()
    assert read_spec(spec | {"method": [method | {"clusters": 2}]}).runs()  # nothing is tried
