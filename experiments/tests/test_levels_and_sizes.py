"""Claims about levels rest on intervals; any flag that makes runs smaller makes them small; only
fractions are in per cent."""

from xml.etree import ElementTree

import numpy as np
import pytest

from cfljax.results.result import Result, Results
from cfljax.store import Store
from experiments.replication.claims import verdict
from experiments.replication.pages import replication_page, replication_pages
from experiments.replication.published import Cell, Claim, Published
from experiments.replication.quantity import Quantity, read_quantity
from experiments.replication.size import below_size
from experiments.replication.verdicts import Measured
from experiments.tests.test_against import FILE, row_of
from tests.report import synthetic

STEADY, NOISY = [-0.1, 0.0, 0.1], [-4.0, 0.0, 4.0]


def decided(kind, theirs, ours, published=None, tolerance=1.0):
    """`ours`: name -> (mean, deviations from it)."""
    cells = tuple(
        Cell(name, {"label": name}, Quantity(summary="accuracy_max"), theirs.get(name))
        for name in ours
    )
    of = Published("f", "p", "t", "s", "", "%", False, "", cells, ())
    measured = {
        name: Measured({i: mean + off for i, off in enumerate(offs)})
        for name, (mean, offs) in ours.items()
    }
    return verdict(Claim("c", kind, tuple(ours), published, tolerance), of, measured)


ROW = {"a": 50.0, "b": 60.0, "c": 70.0, "d": 80.0}


@pytest.mark.parametrize(
    ("means", "noisy", "word"),
    [
        ([50.5, 60, 70, 80], "", "reproduces"),
        (
            [50.5, 60, 70, 80],
            "ab",
            "reproduces",
        ),  # half of the cells are within with their whole interval
        (
            [50.5, 60, 70, 80],
            "abc",
            "reproduces in direction",
        ),  # all means are within, and most could be anywhere
        (
            [52, 62, 72, 80],
            "abcd",
            "not decided",
        ),  # one of four is within, and none is surely outside
        ([52, 62, 72, 80], "bcd", "does not reproduce"),
        ([80, 70, 60, 50], "abcd", "does not reproduce"),
        ([50, 60, 75, 95], "", "reproduces in direction"),  # in the same order
        ([40, 45, 50, 55], "", "does not reproduce"),
    ],
)
def test_a_row_of_levels_reproduces_by_intervals_not_by_chance(means, noisy, word):
    ours = {
        name: (mean, NOISY if name in noisy else STEADY)
        for name, mean in zip(ROW, means, strict=True)
    }
    found = decided("within", ROW, ours)
    assert found.word == word
    sure = sum(
        abs(mean - ROW[name]) <= 0.7 and name not in noisy
        for name, mean in zip(ROW, means, strict=True)
    )
    assert f", {sure} with the whole interval; farthest: " in found.ours


@pytest.mark.parametrize(("mean", "offs", "word"), [
    (50.2, STEADY, "reproduces"), (50.2, NOISY, "not decided"), (53.0, STEADY, "does not reproduce"), (51.1, STEADY, "not decided"),
])  # fmt: skip
def test_a_single_level_must_be_within_with_its_whole_interval(mean, offs, word):
    assert decided("within", {"a": 50.0}, {"a": (mean, offs)}).word == word


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ({"a": (3, STEADY), "b": (2, STEADY)}, "reproduces"),
        (
            {"a": (3, STEADY), "b": (2, NOISY)},
            "reproduces in direction",
        ),  # the interval of b reaches below 1
        ({"a": (3, STEADY), "b": (0.2, STEADY)}, "reproduces in direction"),
        ({"a": (0.5, NOISY), "b": (0.2, NOISY)}, "not decided"),
        ({"a": (0.5, STEADY), "b": (0.2, STEADY)}, "does not reproduce"),
    ],
)
def test_at_least_a_level_is_said_of_whole_intervals(cells, word):
    assert decided("at_least", {}, cells, published=1.0, tolerance=0.0).word == word


SPEC = """
data = [{ name = "digits", clients = 40 }, { name = "mnist", clients = 80, samples_per_client = 100 }]
model = [{ name = "mlp", hidden = [200] }, { name = "cnn", channels = [32, 64] }]
train = { rounds = 30, participation = 0.5 }
[size.small]
seeds = [0]
"""


@pytest.mark.parametrize(
    ("flag", "small"),
    [
        ("seeds=[0]", False),
        ("size=full", False),
        ("size=small", True),
        ("data.clients=80", False),
        ("data.clients=60", True),
        ("data.samples_per_client=50", True),
        ('data={name="mnist",clients=20}', True),
        ("data.name=mnist", False),
        ("train.participation=0.1", True),
        ("train.participation=5", False),  # a number beside a share says nothing
        ("train={rounds=9}", True),
        ("train.epochs=9", True),  # the spec says nothing of epochs
        ("train.lr=0.001", False),
        ('model={name="mlp",hidden=[64]}', True),
        ('model={name="cnn",channels=[32,64],dense=[512]}', False),
        ("model=cnn", False),
        ('model={name="cnn",channels=[8,16]}', True),
        ('method=["ifca"]', False),
    ],
)
def test_any_flag_that_makes_runs_smaller_makes_them_small(tmp_path, flag, small):
    store = Store(tmp_path)
    store.write_spec(f"# --set {flag}\n{SPEC}")
    store.write_plan({"name": "a sweep", "units": []})
    assert below_size(Results(tmp_path)) is small


def test_the_number_of_draws_of_the_data_stands_beside_that_of_seeds(tmp_path):
    store = synthetic.sweep(tmp_path / "runs")
    for name, record in store.records().items():
        data = {"name": "digits", "partition": "iid", "seed": "run" if record["seed"] == 2 else 0}
        store.write(
            name, record | {"config": record["config"] | {"data": data}}, store.read(name).arrays
        )
    (tmp_path / "p.toml").write_text(FILE)
    pages = replication_pages([tmp_path / "runs"], [tmp_path / "p.toml"])
    assert (
        row_of(replication_page([tmp_path / "runs"], [tmp_path / "p.toml"]), "IFCA")[-1]
        == "3, 2 draws"
    )
    assert row_of(pages[""], "IFCA beats FedAvg, by 30 points")[4].endswith("3 seeds, 2 draws")


def test_a_change_is_that_from_one_evaluation_to_the_next():
    arrays = {
        "history/round": np.arange(5),
        "history/accuracy": np.array([0.1, 0.5, 0.4, 0.7, 0.7], np.float32),
    }
    take = read_quantity({"history": "accuracy", "over": "change"}, "take")
    assert take.of(Result({"method": "ifca"}, arrays)) == pytest.approx(
        (0.1 + 0.3 + 0.0) / 3
    )  # round 0 is before training


def test_what_is_no_fraction_is_not_shown_in_per_cent(tmp_path):
    synthetic.sweep(tmp_path / "runs")
    more = (
        '[[figure]]\ntitle = "Loss"\nhistory = "loss"\ncurves = { "FedAvg" = { label = "fedavg" '
        "} }\n"
    )
    cells = (
        'cells = [\n    { name = "loss", where = { label = "fedavg" }, take = { history = '
        '"loss", over = "last" } },'
    )
    (tmp_path / "p.toml").write_text(FILE.replace("cells = [", cells) + more)
    pages = replication_pages([tmp_path / "runs"], [tmp_path / "p.toml"])
    assert 0 < float(row_of(pages["a_paper.md"], "loss")[2].split(" ±")[0]) < 3
    texts = [
        e.text
        for e in ElementTree.fromstring(pages["a_paper-1-1.svg"]).iter()
        if e.tag.endswith("text")
    ]
    assert not any("%" in text for text in texts)
    assert all(float(text) <= 5 for text in texts if text.replace(".", "").isdigit())
