"""The small wrong changes that a mutation run makes to a file, and which of them change nothing."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


def of_file(file: Path, root: Path) -> Iterator[Mutant]:
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

    tree = ast.parse(text)
    unseen = {id(node) for part in _never_run(tree) for node in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
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


def equivalent() -> set[tuple[str, str, str]]:
    """(file, line, what it becomes) of the mutants that change nothing; a person wrote down why."""
    entries = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())["mutant"]
    return {(entry["file"], _code(entry["line"]), _code(entry["becomes"])) for entry in entries}


def described(mutant: Mutant, root: Path) -> tuple[str, str, str]:
    """A mutant as `equivalent` has it; comments do not count."""
    data = (root / mutant.file).read_bytes()
    changed = data[: mutant.start] + mutant.new.encode() + data[mutant.end :]
    before, after = (_code(text.decode().splitlines()[mutant.line - 1]) for text in (data, changed))
    return mutant.file, before, after


def _code(line: str) -> str:
    return line.split("  # ")[0].strip()


def wanted(part: str, root: Path) -> list[Mutant]:
    """All of a part but those that change nothing."""
    files = sorted((root / part).rglob("*.py")) if (root / part).is_dir() else [root / part]
    same = equivalent()
    return [mutant for file in files for mutant in of_file(file, root) if described(mutant, root) not in same]


def _never_run(tree: ast.AST) -> Iterator[ast.AST]:
    """Annotations: nothing looks at them while a program runs."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                yield getattr(node, name)
