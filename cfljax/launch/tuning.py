"""A search for the best setting of each method: settings climb from rung to rung, and the better part goes on. `tune.json` in the
folder says what each has scored; a search that is started again goes on from it and from the runs' checkpoints."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable

from cfljax.config import Run, Spec
from cfljax.config.run import with_varies
from cfljax.devices.machine import this_machine
from cfljax.errors import SpecError
from cfljax.experiment import batching
from cfljax.launch import halving
from cfljax.launch.batch import OnProgress, Unit
from cfljax.launch.plan_file import batch_limit
from cfljax.launch.progress import Progress
from cfljax.launch.rung import Climber, Curve
from cfljax.launch.search_plan import Plan, Setting
from cfljax.launch.sweep import Options, carry_out, name_of
from cfljax.registry.options import Table
from cfljax.store import Store
from cfljax.store.tuned import read_search, write_search


def search(plan: Plan, store: Store, options: Options) -> Table:
    """Carry the search out; its record, as `tune.json` has it."""
    machine = this_machine()
    with store.claim("tune", wait=True):
        table = _begun(plan, store)
        runs = [run for group in plan.groups for setting in group.settings for run in setting.runs]
        with Progress(_rounds_to_come(plan, table), len(runs), options.quiet) as progress:
            for message in plan.warnings:
                progress.say(f"cfljax: {message}")
            limit = functools.partial(batch_limit, machine=machine)
            climber = Climber(store, machine, options.keep, plan.metric, limit, _reporter(progress), _teller(progress))
            for at in range(len(plan.steps)):
                _rung(plan, table, at, climber, store)
    return table


def _begun(plan: Plan, store: Store) -> Table:
    """The record of the folder's search, or a new one; SpecError where the folder has another search."""
    table = read_search(store)
    if table is not None and table.get("mark") != plan.mark:
        why = "other settings, rungs or data, or another metric or budget"
        raise SpecError(f"{store.folder}: has the record of another search ({why}); give another folder by --out")
    if table is not None:
        return table
    groups = [
        {
            "label": group.label,
            "data": group.data,
            "settings": [
                {
                    "varies": each.varies,
                    "runs": [run.id for run in each.runs],
                    "scores": [],
                    "rounds": [],
                    "values": [],
                    "ended": "",
                }
                for each in group.settings
            ],
        }
        for group in plan.groups
    ]
    facts = {"mark": plan.mark, "metric": plan.metric, "reduce": plan.reduce, "rungs": plan.steps, "groups": groups}
    return {**facts, "seeds": [run.seed for run in plan.groups[0].settings[0].runs], "rounds": plan.steps[-1]}


def climbing(group: Table, at: int, plan: Plan) -> list[int]:
    """Which settings of a group are trained to rung `at`: the best of the rung before."""
    settings = group["settings"]
    if at == 0:
        return list(range(len(settings)))
    before = climbing(group, at - 1, plan)
    number = halving.counts(len(settings), len(plan.steps), plan.reduce)[at]
    scores = [settings[i]["scores"][at - 1] for i in before]
    return [before[i] for i in halving.best(scores, halving.METRICS[plan.metric], number)]


def _rounds_to_come(plan: Plan, table: Table) -> int:
    lengths = [b - a for a, b in zip([0, *plan.steps], plan.steps, strict=False)]
    total = 0
    for group in table["groups"]:
        runs, done = len(group["settings"][0]["runs"]), max(len(each["scores"]) for each in group["settings"])
        numbers = halving.counts(len(group["settings"]), len(plan.steps), plan.reduce)
        total += runs * sum(n * length for n, length in list(zip(numbers, lengths, strict=True))[done:])
    return total


def _rung(plan: Plan, table: Table, at: int, climber: Climber, store: Store) -> None:
    """Train who has come so far up to the next rung, and keep their scores. Checkpoints of those who stay behind are removed."""
    todo = []
    for group, written in zip(plan.groups, table["groups"], strict=True):
        for i in climbing(written, at, plan):
            if len(written["settings"][i]["scores"]) <= at:
                todo.append((group.settings[i], written["settings"][i]))
    if todo:
        _train(plan, at, todo, climber)
        write_search(store, table)
    if at + 1 < len(plan.steps):
        for group, written in zip(plan.groups, table["groups"], strict=True):
            on = set(climbing(written, at + 1, plan))
            for run in (run for i, setting in enumerate(group.settings) if i not in on for run in setting.runs):
                store.remove_checkpoint(run.id)


def _train(plan: Plan, at: int, todo: list[tuple[Setting, Table]], climber: Climber) -> None:
    """Train settings up to a rung, and write their scores into their tables."""
    until = plan.steps[at]
    climber.climb([run for setting, _ in todo for run in setting.runs], until)
    for setting, written in todo:
        curves = [climber.curve(run, until) for run in setting.runs]
        written.update(_summed(curves) | {"scores": [*written["scores"], _score(curves, until)]})


def _score(curves: list[Curve], until: int) -> float | None:
    """The mean over the seeds at the rung; None where a run has not come so far with a finite number."""
    last = [curve.values[-1] for curve in curves if not curve.ended and curve.rounds and curve.rounds[-1] == until]
    return math.fsum(last) / len(last) if len(last) == len(curves) else None


def _summed(curves: list[Curve]) -> Table:
    """The mean curve over the seeds, over the rounds that all have, and how runs have ended that are not well."""
    common = sorted(set.intersection(*(set(curve.rounds) for curve in curves)))
    values = [math.fsum(dict(zip(c.rounds, c.values, strict=True))[r] for c in curves) / len(curves) for r in common]
    return {"rounds": common, "values": values, "ended": next((curve.ended for curve in curves if curve.ended), "")}


def _reporter(progress: Progress) -> Callable[[batching.Batch], OnProgress]:
    def begin(batch: batching.Batch) -> OnProgress:
        progress.start(name_of(batch), len(batch.runs) * batch.first.train.rounds)
        shown: list[int] = []

        def report(done: int, accuracy: float | None) -> None:
            progress.update((done - shown[-1]) * len(batch.runs) if shown else 0, accuracy)
            shown.append(done)

        return report

    return begin


def _teller(progress: Progress) -> Callable[[Unit], None]:
    def tell(unit: Unit) -> None:
        record = unit[0]
        progress.finish(record["status"])
        if record["status"] == "failed":
            progress.say(f"cfljax: {record['label']} (seed {record['seed']}) failed: {record['error']}")

    return tell


def chosen(plan: Plan, table: Table) -> list[Setting | None]:
    """The best setting of each group; None for one in which no setting has come to the end with a finite score."""
    last, found = len(plan.steps) - 1, []
    for group, written in zip(plan.groups, table["groups"], strict=True):
        first = climbing(written, last, plan)
        scores = [written["settings"][i]["scores"][last] for i in first]
        (at,) = halving.best(scores, halving.METRICS[plan.metric], 1)
        found.append(group.settings[first[at]] if scores[at] is not None else None)
    return found


def finalists(spec: Spec, plan: Plan, table: Table) -> Spec:
    """The spec of the runs that were trained to the end."""
    last = len(plan.steps) - 1
    pairs = zip(plan.groups, table["groups"], strict=True)
    return _of(spec, (run for group, written in pairs for i in climbing(written, last, plan) for run in group.settings[i].runs))


def fresh(spec: Spec, plan: Plan, table: Table, seeds: Iterable[int]) -> Spec:
    """The spec that compares the best setting of each group on other seeds than it was tuned with."""
    best = [setting.runs[0] for setting in chosen(plan, table) if setting is not None]
    return _of(spec, (dataclasses.replace(run, seed=seed) for run in best for seed in seeds))


def check_fresh(plan: Plan, seeds: Iterable[int]) -> None:
    """SpecError for seeds that the search tunes with."""
    tuned = {run.seed for run in plan.groups[0].settings[0].runs}
    if both := sorted(tuned & set(seeds)):
        raise SpecError(f"--then-compare: seed {both[0]} is one that the settings were chosen by (search.seeds); compare on others")


def _of(spec: Spec, runs: Iterable[Run]) -> Spec:
    named = []
    for run in runs:
        object.__setattr__(run, "called", ((run.label, run.data.seed == "run"),))
        named.append(run)
    return dataclasses.replace(spec, warnings=(), _runs=tuple(with_varies(named)))


def tune(spec: Spec, plan: Plan, store: Store, options: Options, seeds: Iterable[int] | None = None) -> tuple[Table, Spec]:
    """Carry a search out, and compare the best settings on these seeds if any are given: (the record, the spec of the runs that the
    folder's plan has now)."""
    table = search(plan, store, options)
    last = finalists(spec, plan, table)
    if seeds is not None:
        best = fresh(spec, plan, table, seeds)
        if not best.runs():
            raise SpecError("no setting has come to its last round with a finite score: there is nothing to compare")
        last = best
    carry_out(last, store, options)
    return table, last
