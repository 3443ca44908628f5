"""`clusters = "auto"`: a number that is found equals the number given, and nothing but training
data has a say in it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax import keys
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.round import auto
from tests import play, toy
from tests.methods import test_contract as contract
from tests.often import every, rarely

NAMES = [
    name
    for name in METHODS
    if {"clusters", "most"} <= METHODS.entry(name).options.__dataclass_fields__.keys()
]
LISTED = ("cfl_mgd", "fedgroup", "fesem", "fesem_flexcfl", "ifca", "joint", "one_shot")
every_method = pytest.mark.parametrize("name", every(NAMES, often=("ifca",)))
CONTRACT = [
    contract.test_history_is_complete_and_finite, contract.test_it_learns,
    contract.test_state_types_are_constant_and_nothing_calls_the_host, contract.test_one_diverging_run_leaves_the_others_alone,
    contract.test_a_run_alone_is_the_run_in_a_batch, contract.test_nothing_moves_without_a_learning_rate,
    rarely(contract.test_padding_is_invisible), contract.test_the_order_of_clients_does_not_matter,
    contract.test_a_client_with_broken_data_is_counted_and_kept_out,
]  # fmt: skip


@pytest.fixture
def counted(name, monkeypatch):
    """The contract's runs of this method, with a number of clusters that is found, kept until the
    next method's turn."""
    monkeypatch.setitem(play.OPTIONS, name, play.options(name) | {"clusters": "auto", "most": 3})
    monkeypatch.setattr(contract, "three_and_their_programs", _three(name))


@functools.lru_cache(maxsize=1)
def _three(name):
    return functools.cache(contract.three_and_their_programs.__wrapped__)


def test_all_methods_with_a_number_have_it():
    assert tuple(sorted(NAMES)) == LISTED


@every_method
@pytest.mark.parametrize("keeps", CONTRACT, ids=lambda test: test.__name__.removeprefix("test_"))
def test_the_contract_holds_with_a_number_that_is_found(name, keeps, counted):
    assert play.options(name)["clusters"] == "auto"
    keeps(name)


@functools.cache
def federation():
    return toy.federation("label_permutation", seed=1, clients=12, groups=3)


def setup_of(name, federation, key=0, lr=0.1, **options):
    method = play.prepared(name, clusters="auto", **options).method
    numbers = {
        "lr": jnp.float32(lr),
        "participants": jnp.float32(5),
        "mu": jnp.float32(0),
        "eta_g": jnp.float32(0),
    }
    return method.setup(keys.root(key), federation, numbers)


@every_method
def test_a_number_that_is_found_is_the_number_given(name):
    """For FedGroup where all clients pre-train with either; all other draws do not depend on how
    the number came about."""
    more = {"alpha": 12} if name == "fedgroup" else {}
    found = play.rounds(name, federation(), most=5, clusters="auto", **more)
    kept = found.method.extras(found.states[0])
    k = int(kept["auto_clusters"])
    assert k == 3 and kept["auto_curve"].shape == (2, 10)
    given = play.rounds(name, federation(), clusters=k, **more)
    assert found.models().shape[0] == 5 and given.method.extras(given.states[0]).keys().isdisjoint(
        kept
    )
    for t in range(play.ROUNDS + 1):
        np.testing.assert_array_equal(found.labels(t), given.labels(t))
        np.testing.assert_allclose(found.models(t)[:k], given.models(t), atol=1e-5)
        scores = [
            np.asarray(run.method.score(run.states[t], federation(), {"lr": 0.1, "lam": 0.2}))
            for run in (found, given)
        ]
        np.testing.assert_array_equal(*scores)
    probe = 0 if name in ("one_shot", "fedgroup") else 12  # these two pre-train anyway
    sent = [
        np.array([[int(n) for n in info.traffic] for info in run.infos]) for run in (found, given)
    ]
    np.testing.assert_array_equal(
        sent[0] - sent[1], [[probe, probe, 0, 0]] + [[0] * 4] * (play.ROUNDS - 1)
    )


@every_method
def test_neither_groups_nor_test_samples_have_a_say(name):
    plain, rng = federation(), np.random.default_rng(0)
    trained = np.unique(np.asarray(plain.train.rows))
    y = np.array(plain.pool.y)
    others = np.setdiff1d(np.arange(len(y)), trained)
    y[others] = rng.permutation(y[others])
    test = toy.replace(plain.test, start=plain.test.start[::-1], count=plain.test.count[::-1])
    other = toy.replace(
        plain,
        group=jnp.asarray(rng.permutation(plain.group)),
        test=test,
        pool=plain.pool._replace(y=jnp.asarray(y)),
    )
    assert len(others) and (np.asarray(other.group) != np.asarray(plain.group)).any()
    one, two = (jax.tree.leaves(setup_of(name, each)) for each in (plain, other))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, two, strict=True))


@every_method
def test_clients_that_are_not_there_yet_have_no_say(name):
    arrive = np.zeros(12, np.int32)
    arrive[[2, 7]] = 3, 2**30
    late = toy.replace(federation(), arrive=jnp.asarray(arrive))
    train, at = late.train, jnp.array([2, 7])
    swapped = toy.replace(
        train,
        start=train.start.at[at].set(train.start[0]),
        count=train.count.at[at].set(train.count[0]),
    )
    one, two = (setup_of(name, each) for each in (late, toy.replace(late, train=swapped)))
    np.testing.assert_array_equal(one["number"].curve, two["number"].curve)
    assert int(one["asked"]) == 10


def test_no_more_clients_are_probed_than_stated(monkeypatch):
    monkeypatch.setattr(auto, "PROBED", 5)
    one, same, other = (setup_of("ifca", federation(), key) for key in (0, 0, 1))
    assert int(one["asked"]) == 5
    assert np.array_equal(one["number"].curve, same["number"].curve, equal_nan=True)
    assert not np.array_equal(one["number"].curve, other["number"].curve, equal_nan=True)


@pytest.mark.parametrize("how", ["silhouette", "eigengap"])
def test_the_groups_of_rotated_digits_are_counted(how):
    data = {"name": "digits", "partition": "rotated", "clients": 24, "groups": 4}
    method = {"name": "ifca", "clusters": "auto", "auto": how}
    result = cfljax.run(
        method=method, data=data, model="mclr", train={"rounds": 1, "lr": 0.1, "batch": 10}
    )
    assert int(result.diag["ifca/auto_clusters"]) == 4 and result.diag["ifca/auto_curve"].shape == (
        2,
        16,
    )
    assert result.models.shape[0] == 8 and result.labels.max() < 4


@pytest.mark.parametrize(
    "options",
    [
        rarely({"reseed": "always"}),
        {"reseed": "when_empty", "most": 8},
        rarely({"estimate": "batch"}),
    ],
)
@pytest.mark.parametrize("participants", [5, rarely(12)])
def test_options_of_ifca_keep_to_the_models_that_may_be_chosen(options, participants):
    found = play.rounds(
        "ifca", federation(), participants=participants, **{"clusters": "auto", "most": 4} | options
    )
    given = play.rounds(
        "ifca",
        federation(),
        participants=participants,
        clusters=3,
        **{k: v for k, v in options.items() if k != "most"},
    )
    np.testing.assert_array_equal(found.labels(), given.labels())
    np.testing.assert_allclose(found.models()[:3], given.models(), atol=1e-5)


def test_ocfl_merges_to_the_number_that_is_found():
    runs = [
        play.rounds("ocfl", federation(), noise="isolate", most=5, merge_to=to)
        for to in (None, "auto", 3)
    ]
    unmerged, found, given = runs
    kept = found.method.extras(found.states[0])
    assert (
        len(np.unique(unmerged.labels())) > 3
        and int(kept["auto_clusters"]) == 3
        and kept["auto_curve"].shape == (2, 10)
    )
    assert "auto_curve" not in given.method.extras(given.states[0])
    np.testing.assert_array_equal(found.labels(), given.labels())
    np.testing.assert_allclose(found.models()[:3], given.models()[:3], atol=1e-5)
    sent = [[[int(n) for n in info.traffic] for info in run.infos] for run in (found, given)]
    assert sent[0] == sent[1]  # everybody trains before the clustering anyway


def test_what_cannot_be_is_refused_in_a_line():
    with pytest.raises(SpecError, match='fedgroup.clusters = "auto": cold_start = "rcc"'):
        METHODS.check("fedgroup", {"clusters": "auto", "cold_start": "rcc"}, "method.fedgroup")
    with pytest.raises(SpecError, match='clusters = "many": unknown'):
        METHODS.check("ifca", {"clusters": "many"}, "method.ifca")


def test_the_number_of_a_run_is_part_of_its_id_only_where_it_is_found():
    data = {"name": "digits", "partition": "iid", "clients": 4}

    def ids(**method):
        return read_spec({"data": data, "method": [{"name": "ifca", **method}]}).runs()[0].id

    assert (
        ids() == ids(clusters=4) == ids(most=8)
        and len({ids(), ids(clusters="auto"), ids(clusters="auto", most=5)}) == 3
    )
