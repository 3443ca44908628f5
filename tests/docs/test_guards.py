"""The tests that guard promises (`docs/checked.md`) are there, and every run of the tests carries them out."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "checked.md").read_text()


def is_long(node):
    """Whether `pytest.mark.long` is a decorator of this function, or of a module's `pytestmark`."""
    marks = node.decorator_list if isinstance(node, ast.FunctionDef) else [node.value]
    return any(ast.unparse(mark).endswith("mark.long") for mark in marks)


def faults(page, root):
    """(test, what is wrong with it) of the tests that the rows of this page name."""
    found, files = [], {}
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page):
        path = root / file
        if file not in files:
            files[file] = ast.parse(path.read_text()).body if path.exists() else []
        named = [node for node in files[file] if isinstance(node, ast.FunctionDef) and node.name == name]
        whole = [node for node in files[file] if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
        if not named:
            found.append((f"{file}::{name}", "is not there"))
        elif any(map(is_long, [*named, *whole])):
            found.append((f"{file}::{name}", "is a long one"))
    return found


def test_each_promise_has_a_test_that_every_run_carries_out():
    rows = re.findall(r"^\| [^|]+ \| `tests/\S+::\w+` \|$", PAGE, re.M)
    assert len(rows) > 100 and faults(PAGE, ROOT) == []


def test_a_guard_that_is_gone_or_long_is_found(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("@pytest.mark.long\ndef test_b(): ...\ndef test_c(): ...\n")
    (tmp_path / "tests" / "test_d.py").write_text("pytestmark = pytest.mark.long\ndef test_e(): ...\n")
    page = " ".join(f"`tests/{each}`" for each in ("test_a.py::test_b", "test_a.py::test_c", "test_d.py::test_e", "test_f.py::test_g"))
    told = [("tests/test_a.py::test_b", "is a long one"), ("tests/test_d.py::test_e", "is a long one")]
    assert faults(page, tmp_path) == [*told, ("tests/test_f.py::test_g", "is not there")]
