"""The measurement of `clusters = "auto"`, in small, and its table in the documentation."""

import json
from pathlib import Path

from benchmarks import auto_clusters

ROOT = Path(__file__).parents[2]


def test_it_counts_what_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(auto_clusters, "PARTITIONS", {"rotated": ({"groups": 4}, 4)})
    auto_clusters.main(["--seeds", "1", "--json", str(tmp_path / "rows.json")])
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["auto"], row["right"], row["found"]) for row in rows] == [("silhouette", 1, {"4": 1}), ("eigengap", 1, {"4": 1})]
    assert capsys.readouterr().out.strip() == auto_clusters.table(rows)


def test_the_page_has_the_table_of_the_record():
    rows = json.loads((ROOT / "benchmarks" / "results" / "auto_clusters.json").read_text())
    assert len(rows) == 8 and auto_clusters.table(rows) in (ROOT / "docs" / "which.md").read_text()
