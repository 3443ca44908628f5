"""A search for the best setting of each method: settings climb from rung to rung, and the better
part goes on. `tune.json` in the folder says what each has scored; a search that is started again
goes on from it and from the runs' checkpoints."""

from __future__ import annotations

import functools
from collections import Counter
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
from cfljax.launch.search_plan import SearchPlan, Setting
from cfljax.launch.sweep import SweepOptions, carry_out, format_name, format_result, prepare_batches
from cfljax.registry.options import Table
from cfljax.results.advice import advise_on_search, find_edges
from cfljax.store import Store
from cfljax.store.units import write_search


class WorkerCommand(NamedTuple):
    """The processes of this machine that carry a search out."""

    # How many; None: as many as suit
    workers: int | None
    # The command line of `tune` that another process needs to work on the same search
    arguments: list[str]


def tune(
    spec: Spec,
    plan: SearchPlan,
    store: Store,
    options: SweepOptions,
    seeds: Iterable[int] | None = None,
    command: WorkerCommand | None = None,
) -> tuple[Table, Spec]:
    """Carry a search out, then compare the best settings on other seeds. Return the record of the
    search, and the spec of the runs that it ended with.

    Args:
        spec, plan: what is searched.
        store, options: where its runs are kept, and how.
        seeds: to compare on; None: keep the runs that came to the end.
        command: the workers to start; None: this process computes everything."""
    if seeds is not None:
        tuning.check_seeds(plan, seeds)
    other = None if seeds is None else list(seeds)
    with Progress(quiet=options.quiet) as progress:
        table = _search(spec, plan, store, options, command, progress, len(other or ()))
        last = make_last_spec(spec, plan, table, other)
        if command is None:
            carry_out(last, store, options, shown=progress)
        else:
            workers.carry_out_by_processes(
                last, store, options, command.workers, command.arguments, "tune", progress
            )
    return table, last


def make_last_spec(spec: Spec, plan: SearchPlan, table: Table, seeds: Iterable[int] | None) -> Spec:
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


def _search(
    spec: Spec,
    plan: SearchPlan,
    store: Store,
    options: SweepOptions,
    command: WorkerCommand | None,
    progress: Progress,
    seeds: int,
) -> Table:
    """Let the settings climb from rung to rung, by workers or by this process; return the record.
    `seeds`: how many seeds the best ones are compared on afterwards."""
    runs = _list_all_runs(plan)
    with store.claim("tune", wait=True):
        table = tuning.start_record(plan, store)
        layout = (
            None if command is None else workers.choose_layout(store, len(runs), command.workers)
        )
        threads = None if layout is None else layout.threads
        if not tuning.count_rounds_left(plan, table):
            return table
        batches, machine = prepare_batches(
            tuning.replace_runs(spec, runs), store, options, threads=threads
        )
        width = max(1.0, sum(len(batch.runs) for batch in batches) / max(1, len(batches)))
        write_search(store, table)
        lines = 1 if layout is None else layout.size
        for message in plan.warnings:
            progress.say(f"cfljax: {message}")
        climber = _make_climber(plan, store, options, machine, progress)
        for at in range(len(plan.steps)):
            todo = _list_todo(plan, table, at)
            going = _list_runs(todo)
            if todo:
                works = tuning.list_works(plan, table, seeds, width)
                left: Counter[str] = Counter()
                for run in going:
                    left[run.label] += max(0, plan.steps[at] - climber.count_rounds(run))
                progress.enter(works[at]._replace(rounds=left), works[at + 1 :], lines)
            if todo and layout is not None and command is not None:
                some = layout._replace(size=min(layout.size, len(going)))
                workers.watch_workers(
                    [*command.arguments, "--rung", str(at)], some, progress, plan.mark, "tune"
                )
            elif todo:
                climber.climb(going, plan.steps[at])
            _store_scores(plan, table, at, todo, climber)
    return table


def run_climbing_worker(
    share: str,
    processors: str,
    at: int,
    spec: Spec,
    plan: SearchPlan,
    store: Store,
    options: SweepOptions,
) -> int:
    """Train runs up to rung `at` as worker `k/n`, beside the others."""
    number, count = map(int, share.split("/"))

    def do(progress: Progress) -> None:
        table = tuning.start_record(plan, store)
        _, machine = prepare_batches(
            tuning.replace_runs(spec, _list_all_runs(plan)), store, options
        )
        climber = _make_climber(plan, store, options, machine, progress)
        order = functools.partial(workers.order_batches, number=number, count=count)
        climber.climb(_list_runs(_list_todo(plan, table, at)), plan.steps[at], order)

    return workers.run_as_worker(do, processors, plan.mark)


# Settings that are to be trained up to a rung, with their tables in the record
Todo = list[tuple[Setting, Table]]


def _list_all_runs(plan: SearchPlan) -> list[Run]:
    return _list_distinct_runs(setting for group in plan.groups for setting in group.settings)


def _list_runs(todo: Todo) -> list[Run]:
    return _list_distinct_runs(setting for setting, _ in todo)


def _list_distinct_runs(settings: Iterable[Setting]) -> list[Run]:
    return list({run.id: run for setting in settings for run in setting.runs}.values())


def _make_climber(
    plan: SearchPlan, store: Store, options: SweepOptions, machine: Machine, progress: Progress
) -> Climber:
    """Make the climber of this process."""
    limit = functools.partial(batch_limit, machine=machine)
    return Climber(
        store,
        machine,
        options.keep,
        plan.metric,
        limit,
        _make_reporter(progress),
        _make_ending_reporter(progress),
    )


def _list_todo(plan: SearchPlan, table: Table, at: int) -> Todo:
    """List the settings that must still be trained to a rung."""
    pairs = zip(plan.groups, table["groups"], strict=True)
    every = (
        (group.settings[i], each["settings"][i])
        for group, each in pairs
        for i in tuning.select_climbing(each, at, plan)
    )
    return [(setting, written) for setting, written in every if len(written["scores"]) <= at]


def _store_scores(plan: SearchPlan, table: Table, at: int, todo: Todo, climber: Climber) -> None:
    """Store the scores at a rung, and remove the checkpoints of runs that do not go on."""
    until = plan.steps[at]
    store = climber.store
    for setting, written in todo:
        curves = [climber.read_curve(run, until) for run in setting.runs]
        written.update(
            tuning.average_curves(curves)
            | {"scores": [*written["scores"], tuning.average_scores(curves, until)]}
        )
    if at + 1 == len(plan.steps):
        _add_advice(table)
    if todo:
        write_search(store, table)
    if at + 1 == len(plan.steps):
        return
    pairs = zip(plan.groups, table["groups"], strict=True)
    on = _list_distinct_runs(
        group.settings[i]
        for group, written in pairs
        for i in tuning.select_climbing(written, at + 1, plan)
    )
    for name in {run.id for run in _list_all_runs(plan)} - {run.id for run in on}:
        store.remove_checkpoint(name)


def _add_advice(table: Table) -> None:
    """Add what is worth a look to the record of a search that has ended."""
    for group in table["groups"]:
        group["at_edge"] = [
            {"option": edge.option, "value": edge.value, "end": edge.end}
            for edge in find_edges(group, table)
        ]
    table["worth_a_look"] = advise_on_search(table)


def _make_reporter(progress: Progress) -> Callable[[batching.Batch, int, int], OnProgress]:
    """Make the function that shows that a batch begins, and returns the one that shows its
    rounds."""

    def begin(batch: batching.Batch, shown: int, until: int) -> OnProgress:
        progress.start(format_name(batch), len(batch.runs) * (until - shown), batch.first.label)

        def report(done: int, accuracy: float | None) -> None:
            nonlocal shown
            progress.update((done - shown) * len(batch.runs), accuracy)
            shown = done

        return report

    return begin


def _make_ending_reporter(progress: Progress) -> Callable[[Unit], None]:
    """Make the function that shows how a run has ended."""

    def tell(unit: Unit) -> None:
        record = unit[0]
        progress.finish(record["status"], format_result(record))
        if record["status"] == "failed":
            progress.say(
                f"cfljax: {record['label']} (seed {record['seed']}) failed: {record['error']}"
            )

    return tell
