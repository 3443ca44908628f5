"""Faults that are put into the package one at a time: does a test notice each of them?

    python -m drills.mutants run                 # all, one after another
    python -m drills.mutants run 3 17 --tests whole
    python -m drills.mutants draw COVERAGE       # a new list

`mutants.json` lists the faults. Each is an expression of a function and what stands there instead;
it is found by the function's name and by its number among such expressions, so a list outlives
another layout of the code. They were drawn at random from all that the operators below can change,
as many from each part of the package, and half of those of a round from statements that no method
reaches in its default setting. COVERAGE says what is reached:

    coverage run --source=cfljax -m pytest -n 0 tests/methods/test_contract.py -k on_record
    coverage json -o COVERAGE

A list is committed before the tests that it asks for. At least 95 of 100 faults must be noticed.
"equivalent" in the list says why a fault changes no result."""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".json")
PARTS = {
    "kernels": ["kernels/*.py"],
    "round": ["round/**/*.py"],
    "local": ["local/*.py"],
    "engine": ["engine/*.py"],
    "federation": ["federation/*.py"],
    "store": ["store/*.py"],
    "tune": ["launch/tuning.py", "launch/search*.py", "launch/rung.py"],
    "statistics": ["results/statistics.py", "report/tested.py", "report/critical_difference.py"],
}
OF_A_ROUND = ("kernels", "round", "local", "engine", "federation")
EACH, OTHERS = 8, 10
"""Faults of a part of a round that defaults reach, and as many that they do not; and of others."""
ONLY_SPEED = ("engine/wall.py",)
"""Files that decide how long a chunk of rounds is and show progress: no result depends on them."""
CONTRACT = "tests/methods/test_contract.py"
RECORD = "::test_its_numbers_are_those_on_record"
FAR = ("packaging",)
"""Folders of tests that are not about single parts of the package."""
ALSO = {"engine": "experiments", "round": "methods", "results": "report"}
"""Where else tests of a package are."""
LIMITS = {resource.RLIMIT_CPU: 1200, resource.RLIMIT_AS: 8 << 30}
"""CPU seconds and bytes for one fault. One that makes a program run on and on is noticed."""
RESOURCE = resource.RUSAGE_CHILDREN
LOADED = ("pytest", "hypothesis", "jax.numpy", "flax.linen", "optax", "scipy.stats", "pandas")
TWINS = {
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
}
COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


OF_NUMBERS = ("dtype", "precision")
"""Arguments without which the same is computed on a CPU, where tests run."""


class Place(NamedTuple):
    """An expression that can be changed."""

    function: str  # Its qualified name
    operator: str
    node: ast.expr
    after: ast.expr
    line: int  # Of its statement


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What an expression can be changed to: (operator, the changed expression)."""

    def other(**fields):
        made = copy.copy(node)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    match node:
        case ast.Compare(ops=[op]):
            yield "compare", other(ops=[COMPARED[type(op)]()])
        case ast.BinOp(op=op) if type(op) in COMPUTED and not _is_text(node):
            yield "compute", other(op=COMPUTED[type(op)]())
        case ast.BoolOp(op=op):
            yield "and/or", other(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "not", node.operand
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield "constant", ast.Constant(value + 1)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            if name == "where" and len(node.args) == 3:
                yield "swap", other(args=[node.args[0], node.args[2], node.args[1]])
            if name in TWINS:
                func = copy.copy(node.func)
                setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", TWINS[name])
                yield "twin", other(func=func)
            for at, word in enumerate(node.keywords):
                if word.arg is not None and word.arg not in OF_NUMBERS:
                    yield "keyword", other(keywords=node.keywords[:at] + node.keywords[at + 1 :])


def _is_text(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", None), str)
        for each in (node.left, node.right)
    )


def places(tree: ast.Module) -> Iterator[Place]:
    """All that can be changed in the functions of a file, in the order of its text."""
    for top in tree.body:
        inside = top.body if isinstance(top, ast.ClassDef) else [top]
        name = f"{top.name}." if isinstance(top, ast.ClassDef) else ""
        for function in inside:
            if isinstance(function, ast.FunctionDef):
                for statement in function.body:
                    yield from _of(statement, name + function.name, statement.lineno)


def _of(node: ast.AST, function: str, line: int) -> Iterator[Place]:
    """Not in messages, types, and positions of axes, where a change is no fault that anybody would
    make or that could stay unseen."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.stmt):
        line = node.lineno
    for operator, after in changes(node):
        yield Place(function, operator, node, after, line)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(
            node, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg in ("axis", "axis_name", "dtype"):
                continue
            if isinstance(child, ast.AST):
                yield from _of(child, function, line)


def candidates(path: Path) -> list[dict]:
    """The entries of a list that a file can have, each with its statement's line."""
    found, seen = [], {}
    for place in places(ast.parse(path.read_text())):
        key = (place.function, place.operator)
        seen[key] = seen.get(key, -1) + 1
        before, after = ast.unparse(place.node), ast.unparse(place.after)
        found.append(
            {
                "file": path.relative_to(ROOT).as_posix(),
                "function": place.function,
                "operator": place.operator,
                "number": seen[key],
                "before": before,
                "after": after,
                "line": place.line,
                "node": place.node,
            }
        )
    return found


def draw(coverage: dict, seed: int) -> list[dict]:
    """A list, by a coverage report (as `coverage json` writes it) of all defaults."""
    rng, drawn = random.Random(seed), []
    for part, patterns in PARTS.items():
        found = [
            each
            for pattern in patterns
            for path in sorted((ROOT / "cfljax").glob(pattern))
            if not path.as_posix().endswith(ONLY_SPEED)
            for each in candidates(path)
        ]
        for each in found:
            lines = coverage["files"].get(each["file"], {"executed_lines": []})["executed_lines"]
            each["default"] = each.pop("line") in lines
            del each["node"]
        if part in OF_A_ROUND:
            strata = [[each for each in found if each["default"] == of] for of in (True, False)]
            drawn += [each for stratum in strata for each in _sample(stratum, EACH, rng)]
        else:
            drawn += _sample(found, OTHERS, rng)
    return drawn


def _sample(found: list[dict], number: int, rng: random.Random) -> list[dict]:
    """Draw so many, as many of each operator as there are."""
    kinds: dict[str, list[dict]] = {}
    for each in found:
        kinds.setdefault(each["operator"], []).append(each)
    for kind in kinds.values():
        rng.shuffle(kind)
    order, drawn = sorted(kinds), []
    while len(drawn) < number:
        rng.shuffle(order)
        drawn += [kinds[name].pop() for name in order if kinds[name]]
    return drawn[:number]


def mutated(mutant: dict, root: Path = ROOT) -> str:
    """The text of the file with the fault in it."""
    path = ROOT / mutant["file"]
    same = [
        each
        for each in (candidates(path) if path.exists() else [])
        if all(each[name] == mutant[name] for name in ("function", "operator", "before", "after"))
    ]
    exact = [each for each in same if each["number"] == mutant["number"]]
    if len(exact or same) != 1:
        raise LookupError(
            f"{mutant['file']}: {mutant['function']} has no `{mutant['before']}` any more: draw "
            "another fault"
        )
    node = (exact or same)[0]["node"]
    lines = path.read_bytes().splitlines(keepends=True)
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    whole = b"".join(lines)
    return (whole[:begin] + f"({mutant['after']})".encode() + whole[end:]).decode()


def nearest(mutant: dict) -> list[str]:
    """The test files that are about the file, the nearest ones first: those of its name, those
    that import it, the others of its folder, and those that know the function."""
    area, stem = Path(mutant["file"]).parts[1], Path(mutant["file"]).stem
    name, word = mutant["function"].split(".")[0], stem.split("_")[0]
    text = {
        path: path.read_text()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path.relative_to(ROOT).parts[1] not in FAR and path != ROOT / CONTRACT
    }
    imports = rf"cfljax\.{area}\.{stem}\b|from cfljax\.{area} import [^\n]*\b{stem}\b"
    folder = [path for path in text if path.parent.name in (area, ALSO.get(area))]
    called = [path for path in text if path.stem in (f"test_{stem}", f"test_{word}")]
    called += [path for path in folder if path.stem.startswith(f"test_{word}")]
    importing = [path for path in text if re.search(imports, text[path])]
    importing.sort(key=lambda path: path not in folder)
    knowing = [path for path in text if re.search(rf"\b{name}\b", text[path])]
    order = [*called, *importing, *folder, *(knowing if len(knowing) <= 10 else [])]
    return [path.relative_to(ROOT).as_posix() for path in dict.fromkeys(order)]


def prepare() -> None:
    """Load what tests need besides the package and themselves, once for all faults, with the
    settings that `conftest.py` makes for JAX."""
    code = "import json, os, conftest; print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    made = json.loads(done.stdout)
    os.environ |= {name: made[name] for name in made if name.startswith(("JAX_", "XLA_"))}
    for name in LOADED:
        importlib.import_module(name)


class Faulty(importlib.abc.SourceLoader):
    """Gives the file with the fault in it to Python's import, and finds it."""

    def __init__(self, mutant: dict):
        self.path, self.text = str(ROOT / mutant["file"]), mutated(mutant)
        self.name = mutant["file"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find this one module."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_filename(self, fullname: str) -> str:
        """Return where the file without the fault is."""
        return self.path

    def get_data(self, path: str) -> bytes:
        """Return the text with the fault."""
        return self.text.encode()


def notice(mutant: dict, reach: str = "near") -> dict:
    """Run tests with the fault until one fails. Returns which, and the CPU seconds. Processes that
    a test starts have no fault."""
    loader, near, begin = Faulty(mutant), nearest(mutant), resource.getrusage(RESOURCE)
    order = near[:2]
    if reach != "first":
        order += [CONTRACT + RECORD] * mutant["default"] + near[2:]
    if reach == "whole":
        order.append("tests")
    with tempfile.TemporaryFile("w+") as said:
        if not (child := os.fork()):
            os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
            for kind, most in LIMITS.items():
                resource.setrlimit(kind, (most, most))
            sys.meta_path.insert(0, loader)
            options = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
            code = pytest.main([*options, *order])
            os._exit(int(code))
        _, status = os.waitpid(child, 0)
        said.seek(0)
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", said.read(), re.MULTILINE)
    code, end = os.waitstatus_to_exitcode(status), resource.getrusage(RESOURCE)
    noticed = None if code in (0, 5) else found[0] if found else f"the process ended with {code}"
    spent = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return {"noticed": noticed, "cpu_s": round(spent, 1)}


def main(args: list[str] | None = None) -> int:
    """Draw a list, or try the faults of the list."""
    parser = argparse.ArgumentParser(
        prog="python -m drills.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="draw a list")
    drawing.add_argument("coverage", type=Path, help="what all defaults reach")
    drawing.add_argument("--seed", type=int, default=1)
    trying = commands.add_parser("run", help="try faults of the list")
    trying.add_argument("numbers", type=int, nargs="*", help="which; without: all")
    trying.add_argument(
        "--tests",
        choices=("first", "near", "whole"),
        default="near",
        help="the two nearest files; all that are near; or all tests, if those pass",
    )
    trying.add_argument("--json", type=Path, help="a line for each fault")
    asked = parser.parse_args(args)
    if asked.command == "draw":
        drawn = draw(json.loads(asked.coverage.read_text()), asked.seed)
        LIST.write_text(json.dumps(drawn, indent=1, ensure_ascii=False) + "\n")
        return 0
    mutants, kept = json.loads(LIST.read_text()), contextlib.ExitStack()
    numbers = asked.numbers or [n for n, each in enumerate(mutants) if "equivalent" not in each]
    unnoticed, gone = [], []
    prepare()
    with kept:
        out = kept.enter_context(asked.json.open("a")) if asked.json else None
        for number in numbers:
            begin, each = time.monotonic(), mutants[number]
            try:
                result = notice(each, asked.tests)
            except LookupError as error:
                print(f"{number} {error}", flush=True)
                gone.append(number)
                continue
            by = result["noticed"] or "NOBODY"
            print(
                f"{number} {each['file']} {each['function']}: {each['before']} -> {each['after']}: "
                f"{by} ({result['cpu_s']} CPU s, {time.monotonic() - begin:.0f} s)",
                flush=True,
            )
            if out:
                out.write(json.dumps({"number": number, **result}) + "\n")
                out.flush()
            if result["noticed"] is None:
                unnoticed.append(number)
    tried = len(numbers) - len(gone)
    print(f"{tried - len(unnoticed)} of {tried} noticed; not: {unnoticed}; gone: {gone}")
    return int(len(unnoticed) > tried // 20)


if __name__ == "__main__":
    sys.exit(main())
