"""The record of a search, as `tune.json` has it: what each setting has scored, who goes on to the next rung, and what is chosen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from cfljax.config import Run, Spec
from cfljax.config.run import merge_equal
from cfljax.errors import SpecError
from cfljax.launch import halving
from cfljax.launch.rung import Curve
from cfljax.launch.search_plan import Plan, Setting
from cfljax.registry.options import Table
from cfljax.store import Store
from cfljax.store.tuned import read_search


def begun(plan: Plan, store: Store) -> Table:
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


def rounds_to_come(plan: Plan, table: Table) -> int:
    """The rounds that are still to do, all runs together, at rungs of which nothing is on record."""
    lengths = [b - a for a, b in zip([0, *plan.steps], plan.steps, strict=False)]
    total = 0
    for group in table["groups"]:
        runs, done = len(group["settings"][0]["runs"]), max(len(each["scores"]) for each in group["settings"])
        numbers = halving.counts(len(group["settings"]), len(plan.steps), plan.reduce)
        total += runs * sum(n * length for n, length in list(zip(numbers, lengths, strict=True))[done:])
    return total


def score(curves: list[Curve], until: int) -> float | None:
    """The mean over the seeds at the rung; None where a run has not come so far with a finite number."""
    there = [curve for curve in curves if not curve.ended and curve.rounds and (curve.whole or curve.rounds[-1] == until)]
    last = [curve.values[-1] for curve in there]
    return math.fsum(last) / len(last) if len(last) == len(curves) else None


def summed(curves: list[Curve]) -> Table:
    """The mean curve over the seeds, over the rounds that all have, and how runs have ended that are not well."""
    common = sorted(set.intersection(*(set(curve.rounds) for curve in curves)))
    values = [math.fsum(dict(zip(c.rounds, c.values, strict=True))[r] for c in curves) / len(curves) for r in common]
    return {"rounds": common, "values": values, "ended": next((curve.ended for curve in curves if curve.ended), "")}


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
    return spec_of(spec, (run for group, written in pairs for i in climbing(written, last, plan) for run in group.settings[i].runs))


def fresh(spec: Spec, plan: Plan, table: Table, seeds: Iterable[int]) -> Spec:
    """The spec that compares the best setting of each group on other seeds than it was tuned with."""
    best = [setting.runs[0] for setting in chosen(plan, table) if setting is not None]
    return spec_of(spec, (dataclasses.replace(run, seed=seed) for run in best for seed in seeds))


def check_fresh(plan: Plan, seeds: Iterable[int]) -> None:
    """SpecError for seeds that the search tunes with."""
    tuned = {run.seed for run in plan.groups[0].settings[0].runs}
    if both := sorted(tuned & set(seeds)):
        raise SpecError(f"--then-compare: seed {both[0]} was used to choose the settings (search.seeds); compare on others")


def spec_of(spec: Spec, runs: Iterable[Run]) -> Spec:
    """The spec with these runs in place of its own."""
    return dataclasses.replace(spec, warnings=(), _runs=tuple(merge_equal(runs)))
