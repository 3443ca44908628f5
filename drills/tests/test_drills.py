"""Every drill with a few trials (`-m long`), and the table that is made of their figures."""

import json
import os
import subprocess
import sys

import pytest

from drills import common, table
from drills.__main__ import DRILLS
from drills.common import Tally

FEW = {
    "kill": 2,
    "signals": 2,
    "processes": 1,
    "disk_full": 1,
    "corruption": 100,
    "edits": 3,
    "soak": 60,
}
FEW |= {"soak_rounds": 4000}


def tried(name, path, *flags):
    """Run it as a person would, in a process of its own: pytest's hands are on standard error and
    on XLA's flags here."""
    command = [sys.executable, "-m", f"drills.{name}", *flags, "--json", str(path)]
    plain = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        command, cwd=common.ROOT, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rare
@pytest.mark.parametrize("name", DRILLS)
def test_drill(name, tmp_path):
    tried(name, tmp_path / "figures.json", "--count", str(FEW[name]), "--seed", "5")
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["tried"] and not found["failures"]


@pytest.mark.rare
@pytest.mark.parametrize("name", ["fuzz_config", "fuzz_records"])
def test_bytes_of_all_kinds_are_read_or_refused(name, tmp_path):
    pytest.importorskip("atheris")
    command = [
        sys.executable,
        "-m",
        f"drills.{name}",
        str(tmp_path / "corpus"),
        "-max_total_time=10",
        "-seed=5",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(common.ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "DONE" in done.stderr, done.stderr[-3000:]


def test_results_that_are_kept_name_their_figure_bar_and_command():
    found = table.rows()
    text = table.table(found)
    for row in found:
        assert (
            row["command"].startswith("python -m drills.")
            and row["bar"]
            and row["tried"] >= row["failed"]
        )
        assert f"| {row['what']} |" in text


def test_the_page_has_the_figures_that_are_kept():
    assert table.table(table.rows()) in table.PAGE.read_text()


def test_a_tally_tells_what_failed_and_keeps_the_worst():
    tally = Tally()
    tally.check(None)
    tally.check(["a", "b"])
    tally.most("error", 1.0), tally.most("error", 0.5), tally.count("kind"), tally.count("kind")
    assert (tally.tried, tally.failures, tally.worst, tally.counts) == (
        2,
        ["a; b"],
        {"error": 1.0},
        {"kind": 2},
    )
