import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


def make_record(**changes):
    base = {
        "method": "ifca", "label": changes.get("method", "ifca"), "seed": 0, "status": "done", "config": {"train": {"lr": 0.1}},
        "varies": {}, "timings": {"compile": 1.5, "train": 2.0, "eval": 0.25}, "summary": {"accuracy_max": 0.75, "rounds": 2},
    }  # fmt: skip
    return base | changes


def make_arrays(scale=1.0):
    return {
        "history/round": np.arange(3, dtype=np.float32), "history/accuracy": np.float32([0.1, 0.5, 0.75]) * np.float32(scale),
        "labels": np.array([[-1, -1], [0, 1], [1, 1]], np.int16), "client_accuracy": np.float32([0.5, 1.0]),
        "models": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3) * np.float32(scale),
    }  # fmt: skip


def same(found, wanted):
    return found.keys() == wanted.keys() and all(
        found[k].dtype == wanted[k].dtype
        and found[k].shape == wanted[k].shape
        and found[k].tobytes() == wanted[k].tobytes()
        for k in wanted
    )


def python(code, *arguments, **more):
    """A process that runs the code with this checkout first on its path."""
    words, environment = (
        [sys.executable, "-c", code, *map(str, arguments)],
        os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return subprocess.Popen(
        words, stdout=-1, stderr=-1, text=True, env=environment, cwd=ROOT, **more
    )


def temporaries(folder):
    return [p for p in Path(folder).rglob("*") if p.name.endswith(".cfljax-tmp")]


def wait_until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.001)
