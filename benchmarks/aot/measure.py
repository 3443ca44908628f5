"""A row of results: a workload's programs, compiled for a target, and what they consist of."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.aot import hlo, loops
from benchmarks.aot.programs import NAMES, Compiled, compile_for, prepare
from benchmarks.aot.targets import Target
from benchmarks.shared import data_folder
from benchmarks.workloads import WORKLOADS

Row = dict[str, Any]


def runs_of(workload: str, method: str | None, target: Target, folder: Path) -> list[Any]:
    """The runs of a batch: one, or one for each group of devices of a mesh. `method`: on the quickstart's data, with the
    options that it has there."""
    from cfljax.api import QUICKSTART
    from cfljax.config import read_spec

    groups = 1 if target.machine.mesh is None else target.machine.mesh.runs
    if workload == "quickstart":
        table = tomllib.loads(Path(QUICKSTART).read_text(encoding="utf-8"))
        told = [each for each in table["method"] if each["name"] == method]
        return read_spec(table | {"method": told or [{"name": method}], "seeds": f"0:{groups}"}).runs()
    of = WORKLOADS[workload]
    return read_spec(of.spec(20, data_folder(of, folder)[0]) | {"seeds": list(range(groups))}).runs()


def measure(workload: str, method: str | None, target: Target, folder: Path) -> Row:
    """The row. An error of the compiler stands in it under `error`."""
    runs = runs_of(workload, method, target, folder)
    row: Row = {"workload": workload, "method": runs[0].method, "target": target.name, "runs": len(runs)}
    try:
        prepared = prepare(runs, target)
        found = {name: compile_for(prepared, name) for name in NAMES}
    except Exception as error:  # of many kinds: XLA's, a method's
        return row | {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    return row | _figures(found, target)


def _figures(found: dict[str, Compiled], target: Target) -> Row:
    programs = {name: loops.look(hlo.parse(each.text), target.gpu) for name, each in found.items()}
    rounds, evaluate = (_figures_of(found[name], programs[name]) for name in NAMES)
    steps = [loop for loop, _ in loops.all_loops(programs["rounds"].body) if loop.name == "local_steps"]
    return {
        "launches_per_step": max((loops.launches_of(loop.body) for loop in steps), default=0),
        "loops": [_loop(name, *each) for name in NAMES for each in loops.all_loops(programs[name].body)],
        **rounds,
        "needed_bytes": max(_needed(each) for each in found.values()),
        "memory_bytes": target.machine.memory,
        "collectives_in_steps": sum("local_steps" in each.within for each in programs["rounds"].collectives),
        "evaluate": evaluate,
    }


def _figures_of(compiled: Compiled, program: loops.Program) -> Row:
    memory = compiled.memory
    return {
        "compile_s": round(compiled.seconds, 2),
        "launches": loops.launches_of(program.body),
        "temp_bytes": memory.temp_size_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
        "collectives": dict(Counter(each.kind for each in program.collectives)),
        "exchanges": [each._asdict() for each in program.collectives],
    }


def _needed(compiled: Compiled) -> int:
    """Bytes of a device's memory while the program runs."""
    memory = compiled.memory
    both = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(both + memory.temp_size_in_bytes)


def _loop(program: str, loop: loops.Loop, around: tuple[str, ...]) -> Row:
    facts = {"name": loop.name, "trip": loop.trip, "launches": loop.launches, "on_host": loop.on_host}
    return facts | {"branches_on_host": loop.body.on_host, "program": program, "within": list(around)}
