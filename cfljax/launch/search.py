"""A search for the best setting of each method: settings climb from rung to rung, and the better
part goes on. `tune.json` in the folder says what each has scored; a search that is started again
goes on from it and from the runs' checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cfljax.config import Run, Spec
from cfljax.devices.machine import Machine
from cfljax.errors import SpecError
from cfljax.experiment import batching
from cfljax.experiment.widths import batch_limit
from cfljax.launch import tuning, workers
from cfljax.launch.batch import OnProgress, Unit
from cfljax.launch.progress import Progress
from cfljax.launch.rung import Climber
from cfljax.launch.search_plan import Plan, Setting
from cfljax.launch.sweep import Options, carry_out, format_name, format_result, lay_down
from cfljax.registry.options import Table
from cfljax.store import Store
from cfljax.store.units import write_search


class Hands(NamedTuple):
    """The processes of this machine that carry a search out."""

    workers: int | None  # How many; None: as many as suit
    # The command line of `tune` that another process needs to work on the same search
    arguments: list[str]


def tune(
    spec: Spec,
    plan: Plan,
    store: Store,
    options: Options,
    seeds: Iterable[int] | None = None,
    hands: Hands | None = None,
) -> tuple[Table, Spec]:
    """Carry a search out, then compare the best on `seeds`. Return (its record, the plan's spec
    now). `hands` None: no others."""
    if seeds is not None:
        tuning.check_seeds(plan, seeds)
    table = _search(spec, plan, store, options, hands)
    last = make_last_spec(spec, plan, table, seeds)
    if hands is None:
        carry_out(last, store, options)
    else:
        workers.carry_out_by_processes(last, store, options, hands.workers, hands.arguments, "tune")
    return table, last


def make_last_spec(spec: Spec, plan: Plan, table: Table, seeds: Iterable[int] | None) -> Spec:
    """Return the runs that a search ends with: the best settings on other seeds; without seeds, all
    that came to the end."""
    if seeds is None:
        return tuning.make_final_spec(spec, plan, table)
    best = tuning.make_comparison(spec, plan, table, seeds)
    if not best.runs():
        raise SpecError(
            "no setting reached its last round with a finite score, so there is nothing to compare"
        )
    return best


def _search(spec: Spec, plan: Plan, store: Store, options: Options, hands: Hands | None) -> Table:
    runs = _all_runs(plan)
    with store.claim("tune", wait=True):
        table = tuning.start_record(plan, store)
        crew = None if hands is None else workers.choose_crew(store, len(runs), hands.workers)
        threads = None if crew is None else crew.threads
        if not tuning.count_rounds_left(plan, table):
            return table
        _, machine = lay_down(tuning.replace_runs(spec, runs), store, options, threads=threads)
        write_search(store, table)
        lines = 1 if crew is None else crew.size
        with Progress(
            tuning.count_rounds_left(plan, table), len(runs), options.quiet, lines=lines
        ) as progress:
            for message in plan.warnings:
                progress.say(f"cfljax: {message}")
            climber = _climber(plan, store, options, machine, progress)
            for at in range(len(plan.steps)):
                todo = _todo(plan, table, at)
                if todo and crew is not None and hands is not None:
                    some = crew._replace(size=min(crew.size, len(_runs_of(todo))))
                    workers.watch(
                        [*hands.arguments, "--rung", str(at)], some, progress, plan.mark, "tune"
                    )
                elif todo:
                    climber.climb(_runs_of(todo), plan.steps[at])
                _note(plan, table, at, todo, climber)
    return table


def be_climber(
    share: str, processors: str, at: int, spec: Spec, plan: Plan, store: Store, options: Options
) -> int:
    """Train runs up to rung `at` as worker `k/n`, beside the others."""
    number, count = map(int, share.split("/"))

    def do(progress: Progress) -> None:
        table = tuning.start_record(plan, store)
        _, machine = lay_down(tuning.replace_runs(spec, _all_runs(plan)), store, options)
        climber = _climber(plan, store, options, machine, progress)
        order = functools.partial(workers.order_batches, number=number, count=count)
        climber.climb(_runs_of(_todo(plan, table, at)), plan.steps[at], order)

    return workers.as_worker(do, processors, plan.mark)


# Settings that are to be trained up to a rung, with their tables in the record
Todo = list[tuple[Setting, Table]]


def _all_runs(plan: Plan) -> list[Run]:
    return _distinct(setting for group in plan.groups for setting in group.settings)


def _runs_of(todo: Todo) -> list[Run]:
    return _distinct(setting for setting, _ in todo)


def _distinct(settings: Iterable[Setting]) -> list[Run]:
    return list({run.id: run for setting in settings for run in setting.runs}.values())


def _climber(
    plan: Plan, store: Store, options: Options, machine: Machine, progress: Progress
) -> Climber:
    limit = functools.partial(batch_limit, machine=machine)
    return Climber(
        store, machine, options.keep, plan.metric, limit, _reporter(progress), _teller(progress)
    )


def _todo(plan: Plan, table: Table, at: int) -> Todo:
    pairs = zip(plan.groups, table["groups"], strict=True)
    every = (
        (group.settings[i], each["settings"][i])
        for group, each in pairs
        for i in tuning.select_climbing(each, at, plan)
    )
    return [(setting, written) for setting, written in every if len(written["scores"]) <= at]


def _note(plan: Plan, table: Table, at: int, todo: Todo, climber: Climber) -> None:
    """Store the scores at a rung, and remove the checkpoints of runs that do not go on."""
    until = plan.steps[at]
    store = climber.store
    for setting, written in todo:
        curves = [climber.curve(run, until) for run in setting.runs]
        written.update(
            tuning.average_curves(curves)
            | {"scores": [*written["scores"], tuning.average_scores(curves, until)]}
        )
    if todo:
        write_search(store, table)
    if at + 1 == len(plan.steps):
        return
    pairs = zip(plan.groups, table["groups"], strict=True)
    on = _distinct(
        group.settings[i]
        for group, written in pairs
        for i in tuning.select_climbing(written, at + 1, plan)
    )
    for name in {run.id for run in _all_runs(plan)} - {run.id for run in on}:
        store.remove_checkpoint(name)


def _reporter(progress: Progress) -> Callable[[batching.Batch], OnProgress]:
    def begin(batch: batching.Batch) -> OnProgress:
        progress.start(format_name(batch), len(batch.runs) * batch.first.train.rounds)
        shown: list[int] = []

        def report(done: int, accuracy: float | None) -> None:
            progress.update((done - shown[-1]) * len(batch.runs) if shown else 0, accuracy)
            shown.append(done)

        return report

    return begin


def _teller(progress: Progress) -> Callable[[Unit], None]:
    def tell(unit: Unit) -> None:
        record = unit[0]
        progress.finish(record["status"], format_result(record))
        if record["status"] == "failed":
            progress.say(
                f"cfljax: {record['label']} (seed {record['seed']}) failed: {record['error']}"
            )

    return tell
