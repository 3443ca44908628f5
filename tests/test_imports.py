"""What tests, drills and benchmarks import from the package exists, also in programs that are texts
or run in other processes."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for folder in ("tests", "drills", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def programs(text):
    """The file itself, and the texts in it that are programs."""
    whole = ast.parse(text)
    yield whole
    for node in ast.walk(whole):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and "import" in node.value
        ):
            try:
                yield ast.parse(node.value)
            except SyntaxError:
                continue


def exists(module, name):
    try:
        return (
            hasattr(importlib.import_module(module), name)
            or importlib.util.find_spec(f"{module}.{name}") is not None
        )
    except ModuleNotFoundError as error:
        return not error.name.startswith("cfljax")  # an optional library


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_names_exist(path):
    imports = [
        node
        for tree in programs(path.read_text())
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    ]
    ours = [
        (node.module, each.name)
        for node in imports
        if (node.module or "").split(".")[0] == "cfljax"
        for each in node.names
    ]
    assert [f"{module}.{name}" for module, name in ours if not exists(module, name)] == []
