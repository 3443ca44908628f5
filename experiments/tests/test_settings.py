"""Which of several settings of a claim counts, and verdicts that need more than two means."""

import math
import tomllib

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.results.result import Result
from experiments.replication.claims import verdict
from experiments.replication.measured import section
from experiments.replication.overview import at_a_glance, claims, lines
from experiments.replication.papers import Page
from experiments.replication.published import Cell, Claim, Published, read_published
from experiments.replication.quantity import Quantity
from experiments.replication.verdicts import Measured, Verdict

TAKE = Quantity(summary="accuracy_max")


def claim(setting, **more):
    return Claim("it is ahead", "difference", ("a", "b"), setting=setting, search="ahead", **more)


def lines_of(*tried):
    cells = tuple(Cell(name, {"label": name}, TAKE) for name in "ab")
    of = Published("f", "A paper", "Table 1", "s", cells=cells, claims=tuple(c for c, _ in tried))
    found = section(of, [])
    found.verdicts[:] = [Verdict(word, "+1") for _, word in tried]
    return lines([found]), [found]


def test_the_setting_that_says_so_counts_wherever_it_stands():
    tried = (
        (claim("small"), "reproduces"),
        (claim("full", counts=True, reason="it is the paper's"), "not decided"),
    )
    for order in (tried, tried[::-1]):
        (line,), _ = lines_of(*order)
        assert line.claim.setting == "full" and line.verdict.word == "not decided"
        assert [(v.word, c.setting) for v, c in line.others] == [("reproduces", "small")]


def test_a_setting_that_counts_and_was_not_run_is_not_replaced():
    (line,), _ = lines_of(
        (claim("full", counts=True, reason="it is the paper's"), "not run"),
        (claim("other"), "reproduces"),
    )
    assert line.verdict.word == "not run"


def test_the_best_setting_counts_where_the_paper_says_up_to():
    named = claim("one", counts=True, reason="it is the paper's", up_to=True)
    (line,), _ = lines_of((named, "not decided"), (claim("two", up_to=True), "reproduces"))
    assert line.claim.setting == "two"


@pytest.mark.parametrize(
    ("tried", "row", "counted"),
    [
        (
            [
                (claim("as printed", counts=True, reason="literal", literal=True), "not decided"),
                (claim("shrunk"), "reproduces"),
            ],
            "as printed: +1<br>shrunk: +1 | **not decided**<br>in the best reading: reproduces",
            "read literally: 1 not decided<br>in the best reading: 1 reproduces",
        ),
        (
            [
                (claim("as printed", literal=True), "no test"),
                (claim("ours", counts=True, reason="that tests nothing"), "reproduces"),
            ],
            "ours: +1<br>as printed: +1 | **reproduces**<br>read literally: no test",
            "read literally: 1 no test<br>in the best reading: 1 reproduces",
        ),
        (
            [
                (claim("as printed", counts=True, reason="literal", literal=True), "reproduces"),
                (claim("shrunk"), "not decided"),
            ],
            "| +1 | **reproduces** |",
            "| 1 reproduces |",
        ),
    ],
)
def test_two_readings_are_told_on_two_lines_and_counted_twice(tried, row, counted):
    _, sections = lines_of(*tried)
    page = Page("title", "text")
    assert row in claims(page, sections, "", {})
    assert counted in at_a_glance(page, sections, "", {})


FILE = """
paper = "A paper"
title = "Table 1"
sweep = "s"
cells = [{ name = "a", where = { label = "a" } }, { name = "b", where = { label = "b" } }]
"""
CLAIM = '[[claim]]\ntext = "it is ahead"\ndifference = ["a", "b"]\nsearch = "ahead"\n'
COUNTS = 'counts = true\nreason = "it is the paper\'s"\n'


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (f'{CLAIM}setting = "1"\n{CLAIM}setting = "2"\n', "0 of its settings have counts = true"),
        (
            f'{CLAIM}setting = "1"\n{COUNTS}{CLAIM}setting = "2"\n{COUNTS}',
            "2 of its settings have counts = true",
        ),
        (
            f'{CLAIM}setting = "1"\n{COUNTS}{CLAIM}setting = "2"\ntolerance = 2.0\n',
            "tolerance = 2, where published.toml has 1",
        ),
        (f'{CLAIM}setting = "1"\ncounts = true\n', "needs search, setting and reason"),
    ],
)
def test_settings_without_one_that_counts_or_with_two_tolerances_are_refused(tmp_path, file, said):
    (tmp_path / "published.toml").write_text(FILE + file)
    with pytest.raises(SpecError, match=said):
        read_published([tmp_path / "published.toml"])
    tomllib.loads(FILE + file)  # it is no mistake of TOML


def decided(kind, published, one, other, tolerance=1.0, take=TAKE, **measured):
    cells = tuple(Cell(name, {"label": name}, take) for name in "ab")
    of = Published("f", "p", "t", "s", cells=cells)
    values = {
        name: Measured(dict(enumerate(v)), dict.fromkeys(range(len(v)), 60), **measured)
        for name, v in zip("ab", (one, other), strict=True)
    }
    return verdict(Claim("c", kind, ("a", "b"), published, tolerance), of, values)


@pytest.mark.parametrize(
    ("one", "word"),
    [
        ([9.9, 10.0, 10.1], "larger than published"),  # [9.75, 10.2] against 4
        ([8.0, 9.0, 10.0], "reproduces in direction"),  # [6.5, 11.5]: not wholly above 8
        ([6.9, 7.0, 7.1], "reproduces in direction"),
    ],
)
def test_an_effect_is_larger_than_published_where_its_whole_interval_is_above_twice(one, word):
    assert decided("difference", 4.0, one, [0.0] * 3).word == word
    assert decided("difference", -4.0, [-x for x in one], [0.0] * 3).word == word


def test_a_reduction_may_be_larger_than_published():
    found = decided("reduction", 0.21, [17.0, 17.1, 17.2], [100.0] * 3, 0.1)
    assert found.word == "larger than published" and not found.why


@pytest.mark.parametrize(
    ("flat", "word"),
    [
        (dict.fromkeys(range(3), True), "does not reproduce"),
        ({0: True, 1: True, 2: False}, "not decided"),
        ({}, "not decided"),
    ],
)
def test_where_neither_gets_there_it_is_decided_only_if_all_curves_are_flat(flat, word):
    take = Quantity(history="accuracy", reaches=0.9)
    found = decided("reduction", 0.5, [math.inf] * 3, [math.inf] * 3, 0.1, take, flat=flat)
    assert found.word == word and found.ours == "neither gets there"


@pytest.mark.parametrize(
    ("curve", "flat"),
    [
        ([0.9, 0.1, 0.6, 0.6, 0.605, 0.6], True),  # round 0 is before training
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], False),
        ([0.1, 0.5, 0.6, 0.6, 0.6, 0.62], False),
    ],
)
def test_a_curve_is_flat_where_its_second_half_is_no_higher(curve, flat):
    arrays = {"history/round": np.arange(6), "history/accuracy": np.array(curve)}
    assert Quantity(history="accuracy", reaches=0.9).flat(Result({}, arrays)) is flat


def test_a_deviation_is_compared_by_the_ratio_of_variances():
    wide = [0.0, 10.0, 20.0, 30.0]
    assert decided("steadier", None, [1.0, 1.1, 1.2, 1.3], wide).word == "reproduces"
    assert decided("steadier", None, wide, [1.0, 1.1, 1.2, 1.3]).word == "does not reproduce"
    found = decided("steadier", None, [1.0, 1.1, 1.3], [1.0, 1.2, 1.5])
    assert found.word == "not decided" and found.ours.startswith("± 0.153 against ± 0.252; ratio [")
    low, high = (float(word) for word in found.ours.partition("[")[2].rstrip("]").split(", "))
    # F(2, 2) is 39 at 97.5 %: the ratio of deviations may be 6.24 times as small or as large
    assert low == pytest.approx(0.607 / 6.245, rel=0.01)
    assert high == pytest.approx(0.607 * 6.245, rel=0.01)


@pytest.mark.parametrize(("how", "value"), [("purity", (1 + 2 / 3) / 2), ("ari", (1 + 0) / 2)])
def test_a_rounds_clusters_are_compared_with_the_groups_of_its_participants(how, value):
    arrays = {
        "history/round": np.array([0, 5, 10]),
        "diag/m/participants": np.array([[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 3, 1]]),
        "diag/m/participant_labels": np.array([[0, 0, 0, 0], [7, 7, 1, 1], [0, 0, 0, -1]]),
        "group": np.array([0, 0, 1, 1]),
    }
    # in round 10 client 1 has no cluster, and one of three others is in a cluster with two strangers
    run = Result({"method": "m"}, arrays)
    assert Quantity(participants=how).of(run) == pytest.approx(value)
    assert math.isnan(
        Quantity(participants=how).of(Result({"method": "m"}, {"group": arrays["group"]}))
    )


def test_the_seconds_of_a_part_of_a_run_are_no_fraction():
    take = Quantity(timing="setup")
    assert take.of(Result({"timings": {"setup": 2.5}}, {})) == 2.5 and not take.fraction
    assert math.isnan(take.of(Result({"timings": {}}, {})))
