"""The measurements of `clusters = "auto"` and of `merge_to = "auto"`, in small, and their tables in the documentation."""

import json
from pathlib import Path

import pytest

from benchmarks import auto_clusters

ROOT = Path(__file__).parents[2]


def tables(found):
    return auto_clusters.table(found["number"]), auto_clusters.merging(found["merging"])


@pytest.mark.long
def test_it_counts_what_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(auto_clusters, "PARTITIONS", {"rotated": ({"groups": 4}, 4)})
    auto_clusters.main(["--seeds", "1", "--json", str(tmp_path / "rows.json")])
    found = json.loads((tmp_path / "rows.json").read_text())
    by_updates = [(row["auto"], row["right"], row["found"]) for row in found["number"]]
    assert by_updates == [("silhouette", 1, {"4": 1}), ("eigengap", 1, {"4": 1})]
    (merged,) = found["merging"]
    assert merged["clusters"]["after"] == {"4": 1} and merged["ari"]["after"] == 1
    assert capsys.readouterr().out.strip() == "\n\n".join(tables(found))


def test_the_page_has_the_tables_of_the_record():
    found = json.loads((ROOT / "benchmarks" / "results" / "auto_clusters.json").read_text())
    page = (ROOT / "docs" / "which.md").read_text()
    assert [len(each) for each in found.values()] == [8, 4] and all(each in page for each in tables(found))
