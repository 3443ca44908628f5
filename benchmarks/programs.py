"""Programs as XLA itself tells of them, whichever version of cfljax asked for them: the kernels in what it dumps, and the seconds
of compiling in what JAX logs. Nothing here knows cfljax."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

LOGGED = {"JAX_LOG_COMPILES": "1"}
"""The environment in which JAX writes a line per program that it compiles."""
NO_KERNEL = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all", "opt-barrier")
)
"""Instructions that move control or names, not data. What a loop, a branch or a call holds is counted where it stands."""
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][a-z0-9\-]*)\(")
_SUBPROGRAM = re.compile(
    r"(?:body|condition|true_computation|false_computation|branch_computations|calls|to_apply)=(\{[^}]*\}|[^,\s]+)"
)
_FINISHED = re.compile(r"Finished XLA compilation of (?:jit\()?(.+?)\)? in ([0-9.]+) sec")


def kernels(hlo: str) -> int:
    """Instructions of an optimised module that a CPU carries out as a kernel or a call into a library: those of the entry and of
    all bodies of loops, branches and calls, each once. The insides of fusions, and the functions of sorts and sums, are part of
    their kernel."""
    own: Counter[str] = Counter()
    below: dict[str, set[str]] = {}
    entry = here = ""
    for line in hlo.splitlines():
        if begins := _COMPUTATION.match(line):
            here = begins[2]
            entry = here if begins[1] else entry
            below[here] = set()
        elif here and (found := _INSTRUCTION.match(line)):
            if found[1] not in NO_KERNEL:
                own[here] += 1
            elif found[1] in ("while", "conditional", "call"):
                below[here] |= {name for group in _SUBPROGRAM.findall(line) for name in re.findall(r"[\w.\-]+", group)}
    if not entry:
        raise ValueError("this text is no module of HLO: it has no ENTRY")
    reached, waiting = {entry}, [entry]
    while waiting:
        new = below[waiting.pop()] - reached
        reached |= new
        waiting += new
    return sum(own[name] for name in reached)


def dumping(folder: Path) -> dict[str, str]:
    """The environment in which XLA writes its optimised modules to `folder`."""
    return {"XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text"}


def dumped(folder: Path) -> list[tuple[str, int]]:
    """(name, kernels) of the modules in a folder that XLA has dumped into, the largest first."""
    found = []
    for file in sorted(folder.glob("*_after_optimizations.txt")):
        found.append((file.name.split(".")[1].removeprefix("jit_"), kernels(file.read_text(errors="replace"))))
    return sorted(found, key=lambda program: -program[1])


def compile_seconds(log: str) -> list[tuple[str, float]]:
    """(name, seconds) of the programs that XLA compiled, in their order, from what JAX logged."""
    return [(name, float(seconds)) for name, seconds in _FINISHED.findall(log)]
