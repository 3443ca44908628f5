"""The table and plots made of measured rows."""

import json

from benchmarks import report
from benchmarks.measure import row

ROWS = [
    row("W1", "cfljax", {}, median_s=0.01, min_s=0.009, max_s=0.02, compile_s=1.5, peak_rss_mib=900.0, accuracy=0.85),
    row("W1", "torch", {}, median_s=0.35, min_s=0.3, max_s=0.4, compile_s=0.0, peak_rss_mib=600.0, accuracy=0.86),
    row("W1", "pfl", {"reason": "no wheel"}),
    row("W1", "floor", {}, median_s=0.002, min_s=0.002, max_s=0.002),
]


def test_the_table_has_ratios_and_reasons():
    text = report.table(ROWS)
    assert "| cfljax | 10 ms (9 ms – 20 ms) | 1 | 1.5 s | 900 MiB | 85.0 % |" in text
    assert "| PyTorch, plain loop | 350 ms (300 ms – 400 ms) | 35 |" in text
    assert "not measured: no wheel" in text
    assert "| 0.2 | – | – | – |" in text  # the floor


def test_a_workload_that_we_do_not_have_gets_no_ratio():
    assert "| – | 0 ms | 600 MiB | 86.0 % |" in report.table(ROWS[1:2])


def test_files_become_tables_and_plots(tmp_path, capsys):
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(ROWS))
    assert report.main([str(file)]) == 0
    for suffix in (".png", ".svg", ".md"):
        assert (tmp_path / f"machine{suffix}").stat().st_size > 100
    assert "PyTorch, plain loop" in capsys.readouterr().out
