"""The plan of a search, before anything is computed: the settings of each method that compete, the
rungs, and the budget."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cfljax.config import Run, Spec
from cfljax.config.frozen import canonical
from cfljax.errors import SpecError
from cfljax.registry.options import Table, show


class Setting(NamedTuple):
    """One combination of options of a method, with a run for each seed of the search."""

    runs: tuple[Run, ...]

    @property
    def varies(self) -> Table:
        """Return the options in which it differs from others."""
        return dict(self.runs[0].varies)


class SettingGroup(NamedTuple):
    """The settings of a method on one data set and partition, which compete with each other."""

    label: str
    # The data set and the partition, where the spec has several; else ""
    data: str
    settings: list[Setting]


class SearchPlan(NamedTuple):
    """A search, before anything is computed."""

    groups: list[SettingGroup]
    # The rounds of the rungs
    steps: list[int]
    reduce: int
    metric: str
    # Equal for searches that would compute and choose the same
    mark: str
    warnings: list[str]


def plan_search(
    spec: Spec, metric: str = "val_accuracy", budget: float | None = None
) -> SearchPlan:
    """Plan the search that a spec describes; raise a SpecError if there can be none. `budget`:
    whole runs, all methods together."""
    from cfljax.models.losses import find_score
    from cfljax.models.options import common_options

    search = spec.search
    runs = _with_seeds(spec, search.seeds)
    scores = {find_score(common_options(run.model.options).loss).name for run in runs}
    # What settings are chosen by is accuracy, or what the loss has in its place
    if metric == "val_accuracy" and len(scores) == 1:
        metric = f"val_{next(iter(scores))}"
    if metric not in (*METRICS, *(f"val_{score}" for score in scores if len(scores) == 1)):
        test = metric.startswith(("accuracy", "loss"))
        why = (
            "is measured on test data, which may not be used for a choice"
            if test
            else "is not a metric to choose by"
        )
        raise SpecError(f"--metric {metric}: {why}; take val_accuracy, val_loss or train_loss")
    if metric == "val_accuracy" and scores != {"accuracy"}:
        raise SpecError(
            f"--metric {metric}: losses of this spec have the scores {', '.join(sorted(scores))}; "
            "take val_loss, or one loss"
        )
    if metric.startswith("val_") and not all(getattr(run.data, "validation", None) for run in runs):
        raise SpecError(f"--metric {metric}: needs validation samples; add data.validation = 0.1")
    rounds, every = (_read_common(runs, name) for name in ("rounds", "eval_every"))
    steps = list_rungs(search.first, search.reduce, rounds, every)
    groups = _make_groups(runs)
    if budget is not None:
        groups = _limit_settings(
            groups, steps, search.reduce, budget * rounds / len(groups) / len(search.seeds), budget
        )
    sizes = sorted({len(group.settings) for group in groups})
    warnings = list(spec.warnings)
    if len(sizes) > 1:
        more = (
            ""
            if budget is None
            else f" within --budget {budget:g}: those with fewer have no more to try"
        )
        warnings.append(
            f"methods try {sizes[0]} to {sizes[-1]} "
            f"settings{more or '; --budget RUNS gives each the same'}"
        )
    ids = [run.id for group in groups for setting in group.settings for run in setting.runs]
    facts = [metric, str(steps), str(search.reduce), *ids]
    return SearchPlan(
        groups,
        steps,
        search.reduce,
        metric,
        hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16],
        warnings,
    )


def _with_seeds(spec: Spec, seeds: tuple[int, ...]) -> list[Run]:
    """Return the settings of each row of the spec, with the seeds of the search. Rows may share
    settings."""
    first: dict[tuple[str, bool, str], Run] = {}
    for run in spec.runs():
        for label, follows in run.rows:
            data_seed = "run" if follows else run.data_seed
            data = (
                run.data
                if data_seed == run.data.seed
                else dataclasses.replace(run.data, seed=data_seed)
            )
            of_row = dataclasses.replace(run, label=label, data=data)
            first.setdefault((label, follows, dataclasses.replace(of_row, seed=0).cheap_id), of_row)
    return [dataclasses.replace(run, seed=seed) for run in first.values() for seed in seeds]


def _read_common(runs: list[Run], name: str) -> int:
    """Return an option of `train` that all runs must have in common."""
    values = sorted({getattr(run.train, name) for run in runs})
    if len(values) > 1:
        raise SpecError(
            f"train.{name} = {show(values)}: a search needs one number, because all settings "
            "are compared at the same rounds"
        )
    return int(values[0])


def _make_groups(runs: list[Run]) -> list[SettingGroup]:
    """Group the runs by label and data, and in a group by setting."""
    data = {canonical_data(run): f"{run.data.name} {run.data.partition}" for run in runs}
    names = list(data.values())
    found: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        setting = dataclasses.replace(run, seed=0).cheap_id
        found.setdefault((run.label, canonical_data(run)), {}).setdefault(setting, []).append(run)

    def name_data(key: str) -> str:
        """Name the data of a group as far as others have other data."""
        if len(data) == 1:
            return ""
        name = data[key]
        return name if names.count(name) == 1 else f"{name} ({list(data).index(key)})"

    return [
        SettingGroup(label, name_data(key), [Setting(tuple(each)) for each in settings.values()])
        for (label, key), settings in found.items()
    ]


def canonical_data(run: Run) -> str:
    """Return a string that is equal for runs on the same data, whatever their seeds."""
    return dataclasses.replace(run.data, seed=0).cheap_id + canonical({"seed": run.data.seed})


def _limit_settings(
    groups: list[SettingGroup], steps: list[int], reduce: int, rounds: float, budget: float
) -> list[SettingGroup]:
    """Return the groups with as many of their settings as this number of rounds for each seed
    allows."""
    number = count_affordable(max(len(group.settings) for group in groups), steps, reduce, rounds)
    if not number:
        least = len(groups) * len(groups[0].settings[0].runs)
        raise SpecError(
            f"--budget {budget:g}: one setting of each method takes {least} runs; give at "
            "least that"
        )
    return [
        group._replace(
            settings=[group.settings[i] for i in draw_settings(len(group.settings), number)]
        )
        for group in groups
    ]


METRICS = {"val_accuracy": 1, "val_loss": -1, "train_loss": -1}
"""What settings may be chosen by -> 1: the higher the better, −1: the lower. None is measured on
test data."""


def sign_of(metric: str) -> int:
    """Return 1 if a higher value of what settings are chosen by is better, else −1."""
    # A score of a loss is the higher the better, as accuracy is
    return METRICS.get(metric, 1)


def list_rungs(first: int, reduce: int, rounds: int, eval_every: int = 1) -> list[int]:
    """Return the rounds at which settings are compared: first, first · reduce, … and `rounds`, each
    a round with an evaluation."""
    found = []
    at = first
    while (rung := -(-at // eval_every) * eval_every) < rounds:
        found.append(rung)
        at *= reduce
    return [*dict.fromkeys(found), rounds]


def count_settings(settings: int, steps: int, reduce: int) -> list[int]:
    """Return how many settings are trained to each of the rungs: one of `reduce` goes on, at least
    one."""
    found = [settings]
    while len(found) < steps:
        found.append(max(1, found[-1] // reduce))
    return found


def count_cost(settings: int, steps: Sequence[int], reduce: int) -> int:
    """Return the rounds of all settings together, with one seed."""
    lengths = np.diff([0, *steps])
    return int(np.dot(count_settings(settings, len(steps), reduce), lengths))


def count_affordable(settings: int, steps: Sequence[int], reduce: int, budget: float) -> int:
    """Return the most settings, up to `settings`, whose rounds are within the budget; 0 if even one
    is not."""
    return max(
        (n for n in range(1, settings + 1) if count_cost(n, steps, reduce) <= budget), default=0
    )


def draw_settings(settings: int, number: int) -> list[int]:
    """Choose the settings that are tried, in their order: all, or this number of them at random,
    the same ones each time."""
    if number >= settings:
        return list(range(settings))
    return sorted(np.random.default_rng([settings, number]).permutation(settings)[:number].tolist())


def rank_best(scores: Sequence[float | None], sign: int, number: int) -> list[int]:
    """Return the positions of the best scores, best first; earlier ones first among equals. None
    and NaN are the worst."""

    def rank(i: int) -> float:
        score = scores[i]
        return math.inf if score is None or math.isnan(score) else -sign * score

    return sorted(range(len(scores)), key=rank)[:number]
