"""A mutation run: small wrong changes to the package, one at a time, each of which the tests of its part should notice.

    python -m tests.drills.mutate --count 100 --seed 0
    python -m tests.drills.mutate --only store --count 20

Works on a copy of the checkout. A mutant that no test fails on is listed with its place, to be looked at by a person.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.drills import common
from tests.drills.common import Figure, Tally

FIGURE = Figure("mutate", "mutants", "mutants of kernels/, store/, federation/, local/ and engine.py", "at least 85 % killed", 100)
TESTS = {
    "cfljax/kernels": ["tests/kernels"],
    "cfljax/store": ["tests/store"],
    "cfljax/federation": ["tests/federation"],
    "cfljax/local": ["tests/local"],
    "cfljax/engine.py": ["tests/engine", "tests/launch/test_sweep.py"],
}
SECONDS = 1200
"""After so long a mutant counts as killed: it never ends."""
OTHER = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in",
    ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or", ast.Or: "and",
}  # fmt: skip


class Mutant(NamedTuple):
    """A text in place of another."""

    file: str
    line: int
    start: int
    end: int
    new: str


def mutants(file: Path, root: Path) -> Iterator[Mutant]:
    """All of a file: operators, comparisons, numbers, truth values, `not`, statements left out."""
    text = file.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    name = str(file.relative_to(root))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def between(left: ast.expr, right: ast.expr, kind: type) -> Mutant | None:
        a, b = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
        gap, new = data[a:b].decode(), OTHER.get(kind)
        old = gap.strip(" ()\n")
        if new is None or not old or "#" in gap or gap.count(old) != 1:
            return None
        return Mutant(name, left.end_lineno, a, b, gap.replace(old, new))

    for node in ast.walk(ast.parse(text)):
        found: list[Mutant | None] = []
        if isinstance(node, ast.BinOp):
            found.append(between(node.left, node.right, type(node.op)))
        elif isinstance(node, ast.BoolOp):
            found.append(between(node.values[0], node.values[1], type(node.op)))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            found.append(between(node.left, node.comparators[0], type(node.ops[0])))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert, ast.USub)):
            a, b = at(node.lineno, node.col_offset), at(node.operand.lineno, node.operand.col_offset)
            found.append(Mutant(name, node.lineno, a, b, ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            new = str(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)
            found.append(Mutant(name, node.lineno, at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset), new))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            span = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
            found.append(Mutant(name, node.lineno, *span, "pass"))
        yield from (m for m in found if m is not None)


def survives(mutant: Mutant, copy: Path, tests: list[str]) -> bool:
    """Whether no test of its part fails."""
    path = copy / mutant.file
    data = path.read_bytes()
    path.write_bytes(data[: mutant.start] + mutant.new.encode() + data[mutant.end :])
    try:
        compile(path.read_bytes(), str(path), "exec")
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(line, cwd=copy, capture_output=True, timeout=SECONDS)
        return done.returncode == 0
    except (SyntaxError, subprocess.TimeoutExpired):
        return False
    finally:
        path.write_bytes(data)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    made = argparse.ArgumentParser("python -m tests.drills.mutate", description=__doc__)
    made.add_argument("--count", type=int, default=FIGURE.count)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", default="", help="parts whose name holds this")
    made.add_argument("--add", action="store_true")
    made.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant later than this")
    made.add_argument("--json", type=Path, default=common.RESULTS / "mutate.json")
    flags = made.parse_args(arguments)
    tally, begin, draw = Tally(), time.perf_counter(), random.Random(flags.seed)
    tally.end = time.monotonic() + flags.seconds
    parts = {part: tests for part, tests in TESTS.items() if flags.only in part}
    with tempfile.TemporaryDirectory(prefix="cfljax-mutants-") as name:
        copy = Path(name) / "copy"
        shutil.copytree(common.ROOT, copy, ignore=shutil.ignore_patterns(".git", "results", "*.egg-info", ".*_cache"))
        for _ in tally.trials(flags.count):
            part = draw.choice(sorted(parts))
            files = sorted((copy / part).rglob("*.py")) if (copy / part).is_dir() else [copy / part]
            everything = [m for file in files for m in mutants(file, copy)]
            mutant = draw.choice(everything)
            old = (copy / mutant.file).read_bytes()[mutant.start : mutant.end].decode()
            lived = survives(mutant, copy, parts[part])
            tally.check(f"{mutant.file}:{mutant.line}: {old.strip()!r} → {mutant.new.strip()!r} survives" if lived else None)
            tally.count(part)
            tally.count("survivors", int(lived))
    only = f" --only {flags.only}" if flags.only else ""
    line = f"python -m tests.drills.mutate --count {flags.count} --seed {flags.seed}{only}"
    common.write(FIGURE, tally, line, flags.json, flags.add, begin)
    return 0 if len(tally.failures) <= 0.15 * tally.tried else 1


if __name__ == "__main__":
    sys.exit(main())
