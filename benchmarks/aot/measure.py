"""A row of the table: a workload's or a method's programs, compiled for a target, and what they consist of."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.aot import hlo, loops, predict, standins
from benchmarks.aot.programs import NAMES, Compiled, Prepared, compile_for, prepare
from benchmarks.aot.targets import Target
from benchmarks.shared import data_folder
from benchmarks.workloads import WORKLOADS

SWEEP = "sweep"
"""32 seeds × 8 learning rates of IFCA on W4's data, in the batches that the target's memory holds."""
CLIENTS = 20
"""Of a round of a model of today."""
SEEDS, RATES = 32, (0.02, 0.028, 0.039, 0.054, 0.074, 0.104, 0.144, 0.2)
Row = dict[str, Any]


def runs_of(workload: str, method: str | None, target: Target, folder: Path, kernel: str = "auto") -> list[Any]:
    """The runs of a batch: one, or one for each group of devices of a mesh. `method`: on the quickstart's data, with the
    options that it has there. `kernel`: its `train.plan.kernel`."""
    from cfljax.api import QUICKSTART
    from cfljax.config import read_spec

    groups = 1 if target.machine.mesh is None else target.machine.mesh.runs
    if workload.endswith(".toml"):
        return _runs_of_spec(workload, method, folder, kernel)
    name, _, conv = workload.partition("-")
    if name in models.MODELS:
        models.register(CLIENTS)
        table = models.spec(name, 20, CLIENTS, conv or None) | {"seeds": list(range(groups))}
        table["train"]["plan"] = {"kernel": kernel}
        return read_spec(table).runs()
    if workload == "quickstart":
        table = tomllib.loads(Path(QUICKSTART).read_text(encoding="utf-8"))
        told = [each for each in table["method"] if each["name"] == method]
        table |= {"method": told or [{"name": method}], "seeds": f"0:{groups}"}
        table["train"]["plan"] = {"kernel": kernel}
        return read_spec(table).runs()
    of = WORKLOADS["W4" if workload == SWEEP else workload]
    table = of.spec(20, data_folder(of, folder)[0]) | {"seeds": list(range(groups))}
    table["train"]["plan"] = {"kernel": kernel}
    if workload == SWEEP:
        table["train"]["lr"], table["seeds"] = list(RATES), list(range(SEEDS))
    return read_spec(table).runs()


def _runs_of_spec(path: str, method: str | None, folder: Path, kernel: str) -> list[Any]:
    """All runs of one method of a spec."""
    from cfljax.config import read_spec

    place = standins.folder_of(read_spec(path).runs()[0].data.name, folder)
    data = [] if place is None else [f"data.path={place}"]
    return read_spec(path, [f"method={method}", f"train.plan.kernel={kernel}", *data]).runs()


def methods_of(path: str) -> list[str]:
    """Of a spec, in its order."""
    from cfljax.config import read_spec

    return list(dict.fromkeys(run.method for run in read_spec(path).runs()))


def measure(workload: str, method: str | None, target: Target, folder: Path, kernel: str = "auto") -> Row:
    """The row. An error of the compiler stands in it under `error`."""
    from cfljax.experiment.batching import batches
    from cfljax.launch.plan_file import batch_limit

    runs = runs_of(workload, method, target, folder, kernel)
    batch, parts, spec = runs, 1, workload.endswith(".toml")
    if spec or workload == SWEEP:
        made = batches(runs, lambda run: batch_limit(run, target.machine))
        batch, parts = list(made[0].runs), len(made)
    name = Path(workload).stem if spec else workload
    row: Row = {"workload": name, "method": runs[0].method, "target": target.name, "runs": len(batch), "plan": kernel}
    try:
        prepared = prepare(batch, target)
        found = {name: compile_for(prepared, name) for name in NAMES}
    except Exception as error:  # of many kinds: XLA's, Mosaic's, a method's
        return row | {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    row |= _figures(prepared, found, target, parts)
    return row | _whole(row, runs) if spec else row


def _whole(row: Row, runs: list[Any]) -> Row:
    """Predicted seconds of all rounds and evaluations of all runs."""
    rounds, every = runs[0].train.rounds, runs[0].train.eval_every
    evaluations = 1 + -(-rounds // every)
    total = rounds * row["predicted_s"] + evaluations * row["evaluate"]["predicted_s"]
    return {"all_runs": len(runs), "rounds": rounds, "evaluations": evaluations, "total_s": total}


def _figures(prepared: Prepared, found: dict[str, Compiled], target: Target, parts: int) -> Row:
    """`parts`: how many batches the runs make."""
    programs = {name: loops.look(hlo.parse(each.text), target.gpu) for name, each in found.items()}
    rounds, evaluate = (_figures_of(found[name], programs[name]) for name in NAMES)
    steps = [loop for loop, _ in loops.all_loops(programs["rounds"].body) if loop.name == "local_steps"]
    turns = prepared.turns
    rounds["predicted_s"] = parts * (predict.seconds(programs["rounds"], turns["rounds"], target.rates) + prepared.in_kernel)
    evaluate["predicted_s"] = parts * predict.seconds(programs["evaluate"], turns["evaluate"], target.rates)
    return {
        "compile_s": rounds.pop("compile_s"),
        "launches_per_step": max((loops.launches_of(loop.body) for loop in steps), default=0),
        "one_kernel": prepared.in_kernel > 0,
        "steps_in_a_row": turns["rounds"].steps,
        "loops": [_loop(name, *each) for name in NAMES for each in loops.all_loops(programs[name].body)],
        **rounds,
        "needed_bytes": max(_needed(each) for each in found.values()),
        "predicted_bytes": prepared.predicted_bytes,
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
