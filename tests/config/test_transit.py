"""The tables train.privacy, compress, attack and robust; and ids that results folders hold."""

import importlib.util
import math

import pytest

from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment import batching, dry_run, privacy
from cfljax.experiment.privacy import Draw
from cfljax.registry.options import list_traced
from tests.config.small import runs, spec

ROTATED = {"name": "digits", "partition": "rotated", "groups": 4, "clients": 20}
MIXED = {
    "name": "blobs",
    "partition": "dirichlet",
    "alpha": 0.3,
    "arrive": {"clients": 2, "round": 3},
}
SPECS = [
    ({"data": "digits", "method": "fedavg"}, "44906b532652dcde"),
    (
        {
            "data": ROTATED,
            "method": [
                {"name": "ifca", "clusters": 4},
                {"name": "cfl_mgd", "beta": 0.5},
                "fedgroup",
            ],
            "train": {"rounds": 5, "lr": 0.1, "dropout": 0.1, "plan": {"gram": 0}},
            "seeds": [0, 1],
        },
        "cca1cc8a3f30d581 b99ecafae3db6421 f2a5737fd28aed41 eb871d2e6c645be8 "
        "bbb795423a0b61eb c176bce0d628b0e5",
    ),
    (
        {
            "data": MIXED,
            "model": {"name": "mlp", "hidden": [8]},
            "method": ["ocfl", "fedprox", "ditto"],
            "train": {"optimizer": {"name": "adam", "b1": 0.5}},
        },
        "4ba1a887ac169a90 81c9d17689573c9d 50908f3d60d39af2",
    ),
]


@pytest.mark.parametrize(("table", "ids"), SPECS, ids=["defaults", "clusters", "adam"])
def test_ids_stay_as_long_as_the_version_of_results_does(table, ids):
    """Results folders hold them. They change with RESULTS_VERSION alone, and not with an option
    that is added."""
    assert [run.id for run in read_spec(table).runs()] == ids.split()


@pytest.fixture
def accountant(monkeypatch):
    """As if dp-accounting were there."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: real("json" if name == "dp_accounting" else name, *rest),
    )


ONE_OF_EACH = {
    "privacy": {"clip": 1.0, "noise": 0.5},
    "compress": {"name": "topk", "keep": 0.1},
    "attack": {"name": "sign_flip", "share": 0.2},
}


def test_tables_change_the_id_and_read_back(accountant):
    ids = {runs()[0].id}
    for name, table in {**ONE_OF_EACH, "robust": "krum"}.items():
        (run,) = runs(spec(train={name: table}))
        (again,) = runs(run.resolved())
        assert again == run and again.id == run.id and run.id not in ids
        ids.add(run.id)


def test_nothing_is_no_table():
    (plain,) = runs()
    (same,) = runs(
        spec(train={"robust": "mean", "compress": "none", "attack": "none", "privacy": "none"})
    )
    assert same.id == plain.id
    assert (
        len(runs(spec(train={"robust": ["mean", "median", {"name": "krum", "liars": [0.1, 0.2]}]})))
        == 4
    )


def test_numbers_share_a_program(accountant):
    made = runs(
        spec(
            train={
                "privacy": {"clip": [1, 2], "noise": [0.0, 0.5]},
                "attack": {"name": "noise", "share": [0.1, 0.2]},
            }
        )
    )
    assert len(made) == 8 and len({batching.static_key(run) for run in made}) == 1
    assert (
        list_traced(made[-1].train)["privacy.noise"] == 0.5
        and batching.list_hyper(made[-1])["attack.share"] == 0.2
    )
    assert made[0].varies["train.attack"] == {
        "name": "noise",
        "share": 0.1,
        "factor": 1.0,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"privacy": {"noise": 0.1}}, "train.privacy.clip: missing"),
        ({"privacy": {"clip": 0}}, "train.privacy.clip = 0.0: must be greater than 0"),
        ({"privacy": {"clip": float("nan")}}, "train.privacy.clip = nan"),
        ({"compress": "signs"}, 'did you mean "sign"'),
        (
            {"compress": {"name": "sign", "keep": 0.1}},
            'train.compress.keep = 0.1: belongs to name = "topk"',
        ),
        ({"compress": {"name": "topk", "keep": 2}}, "train.compress.keep = 2.0: must be at most 1"),
        ({"attack": {"name": "sign_flip"}}, "train.attack.share: missing"),
        (
            {"attack": {"name": "label_flip", "share": 0.1, "factor": 2}},
            'belongs to name = "sign_flip" or "noise"',
        ),
        (
            {"attack": {"name": "noise", "share": 1.5}},
            "train.attack.share = 1.5: must be at most 1",
        ),
        (
            {"robust": {"name": "trimmed_mean", "trim": 0.5}},
            "train.robust.trim = 0.5: must be less than 0.5",
        ),
        ({"robust": "median", "plan": {"stream": 8}}, "train.robust needs all updates at once"),
    ],
)
def test_mistakes_are_one_line(train, words):
    with pytest.raises(SpecError, match=words.replace("[", r"\[")) as error:
        runs(spec(train=train))
    assert "\n" not in str(error.value)


def test_noise_and_robust_rules_exclude_each_other(accountant):
    with pytest.raises(SpecError, match="defined for weighted sums"):
        runs(spec(train={"privacy": {"clip": 1, "noise": 1}, "robust": "median"}))
    assert runs(spec(train={"privacy": {"clip": 1}, "robust": "median"}))


def test_without_the_accountant_noise_is_refused_in_one_line(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "dp_accounting" else real(name, *rest),
    )
    with pytest.raises(
        SpecError,
        match=r'dp-accounting, which is not installed: pip install "\.\[privacy\]" in the checkout',
    ):
        runs(spec(train={"privacy": {"clip": 1, "noise": 1}}))


def test_bytes_of_an_update():
    for way, wanted in (
        ("none", 4000),
        ("int8", 1004),
        ("sign", 129),
        ({"name": "topk", "keep": 0.1}, 800),
    ):
        (run,) = runs(spec(train={"compress": way}))
        assert run.train.vector_bytes(1000) == wanted
        assert (
            dry_run.communication(run, batching.Size(10, 1000, 10))[1]
            == 10 * wanted * run.train.rounds
        )


def test_epsilon_is_that_of_the_gaussian_mechanism():
    pytest.importorskip("dp_accounting")
    noise, delta = 8.0, 1e-5
    sigma = noise / 2  # a client is replaced by another: the sum moves by twice the clip
    assert privacy.compute_epsilon(noise, delta, (), everybody=1) == pytest.approx(
        _epsilon_of_gaussian(sigma, delta), rel=1e-6
    )
    assert privacy.compute_epsilon(noise, delta, (Draw(5, 5, 9),)) == pytest.approx(
        _epsilon_of_gaussian(sigma / 3, delta), rel=1e-6
    )
    whole, known = (
        privacy.compute_epsilon(noise, delta, (Draw(100, drawn, 20),)) for drawn in (100, 10)
    )
    hidden = privacy.compute_epsilon(noise, delta, (Draw(100, 10, 20),), hidden=True)
    assert hidden < known < whole < privacy.compute_epsilon(noise, delta, (Draw(100, 100, 40),))
    assert (
        math.isinf(privacy.compute_epsilon(0.0, delta, (Draw(10, 10, 5),)))
        and privacy.compute_epsilon(1.0, delta, (), 0) == 0
    )


def _epsilon_of_gaussian(sigma, delta):
    """Balle and Wang 2018, theorem 8, solved for ε."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def at(e):
        return (
            norm.cdf(0.5 / sigma - e * sigma)
            - math.exp(e) * norm.cdf(-0.5 / sigma - e * sigma)
            - delta
        )

    return brentq(at, 1e-6, 50)


def test_methods_say_what_they_make_public():
    more = [{"name": "fl_hc", "warmup_rounds": 3}, {"name": "one_shot"}]
    table = {
        "data": "digits",
        "method": ["fedavg", "fedgroup", "ocfl", "cfl_mgd", "local", *more],
        "train": {"rounds": 10},
    }
    found = {run.method: run.options.releases(run.train.rounds) for run in read_spec(table).runs()}
    assert found.pop("fedgroup") == (10, 1) and found.pop("one_shot") == (10, 0)
    assert found == {
        "fedavg": (10, 0),
        "ocfl": (0, 10),
        "cfl_mgd": (20, 0),
        "fl_hc": (7, 3),
        "local": (0, 0),
    }
