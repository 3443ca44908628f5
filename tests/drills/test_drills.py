"""Every drill with a few trials (`-m long`), and the table that is made of their figures."""

import json
import os
import random
import subprocess
import sys

import pytest

from drills import common, mutants, mutate, table
from drills.__main__ import DRILLS
from drills.common import Tally
from drills.methods import FIGURES

FEW = {"kill": 2, "signals": 2, "processes": 1, "disk_full": 1, "corruption": 100, "edits": 3, "malformed": 20, "padding": 2}
FEW |= {"order": 3, "devices": 2, "eager": 2, "kernels": 20, "degenerate": 10, "soak": 60}
FEW |= {"soak_rounds": 4000}


def tried(name, path, *flags):
    """Run it as a person would, in a process of its own: pytest's hands are on standard error and on XLA's flags here."""
    command = [sys.executable, "-m", f"drills.{name}", *flags, "--json", str(path)]
    plain = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(command, cwd=common.ROOT, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in DRILLS if name in FEW])
def test_drill(name, tmp_path):
    tried(name, tmp_path / "figures.json", "--count", str(FEW[name]), "--seed", "5")
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["tried"] and not found["failures"]


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, "new"])
def test_random_examples_computed_in_two_ways(seed, tmp_path):
    seed = random.SystemRandom().randrange(10**6) if seed == "new" else seed
    print(f"python -m drills.differential --seconds 60 --seed {seed}")  # pytest shows it where the test fails
    tried("differential", tmp_path / "figures.json", "--seconds", "60", "--seed", str(seed))
    assert json.loads((tmp_path / "figures.json").read_text())["tried"]


@pytest.mark.long
def test_drill_of_methods(tmp_path):
    tried("methods", tmp_path, "--methods", "ifca")
    for figure in FIGURES:
        found = json.loads((tmp_path / f"{figure}.json").read_text())
        assert found["tried"] and not found["failures"]


@pytest.mark.long
def test_drill_of_gradients(tmp_path):
    tried("gradients", tmp_path / "figures.json", "--count", "1", "--seed", "5")
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["tried"] >= 5 and not found["failures"]


@pytest.mark.long
def test_drill_of_mutants(tmp_path):
    """Whatever lives of so few; that no more than a share of many does is a figure that is kept."""
    flags = ["--count", "1", "--seed", "5", "--only", "store", "--json", str(tmp_path / "figures.json")]
    subprocess.run([sys.executable, "-m", "drills.mutate", *flags], cwd=common.ROOT, capture_output=True, check=False)
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["tried"] == 1 and sum(found["counts"][name] for name in found["counts"] if name != "survivors") == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["fuzz_config", "fuzz_records"])
def test_bytes_of_all_kinds_are_read_or_refused(name, tmp_path):
    pytest.importorskip("atheris")
    command = [sys.executable, "-m", f"drills.{name}", str(tmp_path / "corpus"), "-max_total_time=10", "-seed=5"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(common.ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0 and "DONE" in done.stderr, done.stderr[-3000:]


def test_results_that_are_kept_name_their_figure_bar_and_command():
    found = table.rows()
    text = table.table(found)
    for row in found:
        assert row["command"].startswith("python -m drills.") and row["bar"] and row["tried"] >= row["failed"]
        assert f"| {row['figure']} | {row['what']} |" in text


def test_the_page_has_the_figures_that_are_kept():
    assert table.table(table.rows()) in table.PAGE.read_text()


def test_a_tally_tells_what_failed_and_keeps_the_worst():
    tally = Tally()
    tally.check(None)
    tally.check(["a", "b"])
    tally.most("error", 1.0), tally.most("error", 0.5), tally.count("kind"), tally.count("kind")
    assert (tally.tried, tally.failures, tally.worst, tally.counts) == (2, ["a; b"], {"error": 1.0}, {"kind": 2})


def test_every_file_and_test_of_a_mutation_run_exists():
    tests = [text for texts in (*mutate.TESTS.values(), *mutate.WHOLE.values()) for text in texts]
    paths = [common.ROOT / text.split()[0] for text in tests]
    paths += [common.ROOT / "cfljax" / name for name in (*mutate.TESTS, *mutate.WHOLE)]
    assert [str(path) for path in paths if not path.exists()] == []


def test_every_mutant_that_is_left_out_is_one():
    files = {entry[0] for entry in mutants.equivalent()}
    drawn = {mutants.described(each, common.ROOT) for file in files for each in mutants.of_file(common.ROOT / file, common.ROOT)}
    assert mutants.equivalent() <= drawn
