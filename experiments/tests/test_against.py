"""Ours beside published numbers: what is taken from a run, what becomes of a claim, and what the
committed pages do not show."""

import dataclasses
import math
from xml.etree import ElementTree

import numpy as np
import pytest

from cfljax.commands import process
from cfljax.errors import SpecError
from cfljax.results.result import Result
from cfljax.store import Store
from experiments.replication.__main__ import parser, run
from experiments.replication.claims import verdict
from experiments.replication.effects import LEFT, Row, effects
from experiments.replication.intervals import interval
from experiments.replication.pages import replication_page, replication_pages
from experiments.replication.published import Cell, Claim, Published, read_published
from experiments.replication.quantity import Quantity, read_quantity
from experiments.replication.verdicts import Measured, Verdict
from experiments.todo import hours_left
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
    synthetic.sweep(tmp_path / "runs").write_spec(
        "# --set size=small\n[size.small]\nseeds = [0, 1]\n"
    )
    (tmp_path / "published.toml").write_text(FILE)
    return tmp_path


def pages_of(place):
    return replication_pages([place / "runs"], [place / "published.toml"], "to/")


def row_of(page, name):
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    return [word.strip() for word in line.strip("| ").split("|")]


def test_a_cell_has_maximum_and_last_ten_over_seeds_beside_what_was_published(place):
    page = replication_page([place / "runs"], [place / "published.toml"])
    records = Store(place / "runs", read_only=True).records().values()
    of = {
        q: [100 * r["summary"][q] for r in records if r["method"] == "ifca"]
        for q in ("accuracy_max", "accuracy_last10")
    }
    name, published, most, last, seeds = row_of(page, "IFCA")
    assert published == "80.0 ± 0.5" and seeds == "3"
    for text, values in ((most, of["accuracy_max"]), (last, of["accuracy_last10"])):
        mean, deviation = (float(part) for part in text.split(" ± "))
        assert mean == pytest.approx(np.mean(values), abs=0.051) and deviation == pytest.approx(
            np.std(values, ddof=1), abs=0.051
        )


def test_the_page_says_how_the_runs_were_made(place):
    store, git = (
        Store(place / "runs"),
        [{"commit": "a" * 40, "dirty": False}, {"commit": "b" * 40, "dirty": True}, None],
    )
    for number, (name, record) in enumerate(store.records().items()):
        train = record["config"]["train"] | {"rounds": 23, "eval_every": 2}
        made = {
            "config": record["config"] | {"train": train},
            "git": git[number % 3],
            "versions": {"jax": f"0.1{number % 2}.0"},
        }
        store.write(name, record | made, store.read(name).arrays)
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert "Last ten: rounds 6 to 23." in page  # 6, 8, … 22 and 23
    assert "JAX 0.10.0 and 0.11.0, cfljax unknown, started in a folder at " in page
    assert "aaaaaaa, bbbbbbb with changes, no commit" in page


SMALL = Verdict("not run at size", "", why="small: does not reproduce")


def test_what_is_never_reached_is_drawn_open_and_far_losses_at_the_edge():
    rows = [
        Row("one", [(98.0, True), (40.0, False)], 99.0, Verdict("not decided", "")),
        Row("two", [(-900.0, False)], None, SMALL),
    ]
    image = ElementTree.fromstring(effects({"Rounds saved (%)": rows}))
    assert {"not decided", "small, no"} <= {element.text for element in image.iter()}
    dots = [element for element in image.iter() if element.tag.endswith("circle")]
    assert [dot.get("fill") == "none" for dot in dots] == [True, False, False]
    at = [float(dot.get("cx")) for dot in dots]
    assert at[0] > at[1] > at[2] >= LEFT  # all inside, the last at -100 %


def test_a_job_that_is_not_on_the_list_is_an_error():
    with pytest.raises(SpecError, match=r"nothing: there is no such job in todo.toml"):
        hours_left({"nothing", ""})
    assert hours_left({""}) == {}


def test_each_paper_has_a_page_and_each_figure_a_file(place):
    figure = """
[[figure]]
title = "Over <rounds>"
history = "accuracy"
curves = { "FedAvg" = { label = "fedavg" }, "nobody" = { label = "none" } }
points = { "FedAvg" = [[3, 55.0]] }
"""
    (place / "published.toml").write_text(FILE + figure)
    pages = pages_of(place)
    assert set(pages) == {"", "a_paper.md", "a_paper-1-1.svg"}
    image = ElementTree.fromstring(pages["a_paper-1-1.svg"])
    shapes = [element.tag.split("}")[1] for element in image.iter()]
    assert shapes.count("polyline") == 1 and shapes.count("circle") == 1
    texts = [element.text for element in image.iter() if element.tag.endswith("text")]
    assert "Over <rounds>" in texts and "FedAvg (3)" in texts and "circles: published" in texts
    assert "![Over <rounds>](a_paper-1-1.svg)" in pages["a_paper.md"] and "svg" not in pages[""]
    assert (
        "## [A paper (2020)](to/a_paper.md)" in pages[""]
        and '<details id="table-1-digits"' in pages["a_paper.md"]
    )


def test_the_command_writes_the_pages_beside_each_other(place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    (place / "x.d").mkdir()
    words = ["runs", "--against", "published.toml"]
    assert process.main(run, parser(), [*words, "--out", "x.d/README.md", "--pages", "docs/e"]) == 0
    assert capsys.readouterr().out == "page: x.d/README.md, and 1 files in docs/e\n"
    assert "(../docs/e/a_paper.md)" in (place / "x.d/README.md").read_text()
    assert (place / "docs/e/a_paper.md").read_text() == pages_of(place)["a_paper.md"]
    assert process.main(run, parser(), [*words, "--pages", "docs/e"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_figures_of_an_earlier_call_go_and_all_other_files_stay(place):
    folder = place / "e"
    folder.mkdir()
    others = ["another-1-1.svg", "a_paper-scheme.svg", "a_paper-1-1.png", "notes.md"]
    for name in ["a_paper.svg", "a_paper-1-1.svg", "a_paper-1-2.svg", "a_paper-12-1.svg", *others]:
        (folder / name).write_text("")
    figure = (
        '[[figure]]\ntitle = "f"\nhistory = "accuracy"\ncurves = { "FedAvg" = { label = "fedavg" '
        "} }\n"
    )
    (place / "published.toml").write_text(f"{FILE}\n{figure}")
    words = [
        place / "runs",
        "--against",
        place / "published.toml",
        "--out",
        place / "page.md",
        "--pages",
        folder,
    ]
    assert process.main(run, parser(), list(map(str, words))) == 0
    assert {path.name for path in folder.iterdir()} == {*others, "a_paper-1-1.svg", "a_paper.md"}
    assert (folder / "a_paper-1-1.svg").read_text().startswith("<svg")


def test_a_page_without_any_run_has_every_cell(place):
    (place / "published.toml").write_text(FILE.replace("a small sweep", "another"))
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert page.count("| not run | not run |") == 3 and "Not run: `cfljax sweep" in page


def test_runs_that_did_not_end_well_are_counted_and_in_no_mean(place):
    store = Store(place / "runs")
    before = row_of(replication_page([place / "runs"], [place / "published.toml"]), "FedAvg")
    synthetic.add(store, "bad", 7, method="fedavg", status="diverged")
    store.write_plan({"name": "a small sweep", "units": store.ids()})
    after = row_of(replication_page([place / "runs"], [place / "published.toml"]), "FedAvg")
    assert after == [*before[:-1], "3 (1 diverged or failed)"]


def test_a_grid_has_a_column_for_what_stands_before_the_colon(place):
    text = (
        FILE.split("[[claim]]")[0]
        .replace("FedAvg", "a: x")
        .replace('"IFCA"', '"b: x"')
        .replace("FeSEM", "b: y")
    )
    (place / "published.toml").write_text("grid = true\n" + text)
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert "|  | a | b |" in page and row_of(page, "y") == ["y", "", "not run (70.0)"]
    assert row_of(page, "x")[1].endswith("(50.0)") and row_of(page, "x")[2].endswith("(80.0 ± 0.5)")


def test_two_runs_of_a_seed_for_one_cell_are_an_error(place):
    (place / "published.toml").write_text(
        FILE.replace('{ label = "fedavg" }', '{ "model.name" = "mlp" }')
    )
    with pytest.raises(
        SpecError,
        match=r'^published.toml: cell "FedAvg": selects \d runs of seed 0; narrow `where`$',
    ):
        replication_page([place / "runs"], [place / "published.toml"])


def test_a_run_that_two_folders_have_is_one_even_if_versions_call_it_differently(place):
    before = replication_page([place / "runs"], [place / "published.toml"])
    plan = Store(place / "runs", read_only=True).read_plan()
    again = Store(place / "zz")
    names = []
    for name, record in Store(place / "runs").records().items():
        arrays = Store(place / "runs").read(name).arrays
        again.write(f"{name}again", record | {"id": f"{name}again"}, arrays)
        names.append(f"{name}again")
    again.write_plan({"name": plan["name"], "units": names})
    both = [place / "runs", place / "zz"]
    page = replication_page(both, [place / "published.toml"])
    assert row_of(page, "IFCA") == row_of(before, "IFCA")
    for name, record in again.records().items():  # with another step it is another run
        train = record["config"]["train"] | {"lr": 0.7}
        config = record["config"] | {"train": train}
        again.write(name, record | {"config": config}, again.read(name).arrays)
    with pytest.raises(SpecError, match=r"selects 2 runs of seed 0; narrow `where`$"):
        replication_page(both, [place / "published.toml"])


WRONG = [
    ('title = "Table 1, digits"', "", "title"), ('paper = "A', 'papre = "A', "papre"), ('label = "fesem"', "", "cells[2].where"),
    ("published = 70.0", 'published = "70"', "cells[2].published"), ('name = "FeSEM"', 'name = "IFCA"', "cells"),
    ('difference = ["IFCA", "FedAvg"]', 'difference = ["IFCA", "FedAgv"]', "claim[0].difference"),
    ('difference = ["IFCA", "FedAvg"]', 'difference = ["IFCA"]', "claim[0].difference"),
    ('difference = ["IFCA", "FedAvg"]', 'beats = ["IFCA", "FedAvg"]', "claim[0].beats"),
    ('difference = ["IFCA", "FedAvg"]\npublished = 30.0', 'at_least = "all"', "claim[0].published"),
    ("published = 70.0 }", 'published = 70.0, take = "accuracy_best" }', "cells[2].take.summary"),
    ("published = 70.0 }", 'published = 70.0, take = { history = "loss" } }', "cells[2].take"),
    ("published = 70.0 }", 'published = 70.0, take = { history = "loss", at = 3, to = 4 } }', "cells[2].take.to"),
    ("published = 70.0 }", 'published = 70.0, take = { cluster = "best" } }', "cells[2].labels_of"),
    ("cells = [", "cells = [[", "line"), ("order = ", 'panel = ["Gains (points)", "digits"]\norder = ', "claim[1].panel"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key"), WRONG)
def test_a_mistake_in_a_file_is_one_line_that_names_file_and_key(place, capsys, old, new, key):
    assert FILE.count(old) >= 1
    (place / "published.toml").write_text(FILE.replace(old, new, 1))
    assert (
        process.main(
            run, parser(), [str(place / "runs"), "--against", str(place / "published.toml")]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "published.toml" in said and (key in said or key == "line")


def test_a_folder_is_read_in_the_order_of_its_page(place):
    for name in "ab":
        (place / f"{name}.toml").write_text(FILE.replace("digits", name))
    (place / "published.toml").unlink()
    (place / "page.toml").write_text(
        'title = "Ours"\ntext = "First."\nfiles = ["b.toml", "a.toml"]\n'
    )
    page, files = read_published([place])
    assert (page.title, page.text, [f.file for f in files]) == (
        "Ours",
        "First.",
        ["b.toml", "a.toml"],
    )
    (place / "page.toml").write_text('title = "Ours"\ntext = "First."\nfiles = ["b.toml"]\n')
    with pytest.raises(SpecError, match=r"page\.toml: files: a\.toml is not listed"):
        read_published([place])


def test_the_page_that_is_printed_is_the_page_that_is_written(place, capsys):
    words = [str(place / "runs"), "--against", str(place / "published.toml")]
    assert process.main(run, parser(), words) == 0
    printed = capsys.readouterr().out
    assert process.main(run, parser(), [*words, "--out", str(place / "page.md")]) == 0
    assert (place / "page.md").read_text() == printed


# --- what is taken from a run
# --------------------------------------------------------------------------------------------


def result(**arrays):
    rounds = np.arange(5, dtype=np.int32)
    known = {
        "history/round": rounds,
        "history/purity": np.array([0.9, 0.2, 0.9, 0.4, 0.8], np.float32),
    }
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
        ({"history": "purity", "over": "mean", "to": 3}, 0.5),
        ({"history": "purity", "over": "mean", "to": 5}, math.nan),
        ({"history": "loss", "over": "max"}, math.nan),
        ({"diag": "found"}, 10.0),
        ({"correlation": ["one", "other"]}, -1.0),
        (
            {"cluster": "best"},
            0.25,
        ),  # of the other run's clusters the best, whatever this run makes of it
        ({"cluster": "worst"}, 0.9),
    ],
)
def test_a_number_of_a_run(take, value):
    one = np.random.default_rng(0).random((4, 4))
    more = {"diag/ocfl/found": np.array(10.0), "diag/ocfl/one": one, "diag/ocfl/other": 1 - 2 * one}
    client = np.array([0.2, 0.3, 0.9, 0.1, np.nan], np.float32)
    other = result(
        client_accuracy=np.array([0.8, 0.6, 0.5, 1.0, 0.9]), labels=np.array([[1, 1, 0, -1, 1]])
    )
    assert read_quantity(take, "take").of(
        result(client_accuracy=client, **more), other
    ) == pytest.approx(value, nan_ok=True)


# --- verdicts
# -------------------------------------------------------------------------------------------------------------


def decided(kind, cells, published=None, tolerance=1.0, theirs=(), **values):
    take = (
        Quantity(history="purity", reaches=0.9)
        if kind in ("reduction", "order")
        else Quantity(summary="accuracy_max")
    )
    table = tuple(Cell(name, {"label": name}, take, dict(theirs).get(name)) for name in values)
    of = Published("f", "p", "t", "s", "", "%", False, "", table, ())
    measured = {
        name: Measured(dict(enumerate(v)), dict.fromkeys(range(len(v)), 60))
        for name, v in values.items()
    }
    return verdict(Claim("c", kind, tuple(cells), published, tolerance), of, measured)


NEVER = [math.inf] * 2
CASES = [
    ("difference", "ab", 5.0, {"a": [10, 11, 12], "b": [5, 6, 7]}, "reproduces"),
    ("difference", "ab", 3.5, {"a": [10, 12, 14], "b": [8, 10, 12]}, "reproduces in direction"),
    ("difference", "ab", 5.0, {"a": [10, 15, 5], "b": [9, 9, 10]}, "not decided"),
    (
        "difference",
        "ab",
        5.0,
        {"a": [15, 10, 11], "b": [5, 9, 9]},
        "not decided",
    ),  # three agree, and are too far apart
    ("difference", "ab", 5.0, {"a": [10, 10.1], "b": [5, 5]}, "not decided"),  # two seeds
    ("difference", "ab", -5.0, {"a": [5, 6, 7], "b": [10, 11, 12]}, "reproduces"),
    ("difference", "ab", None, {"a": [15, 14, 16], "b": [9, 9, 9]}, "reproduces"),
    ("difference", "ab", None, {"a": [9, 9, 9], "b": [15, 14, 16]}, "does not reproduce"),
    (
        "difference",
        "ab",
        0.0,
        {"a": [10, 11], "b": [10.5, 10.4]},
        "not decided",
    ),  # 0 within, and much more
    ("difference", "ab", 0.0, {"a": [10, 11, 12], "b": [10.1, 11.2, 12.1]}, "reproduces"),
    ("difference", "ab", 0.0, {"a": [10, 11, 10], "b": [5, 6, 5]}, "does not reproduce"),
    (
        "difference",
        "ab",
        0.5,
        {"a": [10, 10, 10], "b": [10.2, 10.2, 10.2]},
        "does not reproduce",
    ),  # near, but of the other sign
    (
        "difference",
        "ab",
        5.0,
        {"a": [6.5, 7, 7.2], "b": [6, 6.8, 6]},
        "less than half of the effect",
    ),  # 0 is in it, and 2.5 is not
    (
        "difference",
        "ab",
        5.0,
        {"a": [6, 6, 7], "b": [6, 7, 6]},
        "does not reproduce",
    ),  # nor is it above a tenth
    ("difference", "ab", 5.0, {"a": [], "b": [6]}, "not run"),
    (
        "reduction",
        "ab",
        0.9,
        {"a": [2, 2, 2], "b": [3, 20, math.inf]},
        "not decided",
    ),  # three agree, from 33 to 97 %
    ("reduction", "ab", 0.9, {"a": [2, 2, 2], "b": [20, 25, 18]}, "reproduces"),
    (
        "reduction",
        "ab",
        0.9,
        {"a": [2, 2, 2], "b": [20, 25, math.inf]},
        "reproduces",
    ),  # at least 95 %
    ("reduction", "ab", 0.9, {"a": [2, 2, 2], "b": [5, 6, 5]}, "reproduces in direction"),
    ("reduction", "ab", 0.9, {"a": [3, 3, 3], "b": [4, 4, 5]}, "less than half of the effect"),
    ("reduction", "ab", 0.9, {"a": [2, 2, 2], "b": [math.inf] * 3}, "reproduces"),  # at least 97 %
    (
        "reduction",
        "ab",
        0.9,
        {"a": [40, 41, 40], "b": [math.inf] * 3},
        "not decided",
    ),  # at least a third of the 60 rounds, or more
    ("reduction", "ab", 0.9, {"a": [60, 60, 60], "b": [math.inf] * 3}, "not decided"),
    ("reduction", "ab", 0.9, {"a": [math.inf] * 3, "b": [4, 4, 5]}, "does not reproduce"),
    ("reduction", "ab", 0.9, {"a": [math.inf, 3, 9], "b": [4, 4, 4]}, "not decided"),
    ("reduction", "ab", 0.9, {"a": [math.inf] * 3, "b": [math.inf] * 3}, "not decided"),
    (
        "reduction",
        "ab",
        0.9,
        {"a": [3, 3, 3, 3, 3], "b": [4, 4, 4, 4, 4.1]},
        "less than half of the effect",
    ),
    (
        "reduction",
        "ab",
        0.9,
        {"a": [3, 3, 3, *NEVER], "b": [4, 4, 4, *NEVER]},
        "not decided",
    ),  # two say nothing
    ("difference", "ab", None, {"a": [10, 11, 10], "b": [5, 6.5, 5]}, "reproduces"),
    ("difference", "ab", None, {"a": [10, 1, 5], "b": [5, 6, 5]}, "not decided"),
    ("reduction", "ab", None, {"a": [2, 2, 2], "b": [4, 4, 5]}, "reproduces"),
    ("reduction", "ab", None, {"a": [2], "b": []}, "not run"),
    ("reduction", "ab", None, {"a": [2, 3, 5], "b": [4, 4, 4]}, "not decided"),
    ("order", "abc", None, {"a": [3, 3, 3], "b": [4, 4, 4], "c": [1, 1, 1]}, "does not reproduce"),
    ("order", "abc", None, {"a": [1, 1, 1], "b": [2, 2, 2], "c": [3, 3, 3]}, "reproduces"),
    (
        "order",
        "abc",
        None,
        {"a": [1, 1, 1], "b": [2, 4, 2], "c": [3, 3, 3]},
        "reproduces in direction",
    ),  # not for every seed
    ("order", "abc", None, {"a": [1, 9, 2], "b": [2, 4, 3], "c": [3, 8, 4]}, "not decided"),
    (
        "difference",
        "ab",
        8.0,
        {"a": [5.4, 5.41, 5.39], "b": [5, 5, 5]},
        "does not reproduce",
    ),  # less than a tenth of it
    (
        "difference",
        "ab",
        8.0,
        {"a": [7.4, 7.41, 7.39], "b": [5, 5, 5]},
        "less than half of the effect",
    ),
    ("difference", "ab", 1.0, {"a": [5.6, 5.61, 5.6], "b": [5, 5, 5]}, "reproduces"),
    (
        "difference",
        "ab",
        1.0,
        {"a": [5.4, 5.41, 5.4], "b": [5, 5, 5]},
        "less than half of the effect",
    ),
    ("difference", "ab", 1.0, {"a": [6, 8, 6], "b": [6, 6, 6]}, "not decided"),
    (
        "reduction",
        "ab",
        0.9,
        {"a": [2, 2, math.inf], "b": [20, 20, math.inf]},
        "not decided",
    ),  # two thirds of the seeds
    ("order", "abc", None, {"a": [5, 5, 5], "b": [4, 4, 4], "c": [3, 3, 3]}, "does not reproduce"),
    ("at_least", "ab", 0.9, {"a": [3, 3, 3], "b": [1, 1, 1]}, "reproduces"),
    ("at_least", "ab", 2.5, {"a": [3, 3, 3], "b": [1, 1, 1]}, "reproduces in direction"),
    ("at_least", "ab", 5.0, {"a": [3, 3, 3], "b": [1, 1, 1]}, "does not reproduce"),
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
    assert interval(dict(enumerate(values))) == pytest.approx(wanted)
    assert interval({(i, "0"): value for i, value in enumerate(values)}) == pytest.approx(
        wanted
    )  # all share a draw of the data
    assert interval({(i, str(i)): value for i, value in enumerate(values)}) == pytest.approx(
        wanted
    )  # each has its own


def test_seeds_that_share_a_draw_of_the_data_are_no_independent_draws():
    values = {(0, "a"): 1.0, (1, "b"): 3.0, (2, "c"): 2.5}
    twice = values | {
        (seed + 3, data): value for (seed, data), value in values.items()
    }  # each draw again, with the same number
    assert interval(twice) == pytest.approx(interval(values))
    mixed = {
        (0, "0"): 1.0,
        (1, "0"): 1.1,
        (2, "0"): 0.9,
        (3, "3"): 1.5,
        (4, "4"): 0.5,
        (5, "5"): 1.0,
    }
    low, high = interval(mixed)
    assert (low + high) / 2 == pytest.approx(np.mean(list(mixed.values())))
    half = (
        3.1824463 * math.sqrt(4 / 3 * (0.0**2 + 0.5**2 + 0.5**2 + 0.0**2)) / 6
    )  # three degrees of freedom
    assert (high - low) / 2 == pytest.approx(half)


def test_an_order_and_what_is_the_same_are_said_in_words():
    names = {"a, b: 1 class": [3, 4, 3], "a, b: 10 classes": [5, 7, 6]}
    found = decided("order", names, **names).ours
    assert found.startswith("3.33, 6, so ordered in 3 of 3 seeds; first − last −2.67 [−")
    assert (
        decided("reduction", "ab", 0.5, a=[4, 5, 6], b=[4, 5, 6]).ours == "as many in 3 of 3 seeds"
    )
    found = decided("reduction", "ab", 0.5, a=[4, math.inf], b=[4, math.inf]).ours
    assert found == "as many in 1 of 2 seeds, neither gets there in the other"


def of_ab(values, claim, **given):
    take = Quantity(summary="accuracy_max")
    of = Published(
        "f", "p", "t", "s", "", "%", False, "", tuple(Cell(name, {}, take) for name in "ab"), ()
    )
    measured = {
        "a": Measured(dict(enumerate(values))),
        "b": Measured(dict(enumerate([5.1, 5.0, 5.0][: len(values)]))),
    }
    return verdict(claim, of, measured, **given)


@pytest.mark.parametrize(("values", "word"), [
    ([4, 5, 6], "not decided"), ([1, 1, 1], "does not reproduce"), ([7, 7.1, 7], "less than half of the effect"),
    ([10, 10.1, 10], "reproduces"),
])  # fmt: skip
def test_small_runs_are_not_run_at_size_whatever_they_say(values, word):
    claim = Claim("c", "difference", ("a", "b"), 5.0, 1.0)
    assert of_ab(values, claim).word == word
    found = of_ab(values, claim, small=True)
    assert found.word == "not run at size" and found.why == f"small: {word}"


def test_runs_that_are_to_be_made_again_have_no_verdict():
    claim = Claim("c", "difference", ("a", "b"), 5.0, 1.0)
    by_hand = of_ab([10, 10.1, 10], dataclasses.replace(claim, again="Another split."))
    assert (by_hand.word, by_hand.why) == ("to be run again", "Another split.")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([15, 15.1, 15], "more than published"),
        ([10.6, 10.7, 10.6], "more than published"),
        ([9, 11, 12], ""),
    ],
)
def test_an_effect_that_is_wholly_beyond_the_published_one_is_said_to_be_more(values, why):
    claim = Claim("c", "difference", ("a", "b"), 5.0, 1.0)
    found = of_ab(values, claim)
    assert found.why == why and found.published == "+5, within 1"
    assert of_ab(values, claim, small=True).why == f"small: {found.word}" + (
        f", {why}" if why else ""
    )
    turned = of_ab(
        [10.1 - value for value in values], dataclasses.replace(claim, published=-5.0)
    )  # b - a for a - b
    assert turned.why == why and turned.published == "−5, within 1"


def test_what_no_run_could_contradict_is_no_test():
    found = of_ab(
        [10, 10.1, 10],
        Claim("c", "difference", ("a", "b"), 5.0, 1.0, void="One class."),
        small=True,
    )
    assert (found.word, found.why) == ("no test", "One class.") and found.ours.startswith("+5 [")


def test_only_seeds_that_both_have_count():
    of = Published(
        "f",
        "p",
        "t",
        "s",
        "",
        "%",
        False,
        "",
        tuple(Cell(n, {}, Quantity(summary="accuracy_max")) for n in "ab"),
        (),
    )
    measured = {
        "a": Measured({0: 9.0, 1: 9.1, 2: 9.0}),
        "b": Measured({1: 4.0, 2: 4.0, 3: 4.0, 4: 4.0}),
    }
    found = verdict(Claim("c", "difference", ("a", "b"), 5.0), of, measured)
    assert (found.word, found.why) == ("not decided", "two seeds")


@pytest.mark.parametrize("kind", ["difference", "reduction", "order", "within", "at_least"])
def test_fewer_than_three_seeds_decide_nothing(kind):
    for seeds, decided_now in ((1, False), (2, False), (3, True)):
        a, b = [20.0, 20.1, 20.0][:seeds], [10.0, 10.0, 10.1][:seeds]
        names = {"reduction": ("b", "a")}.get(kind, ("a", "b"))
        found = decided(
            kind,
            names,
            {"within": None, "order": None, "reduction": 0.5}.get(kind, 10.0),
            theirs={"a": 20, "b": 10},
            a=a,
            b=b,
        )
        assert (found.word != "not decided") is decided_now
        assert found.why == ("one seed", "two seeds", "")[seeds - 1]


@pytest.mark.parametrize("kind", ["difference", "reduction", "order"])
def test_cells_without_a_seed_in_common_have_no_verdict(kind):
    of = Published(
        "f",
        "p",
        "t",
        "s",
        "",
        "%",
        False,
        "",
        tuple(Cell(n, {}, Quantity(summary="accuracy_last10")) for n in "ab"),
        (),
    )
    measured = {"a": Measured({0: 75.0}), "b": Measured({1: 94.0})}
    assert verdict(Claim("c", kind, ("a", "b"), 0.2), of, measured)[:2] == (
        "not run",
        "no seed in common",
    )


def test_a_number_that_is_not_of_rounds_may_be_reduced_too():
    cells = (
        Cell("a", {}, Quantity(summary="accuracy_last10")),
        Cell("b", {}, Quantity(summary="accuracy_last10")),
    )
    of = Published("f", "p", "t", "s", "", "%", False, "", cells, ())
    values = {
        "a": Measured({0: 75.0, 1: 76.0, 2: 75.0}),
        "b": Measured({0: 94.0, 1: 95.0, 2: 94.0}),
    }
    found = verdict(Claim("c", "reduction", ("a", "b"), 0.2, 0.05), of, values)
    assert found[:3] == (
        "reproduces",
        "20 % less [20 % less, 20 % less] (3 of 3 seeds less)",
        "20 % less, within 5 points",
    )


def test_the_interval_of_a_reduction_is_that_of_the_quotient():
    from scipy.stats import t as student

    a, b = np.array([4, 5, 3.0]), np.array([40, 30, 50.0])
    logs = np.log(a / b)
    ends = 1 - np.exp(student.interval(0.95, 2, logs.mean(), logs.std(ddof=1) / math.sqrt(3)))
    found = decided("reduction", "ab", 0.9, 0.05, a=list(a), b=list(b))
    low, high = (f"{abs(100 * end):.{1 if end > 0.95 else 0}f} % fewer" for end in sorted(ends))
    assert f"[{low}, {high}]" in found.ours


def test_a_row_of_which_less_than_half_was_run_has_no_verdict():
    found = decided("within", "abc", theirs={"a": 50, "b": 60, "c": 70}, a=[50], b=[], c=[])
    assert found.word == "not run" and found.numbers == "1 of 3 cells were run"


def test_cells_select_by_the_labels_of_the_plan(place):
    before = row_of(replication_page([place / "runs"], [place / "published.toml"]), "FedAvg")
    store = Store(place / "runs")
    runs = {
        method: [run for run, record in store.records().items() if record["method"] == method]
        for method in ("fedavg", "ifca")
    }
    pairs = (("fedavg", "ifca"), ("fesem", "fedavg"), ("b", "fedavg"))
    labels = [{"label": label, "units": runs[method]} for label, method in pairs]
    store.write_plan(
        {"name": "a small sweep", "units": [*runs["ifca"], *runs["fedavg"]], "labels": labels}
    )
    page = replication_page([place / "runs"], [place / "published.toml"])
    assert (
        row_of(page, "FeSEM")[2:] == before[2:]
        and row_of(page, "FedAvg")[2:] == row_of(page, "IFCA")[2:]
    )


@pytest.mark.parametrize(
    ("kind", "values", "published", "word"),
    [
        ("at_least", [{0: 90.0}, {}, {}], 80.0, "not run"),
        (
            "difference",
            [{0: 10.0, 1: math.inf, 2: 3.0}, dict.fromkeys(range(3), math.inf)],
            -10.0,
            "not decided",
        ),
        (
            "order",
            [{0: 10.0, 1: 11.0, 2: 10.0}, dict.fromkeys(range(3), math.inf)],
            None,
            "reproduces",
        ),
        (
            "order",
            [dict.fromkeys(range(3), math.inf), {0: 10.0, 1: 11.0, 2: 10.0}],
            None,
            "does not reproduce",
        ),
        (
            "reduction",
            [dict.fromkeys(range(3), 5.0), dict.fromkeys(range(3), 0.0)],
            0.5,
            "does not reproduce",
        ),
        (
            "reduction",
            [dict.fromkeys(range(3), 0.0), dict.fromkeys(range(3), 0.0)],
            0.5,
            "does not reproduce",
        ),
    ],
)
def test_what_was_never_reached_or_hardly_run_or_is_nothing_has_a_verdict(
    kind, values, published, word
):
    names = tuple("abc"[: len(values)])
    take = (
        Quantity(summary="accuracy_max")
        if kind in ("at_least", "reduction")
        else Quantity(history="accuracy", reaches=0.9)
    )
    cells = tuple(Cell(name, {"label": name}, take, None, None, None) for name in names)
    of = Published("f", "p", "t", "s", "", "", False, "", cells, ())
    measured = {
        name: Measured(own, dict.fromkeys(own, 20)) for name, own in zip(names, values, strict=True)
    }
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
    text = FILE.split("[[claim]]")[0].replace(
        "cells = [", 'cells = [\n    { name = "Bare", where = { label = "x" } },'
    )
    (tmp_path / "p.toml").write_text(f'{text}\n[[claim]]\ntext = "a claim"\n{claim}\n')
    with pytest.raises(SpecError, match=said):
        read_published([tmp_path / "p.toml"])
