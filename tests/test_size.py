"""How large the code is. Each budget is only ever lowered; the last line of the report says where there is room to lower one.

`python -m tests.test_size` prints the lines of each package."""

import ast
import re
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ("types", "kernels", "local", "round", "methods", "engine")
FEATURES = re.compile(
    r"privacy|compress|feedback|robust|asynchronous|\bclock|deadline|server\b|\bparts\b|freeze|lora|newcomer|per_client|releases|traffic|memory_analysis"
)
"""Words of features that belong to a stage of the round, not to a method."""
BUDGETS = {
    "package": 39_284,
    "core": 14_546,
    "method file, median": 64,
    "method file, most": 199,
    "imports of a method file, median": 9,
    "imports of a method file, most": 19,
    "lines of method files that name a feature": 51,
    "tests": 34_790,
    "docs, kB": 346,
}
"""What is measured -> the most that it may be. The design's goals: 25,000; 10,000; 50; 150; 6; 10; 0; 24,000; 350."""


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


def measured():
    sizes, imports, named = zip(*method_files(), strict=True)
    docs = (ROOT / "docs").rglob("*.md")
    return {
        "package": package(),
        "core": sum(map(package, CORE)),
        "method file, median": statistics.median(sizes),
        "method file, most": max(sizes),
        "imports of a method file, median": statistics.median(imports),
        "imports of a method file, most": max(imports),
        "lines of method files that name a feature": sum(named),
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
