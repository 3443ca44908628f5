"""The recipe for W&B's sweeps, run as its agent runs it: with the numbers in a file that the environment names, and offline."""

import json
import re
import runpy
import time

import pytest

import cfljax
from tests.docs import blocks
from tests.docs.test_pages import DOCS

TITLED = {block.title: block.text for block in blocks.blocks(DOCS / "tools.md") if block.title}


def test_the_sweep_names_the_program_and_the_numbers_that_it_reads():
    sweep = pytest.importorskip("yaml").safe_load(TITLED["sweep.yaml"])
    program = TITLED[sweep["program"]]
    assert set(re.findall(r'run\.config\["(\w+)"\]', program)) == set(sweep["parameters"])
    assert f'"{sweep["metric"]["name"]}"' in program


@pytest.mark.long
def test_the_program_takes_the_numbers_of_the_agent(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    numbers = {"lr": 0.037, "mu": 0.011}
    given = {"wandb_version": 1} | {name: {"value": value} for name, value in numbers.items()}
    (tmp_path / "numbers.yaml").write_text(json.dumps(given))
    (tmp_path / "wandb_run.py").write_text(TITLED["wandb_run.py"])
    for name, value in {"MODE": "offline", "SWEEP_ID": "s1", "SWEEP_PARAM_PATH": str(tmp_path / "numbers.yaml")}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.chdir(tmp_path)
    kept, run = [], cfljax.run
    monkeypatch.setattr("cfljax.run", lambda **options: kept.append(run(**options)) or kept[-1])
    runpy.run_path("wandb_run.py", run_name="__main__")
    (result,) = kept
    assert result.config["train"]["lr"] == numbers["lr"] and result.config["method"]["mu"] == numbers["mu"]
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 20
    while b"val_accuracy" not in file.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"val_accuracy" in file.read_bytes()
