"""How many floating-point operations and bytes of memory a kernel of an optimised HLO module needs, read from its text."""

from __future__ import annotations

import math
import re

from benchmarks.aot.hlo import Computation, Instruction, Module, Shape

SLICES = ("dynamic-slice", "gather", "slice")
"""Operations that read only a part of their first operand."""
VIEWS = ("bitcast", "reshape", "copy", "custom-call")
"""Inside a fusion these pass an operand on (a custom call there only marks indices)."""


def flops(module: Module, one: Instruction, inside: Computation) -> float:
    """Operations of the matrix products and convolutions in a kernel; all else is counted as free."""
    if one.opcode == "fusion":
        body = module.computations[one.called("calls")[0]]
        return sum(flops(module, each, body) for each in body.instructions)
    of = inside.by_name
    if one.opcode == "dot":
        left = of[one.operands[0]].shapes[0]
        return 2.0 * one.shapes[0].size * math.prod(left.dims[at] for at in _numbers(one, "lhs_contracting_dims"))
    if one.opcode == "custom-call" and '"__cublas$' in one.attributes:
        left = of[one.operands[0]].shapes[0]
        found = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', one.attributes)
        dims = re.findall(r"[0-9]+", found[1]) if found else []
        return 2.0 * one.shapes[0].size * math.prod(left.dims[int(at)] for at in dims)
    if "dim_labels=" in one.attributes and len(one.operands) >= 2:
        return _convolution(one, of[one.operands[0]].shapes[0], of[one.operands[1]].shapes[0])
    return 0.0


def bytes_moved(module: Module, one: Instruction, inside: Computation) -> float:
    """Bytes that a kernel reads and writes: its operands and its result, of those that it slices only the slices."""
    of = inside.by_name
    operands = [of[name].bytes if name in of else 0 for name in one.operands]
    if one.opcode.endswith("-start") and len(one.shapes) > 1:  # its result is (what it reads, what it writes, …)
        return 2.0 * one.shapes[1].bytes
    if one.opcode in SLICES:
        return 2.0 * one.bytes
    if one.opcode in ("dynamic-update-slice", "scatter"):
        return 2.0 * sum(operands[1:])
    if one.opcode != "fusion":
        return float(sum(operands) + one.bytes)
    body = module.computations[one.called("calls")[0]]
    reads = sum(_read(body, int(each.inside)) for each in body.instructions if each.opcode == "parameter")
    root = body.root
    parts = [body.by_name[name] for name in root.operands] if root.opcode == "tuple" else [root]
    return float(reads + sum(_written(body, part) for part in parts))


def _read(body: Computation, number: int) -> int:
    """Bytes of a fusion's parameter that it reads."""
    parameter = next(each for each in body.instructions if each.opcode == "parameter" and int(each.inside) == number)
    total, names = 0, [parameter.name]
    while names:
        name = names.pop()
        for user in body.instructions:
            if name not in user.operands:
                continue
            first = user.operands[0] == name
            if user.opcode in VIEWS and user.bytes == parameter.bytes:
                names.append(user.name)
            elif user.opcode in SLICES and first:
                total += user.bytes
            elif not (user.opcode in ("dynamic-update-slice", "scatter") and first):
                return parameter.bytes
    return min(total, parameter.bytes)


def _written(body: Computation, one: Instruction) -> int:
    """Bytes that a fusion writes for this part of its result."""
    of = body.by_name
    while one.opcode in VIEWS and one.operands and one.operands[0] in of:
        one = of[one.operands[0]]
    if one.opcode in ("dynamic-update-slice", "scatter"):
        return of[one.operands[-1 if one.opcode == "scatter" else 1]].bytes
    return one.bytes


def _numbers(one: Instruction, attribute: str) -> list[int]:
    found = re.search(attribute + r"=\{([0-9,]*)\}", one.attributes)
    return [int(each) for each in found[1].split(",") if each] if found else []


def _convolution(one: Instruction, left: Shape, right: Shape) -> float:
    """2 × (samples × outputs × inputs per group × the places of the window that meet a number, over all outputs). XLA writes
    batched products for a TPU as convolutions over the batch, of whose window one place in each position counts."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.attributes)
    window = re.search(r"window=\{([^}]*)\}", one.attributes)
    assert labels is not None
    out, sizes = one.shapes[0], dict(zip(labels[1], left.dims, strict=True))
    kernel, results = dict(zip(labels[2], right.dims, strict=True)), dict(zip(labels[3], out.dims, strict=True))
    taps = 1
    fields = dict(part.split("=") for part in window[1].split()) if window else {}
    for at, width in enumerate(fields.get("size", "").split("x") if fields else []):
        pick = lambda name, default, at=at: fields.get(name, "x".join([default] * (at + 1))).split("x")[at]  # noqa: E731
        low = int(pick("pad", "0_0").split("_")[0])
        numbers = (int(pick(name, "1")) for name in ("stride", "lhs_dilate", "rhs_dilate"))
        taps *= _taps(sizes[str(at)], results[str(at)], int(width), low, *numbers)
    return 2.0 * results["b"] * results["f"] * kernel["i"] * taps


def _taps(size: int, results: int, width: int, low: int, stride: int, dilated: int, spread: int) -> int:
    """Over all positions of a window along one dimension, how many of its places meet a number, not padding or a gap."""
    last = (size - 1) * dilated
    places = (at * stride + tap * spread - low for at in range(results) for tap in range(width))
    return sum(1 for place in places if 0 <= place <= last and place % dilated == 0)
