"""What a compiled program does: its loops with the kernels of an iteration, what returns to the host, and its collectives."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmarks.aot.hlo import Computation, Instruction, Module

FREE = (
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "while", "conditional", "call", "partition-id",
    "replica-id", "opt-barrier", "optimization-barrier", "add-dependency", "domain",
)  # fmt: skip
"""Operations that start no kernel of their own."""
MARKS = ("AllocateBuffer", "AssumeGatherIndicesInBound", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")
"""Custom calls that compute nothing."""
KERNELS = ("fusion", "custom-call", "copy", "sort", "dot", "convolution")
"""Operations that are kernels even where their result is one number. Other operations on one number are a TPU's scalar unit's."""
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)


class Collective(NamedTuple):
    """An exchange between devices."""

    kind: str
    bytes: int
    op: str
    """JAX's path to it; the partitioner's own exchanges have none."""
    within: tuple[str, ...]
    """The loops around it, the outermost first."""


class Body(NamedTuple):
    """What one pass through a computation does, without the loops in it."""

    launches: int
    on_host: int
    """Branches whose condition the host reads."""
    loops: tuple[Loop, ...]


class Loop(NamedTuple):
    """A loop of a program."""

    name: str
    """The named scope or JAX function around it."""
    trip: int | None
    """Its number of iterations, where the compiled program knows it."""
    on_host: bool
    """Whether the host reads its condition after every iteration: a GPU's loop whose number of iterations XLA does not know."""
    condition: int
    """Kernels of its condition."""
    body: Body

    @property
    def launches(self) -> int:
        """Kernels of an iteration, its condition and the loops in it left out."""
        return self.body.launches


class Program(NamedTuple):
    """A compiled program."""

    body: Body
    collectives: tuple[Collective, ...]


def look(module: Module, gpu: bool) -> Program:
    """What the module consists of. `gpu`: whether it is for a GPU, whose host runs the loops."""
    collectives: list[Collective] = []
    body = _body(module, module.computations[module.entry], gpu, (), collectives)
    return Program(body, tuple(collectives))


def all_loops(body: Body) -> list[tuple[Loop, tuple[str, ...]]]:
    """Every loop, with the names of those around it, an outer one before those in it."""
    found = []
    for loop in body.loops:
        found.append((loop, ()))
        found += [(inner, (loop.name, *around)) for inner, around in all_loops(loop.body)]
    return found


def launches_of(body: Body) -> int:
    """Kernels of one pass, with the loops in it as often as they turn; a loop whose number of iterations is unknown counts once."""
    return body.launches + sum((launches_of(loop.body) + loop.condition) * (loop.trip or 1) for loop in body.loops)


def is_launch(one: Instruction) -> bool:
    """Whether the instruction is a kernel."""
    if one.opcode in FREE or one.opcode.endswith(("-done", "-update")):
        return False
    if one.opcode == "custom-call" and any(f'custom_call_target="{mark}"' in one.attributes for mark in MARKS):
        return False
    return one.opcode in KERNELS or sum(shape.size for shape in one.shapes) > 1


def _body(module: Module, computation: Computation, gpu: bool, within: tuple[str, ...], collectives: list[Collective]) -> Body:
    launches, on_host, loops = 0, 0, []
    for one in computation.instructions:
        if one.opcode == "while":
            loops.append(_loop(module, computation, one, gpu, within, collectives))
        elif one.opcode in ("conditional", "call"):
            parts = [_body(module, module.computations[name], gpu, within, collectives) for name in one.called()]
            most = max(parts, key=launches_of)
            launches += most.launches
            on_host += most.on_host + (gpu and one.opcode == "conditional")
            loops += most.loops
        elif is_launch(one):
            launches += 1
        kind = one.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            collectives.append(Collective(kind, one.bytes, one.op_name, within))
    return Body(launches, on_host, tuple(loops))


def _loop(
    module: Module, around: Computation, one: Instruction, gpu: bool, within: tuple[str, ...], collectives: list[Collective]
) -> Loop:
    name = name_of(one.op_name)
    trip = trip_count(module, around, one)
    condition = module.computations[one.called("condition")[0]]
    body = _body(module, module.computations[one.called("body")[0]], gpu, (*within, name), collectives)
    told = "known_trip_count" in one.attributes
    return Loop(name, trip, gpu and not told, sum(map(is_launch, condition.instructions)), body)


def name_of(op_name: str) -> str:
    """The innermost part of JAX's path that says what a loop is: a named scope, a function or the operation that became a loop."""
    parts = [re.sub(r"^(?:\w+\()+|\)+$", "", part) for part in op_name.split("/")]
    if parts and parts[-1] == "while":
        parts.pop()
    known = [part for part in parts if part and part not in ("while", "body", "cond", "closed_call") and "branch_" not in part]
    return known[-1] if known else "?"


def trip_count(module: Module, around: Computation, one: Instruction) -> int | None:
    """How often a loop turns: as XLA notes it, or as it follows from a condition "counter < constant" and a counter from a constant
    up by ones, as JAX and XLA write loops; else None."""
    noted = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', one.attributes)
    if noted:
        return int(noted[1])
    condition = module.computations[one.called("condition")[0]]
    test, of = condition.root, condition.by_name
    if test.opcode != "compare" or "direction=LT" not in test.attributes or of[test.operands[1]].opcode != "constant":
        return None
    counter = re.search(r"index=(\d+)", of[test.operands[0]].attributes)
    start = around.by_name.get(one.operands[0])
    if counter is None or start is None or start.opcode != "tuple":
        return None
    first = around.by_name[start.operands[int(counter[1])]]
    while first.opcode in ("copy", "bitcast") and first.operands:
        first = around.by_name[first.operands[0]]
    end = of[test.operands[1]].inside
    return int(end) - int(first.inside) if first.opcode == "constant" else None
