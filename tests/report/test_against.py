"""Ours beside published numbers: what is taken from a run, what becomes of a claim, and the page."""

import math

import numpy as np
import pytest

from cfljax.commands import process
from cfljax.commands.report import parser, run
from cfljax.errors import SpecError
from cfljax.report.replication.claims import Measured, interval, verdict
from cfljax.report.replication.page import replication_page
from cfljax.report.replication.published import Cell, Claim, Published, read_published
from cfljax.report.replication.quantity import Quantity, read_quantity
from cfljax.results.result import Result
from cfljax.store import Store
from tests.report import synthetic

FILE = """
paper = "A paper (2020)"
title = "Table 1, digits"
sweep = "a small sweep"
spec = "small.toml"
notes = "By hand."
cells = [
    { name = "FedAvg", where = { label = "fedavg" }, published = 50.0 },
    { name = "IFCA", where = { method = "ifca", "model.name" = "mlp" }, published = 80.0, spread = 0.5 },
    { name = "FeSEM", where = { label = "fesem" }, published = 70.0 },
]

[[claim]]
text = "IFCA beats FedAvg, by 30 points"
difference = ["IFCA", "FedAvg"]
published = 30.0
tolerance = 5.0

[[claim]]
text = "FeSEM is between them"
order = ["IFCA", "FeSEM", "FedAvg"]
why = "Nobody ran it."
"""


@pytest.fixture
def place(tmp_path):
    synthetic.sweep(tmp_path / "runs").write_spec("# --set size=small\n[size.small]\nseeds = [0, 1]\n")
    (tmp_path / "published.toml").write_text(FILE)
    return tmp_path


def row_of(page, name):
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    return [word.strip() for word in line.strip("| ").split("|")]


def test_a_cell_has_maximum_and_last_ten_over_seeds_beside_what_was_published(place):
    page = replication_page([place / "runs"], [place / "published.toml"])
    records = Store(place / "runs", read_only=True).records().values()
    of = {q: [100 * r["summary"][q] for r in records if r["method"] == "ifca"] for q in ("accuracy_max", "accuracy_last10")}
    name, published, most, last, seeds = row_of(page, "IFCA")
    assert published == "80.0 ± 0.5" and seeds == "3"
    for text, values in ((most, of["accuracy_max"]), (last, of["accuracy_last10"])):
        mean, deviation = (float(part) for part in text.split(" ± "))
        assert mean == pytest.approx(np.mean(values), abs=0.051) and deviation == pytest.approx(np.std(values, ddof=1), abs=0.051)


def test_what_was_not_run_says_so_and_claims_about_it_have_no_verdict(place):
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert row_of(page, "FeSEM")[1:4] == ["70.0", "not run", "not run"]
    assert row_of(page, "FeSEM is between them")[1:] == ["**not run**", "not run: FeSEM – Nobody ran it."]
    _, word, found = row_of(page, "IFCA beats FedAvg, by 30 points")
    assert word == "**reproduces**" and "; published +30; last ten +" in found
    assert "By hand." in page and page.count("not run") == 6  # twice in its row, twice in the head, once each as verdict and why


def test_the_command_says_the_flags_that_its_runs_had(place):
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert "`CFLJAX_DATA=DATA python -m cfljax.sweep experiments/small.toml --set size=small`" in page
    assert "Size small: `seeds = [0, 1]`" in page and "6 runs" in page


def test_the_page_says_how_the_runs_were_made(place):
    store, git = Store(place / "runs"), [{"commit": "a" * 40, "dirty": False}, {"commit": "b" * 40, "dirty": True}, None]
    for number, (name, record) in enumerate(store.records().items()):
        train = record["config"]["train"] | {"rounds": 23, "eval_every": 2}
        made = {"config": record["config"] | {"train": train}, "git": git[number % 3], "versions": {"jax": f"0.1{number % 2}.0"}}
        store.write(name, record | made, store.read(name).arrays)
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert "Last ten: rounds 6 to 23." in page  # 6, 8, … 22 and 23
    assert "JAX 0.10.0 and 0.11.0, cfljax unknown, started in a folder at " in page
    assert "aaaaaaa, bbbbbbb with changes, no commit" in page


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("size=small", "small"),
        ("train.rounds=9", "full but for train.rounds"),
        ("size=small\n# --set seeds=[0]", "small but for seeds"),
        ('method=["ifca"]', "full"),
    ],
)
def test_the_overview_says_what_size_was_run_and_counts_only_claims_of_the_paper(place, flags, said):
    Store(place / "runs").write_spec(f"# --set {flags}\n[size.small]\nseeds = [0, 1]\n")
    assert f"| {said} | 1 |  |  |  |  |  | 1 |" in replication_page([place / "runs"], [place / "published.toml"])
    text = FILE.replace('text = "IFCA beats', 'ours = true\ntext = "IFCA beats')
    (place / "published.toml").write_text(text)
    assert f"| {said} |  |  |  |  |  |  | 1 |" in replication_page([place / "runs"], [place / "published.toml"])


def test_each_folder_of_a_table_has_its_command(place):
    store = Store(place / "more")
    store.write_spec('# --set model={name="cnn"}\n')
    store.write_plan({"name": "a small sweep", "units": []})
    page = replication_page([place / "runs", place / "more"], [place / "published.toml"])
    first = "experiments/small.toml --set size=small`  \nSize small: `seeds = [0, 1]`.  \n"
    assert first + "`CFLJAX_DATA=DATA python -m cfljax.sweep experiments/small.toml --set 'model={name=\"cnn\"}'`  \n" in page


def test_a_page_without_any_run_has_every_cell(place):
    (place / "published.toml").write_text(FILE.replace("a small sweep", "another"))
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert page.count("| not run | not run |") == 3 and "Not run: `CFLJAX_DATA=DATA python -m cfljax.sweep" in page


def test_runs_that_did_not_end_well_are_counted_and_in_no_mean(place):
    store = Store(place / "runs")
    before = row_of(replication_page([place / "runs"], [place / "published.toml"]), "FedAvg")
    synthetic.add(store, "bad", 7, method="fedavg", status="diverged")
    store.write_plan({"name": "a small sweep", "units": store.ids()})
    after = row_of(replication_page([place / "runs"], [place / "published.toml"]), "FedAvg")
    assert after == [*before[:-1], "3 (1 diverged or failed)"]


def test_a_grid_has_a_column_for_what_stands_before_the_colon(place):
    text = FILE.split("[[claim]]")[0].replace("FedAvg", "a: x").replace('"IFCA"', '"b: x"').replace("FeSEM", "b: y")
    (place / "published.toml").write_text("grid = true\n" + text)
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert "|  | a | b |" in page and row_of(page, "y") == ["y", "", "not run (70.0)"]
    assert row_of(page, "x")[1].endswith("(50.0)") and row_of(page, "x")[2].endswith("(80.0 ± 0.5)")


def test_two_runs_of_a_seed_for_one_cell_are_an_error(place):
    (place / "published.toml").write_text(FILE.replace('{ label = "fedavg" }', '{ "model.name" = "mlp" }'))
    with pytest.raises(SpecError, match=r'^published.toml: cell "FedAvg": selects \d runs of seed 0; narrow `where`$'):
        replication_page([place / "runs"], [place / "published.toml"])


WRONG = [
    ('title = "Table 1, digits"', "", "title"),
    ('paper = "A', 'papre = "A', "papre"),
    ('label = "fesem"', "", "cells[2].where"),
    ("published = 70.0", 'published = "70"', "cells[2].published"),
    ('name = "FeSEM"', 'name = "IFCA"', "cells"),
    ('difference = ["IFCA", "FedAvg"]', 'difference = ["IFCA", "FedAgv"]', "claim[0].difference"),
    ('difference = ["IFCA", "FedAvg"]', 'difference = ["IFCA"]', "claim[0].difference"),
    ('difference = ["IFCA", "FedAvg"]', 'beats = ["IFCA", "FedAvg"]', "claim[0].beats"),
    ('difference = ["IFCA", "FedAvg"]\npublished = 30.0', 'at_least = "all"', "claim[0].published"),
    ("published = 70.0 }", 'published = 70.0, take = "accuracy_best" }', "cells[2].take.summary"),
    ("published = 70.0 }", 'published = 70.0, take = { history = "loss" } }', "cells[2].take"),
    ("published = 70.0 }", 'published = 70.0, take = { cluster = "best" } }', "cells[2].labels_of"),
    ("cells = [", "cells = [[", "line"),
]


@pytest.mark.parametrize(("old", "new", "key"), WRONG)
def test_a_mistake_in_a_file_is_one_line_that_names_file_and_key(place, capsys, old, new, key):
    assert FILE.count(old) >= 1
    (place / "published.toml").write_text(FILE.replace(old, new, 1))
    assert process.main(run, parser(), [str(place / "runs"), "--against", str(place / "published.toml")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "published.toml" in said and (key in said or key == "line")


def test_a_folder_is_read_in_the_order_of_its_page(place):
    for name in "ab":
        (place / f"{name}.toml").write_text(FILE.replace("digits", name))
    (place / "published.toml").unlink()
    (place / "page.toml").write_text('title = "Ours"\ntext = "First."\nfiles = ["b.toml", "a.toml"]\n')
    page, files = read_published([place])
    assert (page.title, page.text, [f.file for f in files]) == ("Ours", "First.", ["b.toml", "a.toml"])
    (place / "page.toml").write_text('title = "Ours"\ntext = "First."\nfiles = ["b.toml"]\n')
    with pytest.raises(SpecError, match=r"page\.toml: files: a\.toml is not listed"):
        read_published([place])


def test_the_page_that_is_printed_is_the_page_that_is_written(place, capsys):
    words = [str(place / "runs"), "--against", str(place / "published.toml")]
    assert process.main(run, parser(), words) == 0
    printed = capsys.readouterr().out
    assert process.main(run, parser(), [*words, "--out", str(place / "page.md")]) == 0
    assert (place / "page.md").read_text() == printed


# --- what is taken from a run --------------------------------------------------------------------------------------------


def result(**arrays):
    rounds = np.arange(5, dtype=np.int32)
    known = {"history/round": rounds, "history/purity": np.array([0.9, 0.2, 0.9, 0.4, 0.8], np.float32)}
    return Result({"method": "ocfl", "summary": {"accuracy_max": 0.5}}, known | arrays)


@pytest.mark.parametrize(
    ("take", "value"),
    [
        ("accuracy_max", 0.5),
        ("accuracy_last", math.nan),
        ({"history": "purity", "at": 3}, 0.4),
        ({"history": "purity", "at": 9}, math.nan),
        ({"history": "purity", "reaches": 0.9}, 2.0),  # round 0 is before training
        ({"history": "purity", "reaches": 0.95}, math.inf),
        ({"history": "purity", "over": "median"}, 0.6),
        ({"history": "purity", "over": "variance"}, np.var([0.2, 0.9, 0.4, 0.8])),
        ({"history": "loss", "over": "max"}, math.nan),
        ({"diag": "found"}, 10.0),
        ({"correlation": ["one", "other"]}, -1.0),
        ({"cluster": "best"}, 0.25),  # of the other run's clusters the best, whatever this run makes of it
        ({"cluster": "worst"}, 0.9),
    ],
)
def test_a_number_of_a_run(take, value):
    one = np.random.default_rng(0).random((4, 4))
    more = {"diag/ocfl/found": np.array(10.0), "diag/ocfl/one": one, "diag/ocfl/other": 1 - 2 * one}
    client = np.array([0.2, 0.3, 0.9, 0.1, np.nan], np.float32)
    other = result(client_accuracy=np.array([0.8, 0.6, 0.5, 1.0, 0.9]), labels=np.array([[1, 1, 0, -1, 1]]))
    assert read_quantity(take, "take").of(result(client_accuracy=client, **more), other) == pytest.approx(value, nan_ok=True)


# --- verdicts -------------------------------------------------------------------------------------------------------------


def decided(kind, cells, published=None, tolerance=1.0, theirs=(), **values):
    take = Quantity(history="purity", reaches=0.9) if kind in ("reduction", "order") else Quantity(summary="accuracy_max")
    table = tuple(Cell(name, {"label": name}, take, dict(theirs).get(name)) for name in values)
    of = Published("f", "p", "t", "s", "", "%", False, "", table, ())
    measured = {name: Measured(dict(enumerate(v)), dict.fromkeys(range(len(v)), 60)) for name, v in values.items()}
    return verdict(Claim("c", kind, tuple(cells), published, tolerance), of, measured)


CASES = [
    ("difference", "ab", 5.0, {"a": [10, 11, 12], "b": [5, 6, 7]}, "reproduces"),
    ("difference", "ab", 3.5, {"a": [10, 12, 14], "b": [8, 10, 12]}, "reproduces in direction"),
    ("difference", "ab", 5.0, {"a": [10, 15, 5], "b": [9, 9, 10]}, "not decided"),
    ("difference", "ab", 5.0, {"a": [15, 10, 11], "b": [5, 9, 9]}, "not decided"),  # three agree, and are too far apart
    ("difference", "ab", 5.0, {"a": [15, 10], "b": [5, 9]}, "not decided"),
    ("difference", "ab", -5.0, {"a": [5, 6, 7], "b": [10, 11, 12]}, "reproduces"),
    ("difference", "ab", None, {"a": [15, 14, 16], "b": [9, 9, 9]}, "reproduces"),
    ("difference", "ab", None, {"a": [9, 9, 9], "b": [15, 14, 16]}, "does not reproduce"),
    ("difference", "ab", 5.0, {"a": [4], "b": [6]}, "not decided"),  # one seed
    ("difference", "ab", 0.0, {"a": [10, 11], "b": [10.5, 10.4]}, "not decided"),  # 0 within, and much more
    ("difference", "ab", 0.0, {"a": [10, 11, 12], "b": [10.1, 11.2, 12.1]}, "reproduces"),
    ("difference", "ab", 0.0, {"a": [10, 11], "b": [5, 6]}, "does not reproduce"),
    ("difference", "ab", 0.5, {"a": [10, 10], "b": [10.2, 10.2]}, "does not reproduce"),  # near, but of the other sign
    ("difference", "ab", 5.0, {"a": [], "b": [6]}, "not run"),
    ("reduction", "ab", 0.9, {"a": [2, 2, 2], "b": [3, 20, math.inf]}, "reproduces"),
    ("reduction", "ab", 0.9, {"a": [2, 2, 2], "b": [2, 20, math.inf]}, "reproduces in direction"),  # not for every seed
    ("reduction", "ab", 0.9, {"a": [2, 3, 2], "b": [4, 4, 4]}, "reproduces in direction"),
    ("reduction", "ab", 0.9, {"a": [2, 1], "b": [math.inf, math.inf]}, "reproduces"),  # at least 97 %
    ("reduction", "ab", 0.9, {"a": [40], "b": [math.inf]}, "less than half of the effect"),  # at least a third of the 60 rounds
    ("reduction", "ab", 0.9, {"a": [60], "b": [math.inf]}, "does not reproduce"),
    ("reduction", "ab", 0.9, {"a": [math.inf, 3, 9], "b": [4, 4, 4]}, "does not reproduce"),
    ("reduction", "ab", 0.9, {"a": [math.inf], "b": [math.inf]}, "does not reproduce"),
    ("difference", "ab", None, {"a": [10, 11], "b": [5, 6.5]}, "reproduces"),
    ("difference", "ab", None, {"a": [10, 1], "b": [5, 6]}, "not decided"),
    ("reduction", "ab", None, {"a": [2, 3], "b": [4, 4]}, "reproduces"),
    ("reduction", "ab", None, {"a": [2], "b": []}, "not run"),
    ("reduction", "ab", None, {"a": [2, 3, 5], "b": [4, 4, 4]}, "reproduces in direction"),
    ("order", "abc", None, {"a": [1], "b": [2], "c": [3]}, "not decided"),
    ("order", "abc", None, {"a": [3, 3], "b": [4, 4], "c": [1, 1]}, "does not reproduce"),
    ("order", "abc", None, {"a": [1, 1], "b": [2, 2], "c": [3, 3]}, "reproduces"),
    ("order", "abc", None, {"a": [1, 1], "b": [2, 4], "c": [3, 3]}, "reproduces in direction"),  # not for every seed
    ("order", "abc", None, {"a": [1, 9], "b": [2, 4], "c": [3, 8]}, "not decided"),
    ("difference", "ab", 5.0, {"a": [5.4], "b": [5]}, "not decided"),
    ("difference", "ab", 8.0, {"a": [5.4, 5.41, 5.39], "b": [5, 5, 5]}, "does not reproduce"),  # less than a tenth of it
    ("difference", "ab", 8.0, {"a": [7.4, 7.41, 7.39], "b": [5, 5, 5]}, "less than half of the effect"),
    ("difference", "ab", 1.0, {"a": [5.6, 5.61], "b": [5, 5]}, "reproduces"),
    ("difference", "ab", 1.0, {"a": [5.4, 5.41], "b": [5, 5]}, "less than half of the effect"),
    ("difference", "ab", 1.0, {"a": [6, 8], "b": [6, 6]}, "not decided"),
    ("reduction", "ab", 0.9, {"a": [2, math.inf], "b": [20, math.inf]}, "reproduces in direction"),  # half of the seeds
    ("reduction", "ab", None, {"a": [2, math.inf, math.inf], "b": [20, math.inf, math.inf]}, "does not reproduce"),
    ("order", "abc", None, {"a": [5, 5], "b": [4, 4], "c": [3, 3]}, "does not reproduce"),
    ("at_least", "ab", 0.9, {"a": [3], "b": [1]}, "reproduces"),
    ("at_least", "ab", 2.5, {"a": [3], "b": [1]}, "reproduces in direction"),
    ("at_least", "ab", 5.0, {"a": [3], "b": [1]}, "does not reproduce"),
]


@pytest.mark.parametrize(("kind", "cells", "published", "values", "word"), CASES)
def test_a_verdict_rests_on_the_numbers(kind, cells, published, values, word):
    tolerance = 0.05 if kind == "reduction" else 0.0 if kind == "at_least" else 1.0
    assert decided(kind, cells, published, tolerance, **values).word == word


@pytest.mark.parametrize("n", [2, 3, 9])
def test_the_interval_is_students(n):
    from scipy.stats import t, tstd

    values = np.random.default_rng(n).standard_normal(n)
    wanted = t.interval(0.95, n - 1, values.mean(), tstd(values) / math.sqrt(n))
    assert interval(list(values)) == pytest.approx(wanted)


def test_what_small_runs_do_not_confirm_is_not_run_at_size():
    take = Quantity(summary="accuracy_max")
    of = Published("f", "p", "t", "s", "", "%", False, "", tuple(Cell(name, {}, take) for name in "ab"), ())
    claim = Claim("c", "difference", ("a", "b"), 5.0, 1.0)
    for values, word, larger in (
        ([4, 5, 6], "not run at size", "not decided"),
        ([1, 1, 1], "not run at size", "does not reproduce"),
        ([7, 7.1, 7], "not run at size", "less than half of the effect"),
        ([10, 10.1, 10], "reproduces", "reproduces"),
    ):
        measured = {"a": Measured(dict(enumerate(values))), "b": Measured({0: 5.1, 1: 5.0, 2: 5.0})}
        assert verdict(claim, of, measured, small=True).word == word
        assert verdict(claim, of, measured).word == larger


@pytest.mark.parametrize("kind", ["difference", "reduction", "order"])
def test_cells_without_a_seed_in_common_have_no_verdict(kind):
    of = Published(
        "f", "p", "t", "s", "", "%", False, "", tuple(Cell(n, {}, Quantity(summary="accuracy_last10")) for n in "ab"), ()
    )
    measured = {"a": Measured({0: 75.0}), "b": Measured({1: 94.0})}
    assert verdict(Claim("c", kind, ("a", "b"), 0.2), of, measured)[:2] == ("not run", "no seed in common (one seed)")


def test_a_number_that_is_not_of_rounds_may_be_reduced_too():
    cells = (Cell("a", {}, Quantity(summary="accuracy_last10")), Cell("b", {}, Quantity(summary="accuracy_last10")))
    of = Published("f", "p", "t", "s", "", "%", False, "", cells, ())
    found = verdict(Claim("c", "reduction", ("a", "b"), 0.2, 0.05), of, {"a": Measured({0: 75.0}), "b": Measured({0: 94.0})})
    assert found == ("reproduces", "20 % less in the median (1 of 1 seeds less); published 20 % less (one seed)")


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([50, 61, 70, 80.5], "reproduces"),
        ([50, 60, 75, 95], "reproduces in direction"),
        ([40, 45, 50, 55], "does not reproduce"),
        ([80, 70, 60, 50], "does not reproduce"),
    ],
)
def test_numbers_are_within_or_in_the_same_order_or_not(ours, word):
    values = dict(zip("abcd", ([v] for v in ours), strict=True))
    found = decided("within", "abcd", theirs={"a": 50, "b": 60, "c": 70, "d": 80}, **values)
    assert found.word == word and found.numbers.endswith("(one seed)")


def test_a_row_of_which_less_than_half_was_run_has_no_verdict():
    found = decided("within", "abc", theirs={"a": 50, "b": 60, "c": 70}, a=[50], b=[], c=[])
    assert found.word == "not run" and found.numbers == "1 of 3 cells were run (one seed)"


def test_cells_select_by_the_labels_of_the_plan(place):
    before = row_of(replication_page([place / "runs"], [place / "published.toml"]), "FedAvg")
    store = Store(place / "runs")
    runs = {method: [run for run, record in store.records().items() if record["method"] == method] for method in ("fedavg", "ifca")}
    pairs = (("fedavg", "ifca"), ("fesem", "fedavg"), ("b", "fedavg"))
    labels = [{"label": label, "units": runs[method]} for label, method in pairs]
    store.write_plan({"name": "a small sweep", "units": [*runs["ifca"], *runs["fedavg"]], "labels": labels})
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert row_of(page, "FeSEM")[2:] == before[2:] and row_of(page, "FedAvg")[2:] == row_of(page, "IFCA")[2:]


@pytest.mark.parametrize(
    ("kind", "values", "published", "word"),
    [
        ("at_least", [{0: 90.0}, {}, {}], 80.0, "not run"),
        ("difference", [{0: 10.0, 1: math.inf}, {0: math.inf, 1: math.inf}], -10.0, "not decided"),
        ("order", [{0: 10.0, 1: 11.0}, {0: math.inf, 1: math.inf}], None, "reproduces"),
        ("order", [{0: math.inf, 1: math.inf}, {0: 10.0, 1: 11.0}], None, "does not reproduce"),
        ("reduction", [{0: 5.0, 1: 5.0}, {0: 0.0, 1: 0.0}], 0.5, "does not reproduce"),
        ("reduction", [{0: 0.0, 1: 0.0}, {0: 0.0, 1: 0.0}], 0.5, "does not reproduce"),
    ],
)
def test_what_was_never_reached_or_hardly_run_or_is_nothing_has_a_verdict(kind, values, published, word):
    names = tuple("abc"[: len(values)])
    take = Quantity(summary="accuracy_max") if kind in ("at_least", "reduction") else Quantity(history="accuracy", reaches=0.9)
    cells = tuple(Cell(name, {"label": name}, take, None, None, None) for name in names)
    of = Published("f", "p", "t", "s", "", "", False, "", cells, ())
    measured = {name: Measured(own, dict.fromkeys(own, 20)) for name, own in zip(names, values, strict=True)}
    assert verdict(Claim("text", kind, names, published, 1.0), of, measured).word == word


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ('order = ["IFCA"]', "needs two cells or more"),
        ('reduction = ["IFCA", "FedAvg"]\npublished = -0.5', "a reduction is a fraction above 0"),
        ('within = ["Bare"]', "none of its cells has a published number"),
    ],
)
def test_claims_that_nothing_could_decide_are_refused(tmp_path, claim, said):
    text = FILE.split("[[claim]]")[0].replace("cells = [", 'cells = [\n    { name = "Bare", where = { label = "x" } },')
    (tmp_path / "p.toml").write_text(f'{text}\n[[claim]]\ntext = "a claim"\n{claim}\n')
    with pytest.raises(SpecError, match=said):
        read_published([tmp_path / "p.toml"])


def test_rounds_to_a_target_are_taken_from_a_curve():
    with pytest.raises(SpecError, match="unknown"):
        read_quantity("round_to_target", "take")
