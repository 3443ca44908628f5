"""The measurement of halving against the full grid, in small, and its table in the documentation."""

import json
from pathlib import Path

import pytest

from benchmarks import halving

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_it_says_what_each_spends_and_chooses(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(halving, "PARTITIONS", {"rotated": {"groups": 4}})
    monkeypatch.setattr(halving, "METHODS", {"fedprox": {"mu": [0.1, 10.0]}})
    monkeypatch.setattr(halving, "TRAIN", halving.TRAIN | {"epochs": 1, "rounds": 4, "eval_every": 1})
    monkeypatch.setattr(halving, "FIRST", 1)
    halving.main(["--seeds", "1", "--fresh", "1", "--json", str(tmp_path / "rows.json")])
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["settings"] == 6 and row["rounds"] == {"halving": 6 * 1 + 2 * 2 + 1 * 1, "grid": 6 * 4}
    same = row["chosen"]["halving"] == row["chosen"]["grid"]
    assert (row["rank"] == 1) >= same and (row["test_accuracy"]["halving"] == row["test_accuracy"]["grid"]) >= same
    assert row["val_accuracy"]["halving"] <= row["val_accuracy"]["grid"]
    assert capsys.readouterr().out.strip() == halving.table([row])


def test_the_choice_is_the_best_of_those_that_came_to_the_end():
    settings = [{"scores": [0.9]}, {"scores": [0.5, 0.6]}, {"scores": [0.4, None]}, {"scores": [0.3, 0.6]}]
    assert halving.chosen(settings) == 1


def test_the_documentation_has_what_was_measured():
    rows = json.loads((ROOT / "benchmarks" / "results" / "halving.json").read_text())
    page = (ROOT / "docs" / "tuning.md").read_text()
    assert len(rows) == 6 and halving.table(rows) in page
    assert [row["rank"] for row in rows].count(1) == 5 and max(row["rank"] for row in rows) == 2
    assert all(row["rounds"] == {"halving": 189, "grid": 729} for row in rows) and "26 % of the rounds" in page
