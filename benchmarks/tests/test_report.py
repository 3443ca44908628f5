"""The table and plots made of measured rows."""

import json
from pathlib import Path

import pytest

from benchmarks import halving, report, startup, table3
from benchmarks.inside import time_rounds
from benchmarks.measure import row
from benchmarks.workloads import WORKLOADS
from cfljax.config import read_spec

ROWS = [
    row(
        "W1",
        "cfljax",
        {},
        median_s=0.01,
        min_s=0.009,
        max_s=0.02,
        compile_s=1.5,
        peak_rss_mib=900.0,
        accuracy=0.85,
    ),
    row(
        "W1",
        "torch",
        {},
        median_s=0.35,
        min_s=0.3,
        max_s=0.4,
        compile_s=0.0,
        peak_rss_mib=600.0,
        accuracy=0.86,
    ),
    row("W1", "pfl", {"reason": "no wheel"}),
    row("W1", "floor", {}, median_s=0.002, min_s=0.002, max_s=0.002),
]


def test_files_become_tables_and_plots(tmp_path, capsys):
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(ROWS))
    assert report.main([str(file)]) == 0
    for suffix in (".png", ".svg", ".md"):
        assert (tmp_path / f"machine{suffix}").stat().st_size > 100
    assert "PyTorch, plain loop" in capsys.readouterr().out


def test_versions_take_turns_and_second_starts_have_the_cache_of_first_ones(tmp_path, monkeypatch):
    asked = []

    def start(package, words, cache):
        asked.append((package, words[0], cache))
        return {"a": (2.0, 3.0), "b": (8.0, 9.0)}[package]

    monkeypatch.setattr(startup, "start", start)
    found = startup.measure({"this": "a", "a7ef2bbd": "b"}, ["run"], 2, tmp_path)
    assert list(map(len, found.values())) == [2] * 8 and [each[0] for each in asked] == [
        *"abab",
        *"baba",
    ]
    assert asked[0][2] == asked[2][2] != asked[1][2] and asked[4][2] not in {
        each[2] for each in asked[:4]
    }
    assert "| run, second start, processor | 2.00 | 8.00 | 0.25 |" in startup.table(found)


def test_every_round_but_the_first_and_the_last_is_timed():
    found = time_rounds(WORKLOADS["toy"].spec(5))
    assert len(found.seconds) == 3 and min(found.seconds) > 0


def test_every_spec_is_valid():
    for workload in WORKLOADS.values():
        assert len(read_spec(workload.spec(3)).runs()) == 1


def test_the_row_of_table_3_has_its_ten_methods_alone(tmp_path):
    spec = read_spec(table3.row_of_the_table(tmp_path), ["seeds=[0]", "train.rounds=2"])
    labels = [run.label for run in spec.runs()]
    assert len(labels) == len(set(labels)) == table3.METHODS and {
        run.train.rounds for run in spec.runs()
    } == {2}


ROOT = Path(__file__).parents[2]


@pytest.mark.rare
def test_it_says_what_each_spends_and_chooses(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(halving, "PARTITIONS", {"rotated": {"groups": 4}})
    monkeypatch.setattr(halving, "METHODS", {"fedprox": {"mu": [0.1, 10.0]}})
    monkeypatch.setattr(
        halving, "TRAIN", halving.TRAIN | {"epochs": 1, "rounds": 4, "eval_every": 1}
    )
    monkeypatch.setattr(halving, "FIRST", 1)
    halving.main(["--seeds", "1", "--fresh", "1", "--json", str(tmp_path / "rows.json")])
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["settings"] == 6 and row["rounds"] == {
        "halving": 6 * 1 + 2 * 2 + 1 * 1,
        "grid": 6 * 4,
    }
    same = row["chosen"]["halving"] == row["chosen"]["grid"]
    assert (row["rank"] == 1) >= same and (
        row["test_accuracy"]["halving"] == row["test_accuracy"]["grid"]
    ) >= same
    assert row["val_accuracy"]["halving"] <= row["val_accuracy"]["grid"]
    assert capsys.readouterr().out.strip() == halving.table([row])


def test_the_choice_is_the_best_of_those_that_came_to_the_end():
    settings = [
        {"scores": [0.9]},
        {"scores": [0.5, 0.6]},
        {"scores": [0.4, None]},
        {"scores": [0.3, 0.6]},
    ]
    assert halving.chosen(settings) == 1


def test_the_documentation_has_what_was_measured():
    rows = json.loads((ROOT / "benchmarks" / "results" / "halving.json").read_text())
    page = (ROOT / "docs" / "tuning.md").read_text()
    assert len(rows) == 6 and halving.table(rows) in page
    assert [row["rank"] for row in rows].count(1) == 5 and max(row["rank"] for row in rows) == 2
    assert (
        all(row["rounds"] == {"halving": 189, "grid": 729} for row in rows)
        and "26 % of the rounds" in page
    )
