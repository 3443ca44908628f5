"""The lowest versions that pyproject.toml allows, installed together on the lowest Python: a sweep
and its report, an import, and data that tensorflow-datasets has prepared."""

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.packaging.test_install import python

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOWEST = re.search(r"\d+\.\d+", PROJECT["requires-python"])[0]

NAMES = [re.split("[>;]", each)[0] for each in PROJECT["dependencies"]]
VERSIONS = f"""
import importlib.metadata, json
print(json.dumps({{name: importlib.metadata.version(name) for name in {NAMES}}}))
"""


def run(*words, **more):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lowest(tmp_path_factory):
    """An environment in which every package that is asked for has the lowest version that is
    allowed and there."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}" == LOWEST
    if (interpreter := sys.executable if here else python(LOWEST)) is None:
        pytest.skip(f"there is no Python {LOWEST}")
    place = tmp_path_factory.mktemp("lowest")
    run(sys.executable, "-m", "venv", place / "tool")
    run(place / "tool/bin/pip", "install", "-q", "uv")
    uv = place / "tool/bin/uv"
    run(uv, "venv", "-q", "--python", interpreter, place / "env")
    flags = ("-q", "--resolution", "lowest-direct", "--python", place / "env/bin/python")
    run(uv, "pip", "install", *flags, "-r", ROOT / "pyproject.toml", cwd=place)
    return place / "env" / "bin" / "python"


@pytest.mark.long
def test_it_works_with_the_lowest_versions(lowest, tmp_path):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CFLJAX", "XLA"))}
    clean |= {
        "PYTHONPATH": str(ROOT),
        "CFLJAX_CACHE": str(tmp_path / "cache"),
        "JAX_PLATFORMS": "cpu",
    }

    def command(*words):
        return run(lowest, "-m", *words, cwd=tmp_path, env=clean)

    had = json.loads(run(lowest, "-c", VERSIONS))
    asked = dict(
        re.match(r"([A-Za-z0-9_-]+)>=([0-9.]+)", each).groups() for each in PROJECT["dependencies"]
    )
    other = {name: had[name] for name in asked if not f"{had[name]}.".startswith(f"{asked[name]}.")}
    assert other == {}, "the bounds in pyproject.toml should be these"
    settings = (
        "method=fedavg,pacfl,ocfl,cfl_sattler",
        "seeds=0:3",
        "train.rounds=2",
        "data.clients=6",
    )
    assert "12 done" in command(
        "cfljax.sweep", *(word for each in settings for word in ("--set", each)), "--out", "r"
    )
    assert (tmp_path / "r" / "report" / "index.html").exists()
    command("cfljax.load", "r", "--csv", "r.csv", "--parquet", "r.parquet", "--history", "h.csv")
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 13
    x = np.arange(40.0)
    rows = [f"{a},{'NA' if a % 2 else 'EU'},{'abc'[int(a) % 3]}" for a in x]
    (tmp_path / "mine.csv").write_text("\n".join(["a,label,city", *rows]))
    assert "32 training and 8 test samples of shape [4]" in command(
        "cfljax.data", "import", "mine.csv", "--one-hot", "city"
    )
    prepare = runpy.run_path(str(ROOT / "tests" / "data" / "test_prepared.py"))[
        "PREPARE"
    ]  # it also reads what it has prepared
    run(lowest, "-c", prepare, tmp_path / "tfds", cwd=ROOT, env=clean)
