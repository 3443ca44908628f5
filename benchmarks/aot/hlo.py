"""Reads the text of an optimised HLO module: its computations, and the instructions of each with their types and attributes."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8,
    "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
_ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,]*)\]")
_HEAD = re.compile(r"^(ENTRY )?%?([^\s(]+) \(.*\) -> .* \{$")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")


class Shape(NamedTuple):
    """An array's type."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        return self.size * BYTES.get(self.dtype, 0)


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    """Of its result: one, or those of a tuple."""
    operands: tuple[str, ...]
    attributes: str
    """What follows the operands."""
    inside: str
    """What stands between the parentheses: for a constant its value, for a parameter its number."""
    root: bool

    @property
    def bytes(self) -> int:
        """Bytes of its result."""
        return sum(shape.bytes for shape in self.shapes)

    @property
    def op_name(self) -> str:
        """JAX's path to the operation that it was made from, "" if that is lost."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""

    def called(self, *roles: str) -> list[str]:
        """The names of the computations that it calls in these roles, such as "body"; without roles all of them."""
        names = [name for role, name in _CALLED.findall(self.attributes) if not roles or role in roles]
        branches = _BRANCHES.search(self.attributes)
        if branches and (not roles or "branch_computations" in roles):
            names += _NAME.findall(branches[1])
        return names


class Computation(NamedTuple):
    """A named list of instructions, in the order in which they run."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def by_name(self) -> dict[str, Instruction]:
        return {each.name: each for each in self.instructions}

    @property
    def root(self) -> Instruction:
        return next((each for each in self.instructions if each.root), self.instructions[-1])


class Module(NamedTuple):
    """A module by its computations."""

    entry: str
    computations: dict[str, Computation]


def parse(text: str) -> Module:
    """The module that the text describes. ValueError where it has no entry computation."""
    computations: dict[str, Computation] = {}
    entry, name, lines = "", "", []
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        head = _HEAD.match(line)
        if head:
            name, lines = head[2], []
            entry = name if head[1] else entry
        elif line.startswith("}") and name:
            computations[name] = Computation(name, tuple(lines))
            name = ""
        elif name and " = " in line:
            lines.append(_instruction(line.strip()))
    if not entry:
        raise ValueError("the text has no ENTRY computation")
    return Module(entry, computations)


def shapes_in(text: str) -> tuple[Shape, ...]:
    """The array types that a type is made of."""
    return tuple(Shape(kind, tuple(int(d) for d in dims.split(",") if d)) for kind, dims in _ARRAY.findall(text))


def _instruction(line: str) -> Instruction:
    root = line.startswith("ROOT ")
    name, rest = line.removeprefix("ROOT ").split(" = ", 1)
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    kind, rest = rest[:end], rest[end:].strip()
    open_ = rest.index("(")
    close = _closing(rest, open_)
    inside = rest[open_ + 1 : close]
    return Instruction(
        name.lstrip("%"), rest[:open_], shapes_in(kind), tuple(_NAME.findall(inside)), rest[close + 1 :], inside, root
    )


def _closing(text: str, at: int) -> int:
    """Where the parenthesis that opens at this place closes."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    raise ValueError(f"a parenthesis is not closed: {text[at : at + 80]}")
