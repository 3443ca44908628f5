"""How large the code is. Each budget is only ever lowered; the last line of the report says where there is room to lower one.

`python -m tests.test_size` prints the lines of each package."""

import ast
import functools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ("types", "kernels", "local", "round", "engine")
FEATURES = re.compile(
    r"privacy|compress|feedback|robust|asynchronous|\bclock|deadline|server\b|\bparts\b|freeze|lora|newcomer|per_client|releases|traffic|memory_analysis"
)
"""Words of features that belong to a stage of the round, not to a method."""
BUDGETS = {
    "package": 38_655,
    "core without methods": 10_215,
    "methods, mean": 82,
    "method file, median": 52,
    "method file, most": 146,
    "imports of a method file, median": 5,
    "imports of a method file, most": 14,
    "lines of method files that name a feature": 44,
    "files at the first gradient": 15,
    "frames at the first gradient": 45,
    "tests": 34_040,
    "docs, kB": 345,
}
"""What is measured -> the most that it may be. The design's goals: 25,000; 10,000 with the methods; 50; 150; 6; 10;
0; 10; 20; 24,000; 350. Methods are counted one by one, as their number grows."""
TO_GRADIENT = """
import json, os, runpy, sys, traceback
import jax

def stop(*_, **__):
    print(json.dumps([frame.filename for frame in traceback.extract_stack()]), flush=True)
    os._exit(0)

jax.grad = jax.value_and_grad = lambda *_, **__: stop
words = ["method=ifca", "seeds=[0]", "train.rounds=1"]
sys.argv = ["", "--workers", "1", "--quiet", "--no-report", "--out", sys.argv[1], *(w for word in words for w in ("--set", word))]
runpy.run_module("cfljax.sweep", run_name="__main__")
"""
"""Runs the quickstart's IFCA by `python -m cfljax.sweep` up to the first gradient, and prints each frame's file."""


def lines(path):
    return path.read_text().count("\n")


def package(name=""):
    return sum(map(lines, (ROOT / "cfljax" / name).rglob("*.py")))


def method_files():
    """(lines without the docstring, imports from cfljax, lines that name a feature) of each method."""
    for path in sorted((ROOT / "cfljax" / "methods").glob("*.py")):
        if path.name.startswith("__"):
            continue
        text = path.read_text()
        tree = ast.parse(text)
        code = text.splitlines()[tree.body[0].end_lineno :] if ast.get_docstring(tree) else text.splitlines()
        imports = [n for n in tree.body if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("cfljax")]
        yield len(code), len(imports), sum(bool(FEATURES.search(line)) for line in code if not line.startswith("from "))


def frames_at_first_gradient():
    """The files of cfljax on the stack, from the command to the first gradient, one for each frame."""
    with tempfile.TemporaryDirectory() as out:
        ran = subprocess.run([sys.executable, "-c", TO_GRADIENT, out], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout, ran.stderr
    package = str(ROOT / "cfljax")
    frames = [name.removeprefix(package) for name in json.loads(ran.stdout.splitlines()[-1]) if name.startswith(package)]
    assert frames[0] == "/sweep.py" and {"/round/clusters.py", "/local/solver.py"} < {*frames}, frames
    return frames


@functools.cache
def measured():
    sizes, imports, named = zip(*method_files(), strict=True)
    docs, frames = (ROOT / "docs").rglob("*.md"), frames_at_first_gradient()
    return {
        "package": package(),
        "core without methods": sum(map(package, CORE)),
        "methods, mean": package("methods") // len(sizes),
        "method file, median": statistics.median(sizes),
        "method file, most": max(sizes),
        "imports of a method file, median": statistics.median(imports),
        "imports of a method file, most": max(imports),
        "lines of method files that name a feature": sum(named),
        "files at the first gradient": len({*frames}),
        "frames at the first gradient": len(frames),
        "tests": sum(map(lines, (ROOT / "tests").rglob("*.py"))),
        "docs, kB": sum(path.stat().st_size for path in docs) // 1000,
    }


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets_hold(name):
    assert measured()[name] <= BUDGETS[name], f"{name}: the budget is only ever lowered; make it smaller, or something else"


def main():
    for folder in sorted(path for path in (ROOT / "cfljax").iterdir() if path.is_dir() and path.name != "__pycache__"):
        print(f"{package(folder.name):7,} cfljax/{folder.name}")
    for name, value in measured().items():
        print(f"{value:7,} of {BUDGETS[name]:,}: {name}")


if __name__ == "__main__":
    sys.exit(main())
