"""What drills and benchmarks import from the package exists, also in programs that are texts. Most of
them are run by no ordinary test."""

import ast
import importlib
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [
    path for folder in ("drills", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))
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


def test_imported_names_exist():
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{each.name}"
        for path in FILES
        for tree in programs(path.read_text())
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cfljax"
        for each in node.names
        if not exists(node.module, each.name)
    ]
    assert missing == []
