"""The board's pages and pictures, from records of settings."""

import re
import shutil

import pytest

from experiments.board import pages, play, settings
from experiments.board.results import match_records, measure_cost, measure_gain

LEVELS = {"fedavg": 0.6, "ifca": 0.7, "ditto": 0.65, "oracle": 0.8}


def make_record(setting, refused=()):
    runs = [
        {
            "method": method, "seed": seed, "id": f"{method}{seed}", "status": "done",
            "accuracy": level + seed / 100 * (method == "ifca"), "ari": None, "clusters": 1,
            "worst_tenth": 0.5, "bytes_up": 1e6, "seconds": 10.0,
            "bytes_down": 3e6 if method == "ifca" else 1e6,
        }
        for method, level in LEVELS.items()
        if method not in refused
        for seed in setting.seeds
    ]  # fmt: skip
    return {
        "setting": setting.name,
        "commit": "abc",
        "processor_seconds": 3600,
        "refused": dict.fromkeys(refused, "needs true groups"),
        "methods": {},
        "runs": runs,
    }


def write_records(folder, number):
    for setting in settings.list_settings()[:number]:
        refused = ["oracle"] if setting.kind.startswith(("Dirichlet", "classes")) else []
        text = play.write_record(make_record(setting, refused))
        play.name_record(setting.name, folder).write_text(text, encoding="utf-8")


def list_rows(page, heading):
    part = page.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][
        2:
    ]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs" / "board").mkdir(parents=True)
    shutil.copy(pages.ROOT / "README.md", tmp_path)
    shutil.copy(pages.ROOT / "docs" / "which.md", tmp_path / "docs")
    return tmp_path


def test_the_committed_pages_are_what_the_records_say():
    assert pages.list_differing(pages.make_pages()) == []


def test_a_page_says_how_many_settings_it_is_of_and_ranks_who_has_played_all_of_a_kind(root):
    write_records(root, 3)
    page = pages.make_pages(root, root)[root / pages.PAGE]
    assert "3 of 32 settings have been played. They took 3.0 hours" in page
    best = [row for row in list_rows(page, "The best of each kind") if row[0] == "rotated (1)"]
    assert [row[1] for row in best] == ["`oracle`", "`ifca`", "`ditto`", "`fedavg`"]
    assert best[1][2].startswith("+12.0 [+1") and best[1][3:] == ["2", "1"]
    refused = list_rows(page, "Who cannot play")
    assert refused == [["`oracle`", "02", "needs true groups"]]


def test_a_method_counts_only_where_it_has_played_with_all_seeds(root):
    write_records(root, 2)
    (rotated, dirichlet) = match_records(play.read_records(root), "one")
    assert measure_gain([rotated, dirichlet], "oracle").settings == 1
    assert measure_gain([dirichlet], "oracle") is None
    assert measure_cost([rotated, dirichlet], "ifca", "bytes") == pytest.approx(2)
    (lost,) = [run for run in rotated.record["runs"] if run["id"] == "ifca3"]
    lost["status"] = "diverged"
    assert measure_gain([rotated], "ifca") is None


def test_readme_and_the_chart_change_when_enough_settings_have_been_played(root):
    write_records(root, pages.ENOUGH - 1)
    assert root / "README.md" not in pages.make_pages(root, root)
    write_records(root, pages.ENOUGH)
    found = pages.make_pages(root, root)
    assert f"from {pages.ENOUGH} of 32 settings" in found[root / "README.md"]
    chart = found[root / "docs" / "which.md"]
    assert f"| {pages.WORDS['rotated']} | `ifca`, `ditto`, `fedavg` |" in chart
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
    # Written again it is the same
    assert pages.list_differing(pages.make_pages(root, root)) == []


def test_the_pictures_have_a_cell_for_each_method_and_kind(root):
    write_records(root, 2)
    found = pages.make_pages(root, root)
    drawn = re.findall(r">([^<]+)</text>", found[root / pages.HEATMAP])
    assert drawn.count("+20.0") == 1 and drawn.count("–") == 1 and drawn.count("+5.0") == 2
    assert "FedAvg" not in drawn and {"IFCA", "Ditto", "clustered", "personal"} <= set(drawn)
    assert "points behind the best method" in found[root / pages.PROFILE]
