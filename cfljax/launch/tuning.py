"""The record of a search, as `tune.json` has it: the settings' scores, which go on to the next
rung, which are chosen."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable

from cfljax.config import Run, Spec
from cfljax.config.run import merge_equal
from cfljax.errors import SpecError
from cfljax.launch import search_plan
from cfljax.launch.rung import Curve
from cfljax.launch.search_plan import SearchPlan, Setting
from cfljax.launch.time_left import Work
from cfljax.registry.options import Table
from cfljax.store import Store
from cfljax.store.units import read_search


def start_record(plan: SearchPlan, store: Store) -> Table:
    """Return the record of the folder's search, or a new one; raise a SpecError if the folder has
    another search."""
    table = read_search(store)
    if table is not None and table.get("mark") != plan.mark:
        why = "other settings, rungs or data, or another metric or budget"
        raise SpecError(
            f"{store.folder}: has the record of another search ({why}); give another folder "
            "by --out"
        )
    if table is not None:
        return table
    groups = [
        {
            "label": group.label,
            "data": group.data,
            "method": group.settings[0].runs[0].method,
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
    facts = {
        "mark": plan.mark,
        "metric": plan.metric,
        "reduce": plan.reduce,
        "rungs": plan.steps,
        "groups": groups,
    }
    return {
        **facts,
        "seeds": [run.seed for run in plan.groups[0].settings[0].runs],
        "rounds": plan.steps[-1],
    }


def select_climbing(group: Table, at: int, plan: SearchPlan) -> list[int]:
    """Return which settings of a group are trained to rung `at`: the best of the rung before."""
    settings = group["settings"]
    if at == 0:
        return list(range(len(settings)))
    before = select_climbing(group, at - 1, plan)
    number = search_plan.count_settings(len(settings), len(plan.steps), plan.reduce)[at]
    scores = [settings[i]["scores"][at - 1] for i in before]
    return [
        before[i] for i in search_plan.rank_best(scores, search_plan.sign_of(plan.metric), number)
    ]


def count_rounds_left(plan: SearchPlan, table: Table) -> int:
    """Count the rounds that are still to do, all runs together, at rungs without a record."""
    lengths = [b - a for a, b in zip([0, *plan.steps], plan.steps, strict=False)]
    total = 0
    for group in table["groups"]:
        runs = len(group["settings"][0]["runs"])
        done = max(len(each["scores"]) for each in group["settings"])
        numbers = search_plan.count_settings(len(group["settings"]), len(plan.steps), plan.reduce)
        total += runs * sum(
            n * length for n, length in list(zip(numbers, lengths, strict=True))[done:]
        )
    return total


def list_works(plan: SearchPlan, table: Table, seeds: int, width: float) -> list[Work]:
    """List the phases of a search: its rungs, each with the rounds that no record has, and the
    comparison on other seeds.

    Args:
        plan, table: the search, and its record so far.
        seeds: how many the best settings are compared on; 0: they are not.
        width: the runs of a batch."""
    works = []
    for at, (begin, end) in enumerate(zip([0, *plan.steps], plan.steps, strict=False)):
        rounds: Counter[str] = Counter()
        settings = runs = 0
        for group, written in zip(plan.groups, table["groups"], strict=True):
            number = search_plan.count_settings(len(group.settings), len(plan.steps), plan.reduce)
            settings += number[at]
            if max(len(each["scores"]) for each in written["settings"]) <= at:
                more = number[at] * len(group.settings[0].runs)
                rounds[group.label] += more * (end - begin)
                runs += more
        name = f"rung {at + 1} of {len(plan.steps)}: {settings} settings to round {end}"
        works.append(Work(rounds, batches=math.ceil(runs / width), name=name))
    if seeds:
        rounds = Counter()
        for group in plan.groups:
            rounds[group.label] += seeds * plan.steps[-1]
        number_of_runs = seeds * len(plan.groups)
        works.append(Work(rounds, number_of_runs, batches=math.ceil(number_of_runs / width)))
    return works


def average_scores(curves: list[Curve], until: int) -> float | None:
    """Average over the seeds at the rung; None if a run has not come so far with a finite
    number."""
    there = [
        curve
        for curve in curves
        if not curve.ended and curve.rounds and (curve.whole or curve.rounds[-1] == until)
    ]
    last = [curve.values[-1] for curve in there]
    return math.fsum(last) / len(last) if len(last) == len(curves) else None


def average_curves(curves: list[Curve]) -> Table:
    """Average the curves over the seeds, over the rounds that all have, and tell how runs have
    ended that failed or were lost."""
    common = sorted(set.intersection(*(set(curve.rounds) for curve in curves)))
    values = [
        math.fsum(dict(zip(c.rounds, c.values, strict=True))[r] for c in curves) / len(curves)
        for r in common
    ]
    return {
        "rounds": common,
        "values": values,
        "ended": next((curve.ended for curve in curves if curve.ended), ""),
    }


def choose_best(plan: SearchPlan, table: Table) -> list[Setting | None]:
    """Return the best setting of each group; None for a group in which no setting has come to the
    end with a finite score."""
    last = len(plan.steps) - 1
    found = []
    for group, written in zip(plan.groups, table["groups"], strict=True):
        first = select_climbing(written, last, plan)
        scores = [written["settings"][i]["scores"][last] for i in first]
        (at,) = search_plan.rank_best(scores, search_plan.sign_of(plan.metric), 1)
        found.append(group.settings[first[at]] if scores[at] is not None else None)
    return found


def make_final_spec(spec: Spec, plan: SearchPlan, table: Table) -> Spec:
    """Return the spec of the runs that were trained to the end."""
    last = len(plan.steps) - 1
    pairs = zip(plan.groups, table["groups"], strict=True)
    return replace_runs(
        spec,
        (
            run
            for group, written in pairs
            for i in select_climbing(written, last, plan)
            for run in group.settings[i].runs
        ),
    )


def make_comparison(spec: Spec, plan: SearchPlan, table: Table, seeds: Iterable[int]) -> Spec:
    """Return the spec that compares the best setting of each group on other seeds than it was tuned
    with."""
    best = [setting.runs[0] for setting in choose_best(plan, table) if setting is not None]
    return replace_runs(
        spec, (dataclasses.replace(run, seed=seed) for run in best for seed in seeds)
    )


def check_seeds(plan: SearchPlan, seeds: Iterable[int]) -> None:
    """Reject seeds that the search tunes with."""
    tuned = {run.seed for run in plan.groups[0].settings[0].runs}
    if both := sorted(tuned & set(seeds)):
        raise SpecError(
            f"--then-compare: seed {both[0]} was used to choose the settings (search.seeds); "
            "compare on others"
        )


def replace_runs(spec: Spec, runs: Iterable[Run]) -> Spec:
    """Return the spec with these runs instead of its own. Options that vary in the search count as
    varying in them, too, so that tables show what was chosen even where all methods chose the
    same."""
    given = list(runs)
    searched = {run.cheap_id: run.varies for run in given}
    merged = merge_equal(given)
    for run in merged:
        # A copy would lose the ids that the run has computed
        object.__setattr__(run, "varies", {**searched[run.cheap_id], **run.varies})
    return dataclasses.replace(spec, warnings=(), _runs=tuple(merged))
