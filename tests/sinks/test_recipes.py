"""The recipe for W&B's sweeps, run as its agent runs it: with the numbers in a file that the
environment names, and offline."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests import blocks
from tests.blocks import DOCS

TITLED = {block.title: block.text for block in blocks.blocks(DOCS / "tools.md") if block.title}


def test_the_sweep_names_the_program_and_the_numbers_that_it_reads():
    sweep = pytest.importorskip("yaml").safe_load(TITLED["sweep.yaml"])
    program = TITLED[sweep["program"]]
    assert set(re.findall(r'run\.config\["(\w+)"\]', program)) == set(sweep["parameters"])
    assert f'"{sweep["metric"]["name"]}"' in program


RUN_AND_SAY = """
import json, runpy, cfljax
run = cfljax.run
def told(*args, **options):
    result = run(*args, **options)
    print(json.dumps(result.config))
    return result
cfljax.run = told
runpy.run_path("wandb_run.py", run_name="__main__")
"""


@pytest.mark.rare
def test_the_program_takes_the_numbers_of_the_agent(tmp_path):
    """In a process of its own, as an agent starts it: a W&B that another test has begun no longer
    reads the environment."""
    pytest.importorskip("wandb")
    given = {"wandb_version": 1, "lr": {"value": 0.037}}
    (tmp_path / "numbers.yaml").write_text(json.dumps(given))
    (tmp_path / "wandb_run.py").write_text(TITLED["wandb_run.py"])
    agent = {
        "WANDB_MODE": "offline",
        "WANDB_SWEEP_ID": "s1",
        "WANDB_SWEEP_PARAM_PATH": str(tmp_path / "numbers.yaml"),
    }
    own = {
        name: value for name, value in os.environ.items() if not name.startswith("WANDB_")
    }  # what another test began
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_SAY],
        cwd=tmp_path,
        env=own | agent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    config = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert config["train"]["lr"] == 0.037
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"val_accuracy" in file.read_bytes()
