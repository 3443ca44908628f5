"""The tune command."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cfljax.commands import (
    add_flags_of_sweeps,
    check_workers,
    format_link,
    list_sweep_flags,
    parser_of,
)
from cfljax.errors import SpecError
from cfljax.files import use_compilation_cache

if TYPE_CHECKING:
    from cfljax.config import Spec
    from cfljax.launch.search_plan import SearchPlan
    from cfljax.launch.sweep import SweepOptions
    from cfljax.store import Store


def parser(prog: str = "python -m cfljax.tune") -> argparse.ArgumentParser:
    """Make the parser of the tune command."""
    flags = parser_of("tune", prog)
    flags.add_argument("spec", metavar="SPEC.toml", help="the spec with the settings to try")
    add_flags_of_sweeps(flags)
    budget = "total budget of all methods, in full runs (default: all settings are tried)"
    flags.add_argument("--budget", type=float, metavar="RUNS", help=budget)
    flags.add_argument(
        "--metric",
        default="val_accuracy",
        metavar="NAME",
        help="choose by val_accuracy, val_loss or train_loss",
    )
    then = "then run the best setting of each method on these seeds, for example 0:10"
    flags.add_argument("--then-compare", metavar="SEEDS", help=then)
    flags.add_argument("--rung", type=int, help=argparse.SUPPRESS)
    return flags


def run(flags: argparse.Namespace) -> int:
    """Carry the search out, print what was chosen, and say where the results are."""
    from cfljax.api import default_folder
    from cfljax.config import read_spec
    from cfljax.config.flags import parse_value
    from cfljax.config.grid import read_seeds
    from cfljax.launch.search import WorkerCommand, tune
    from cfljax.launch.search_plan import plan_search
    from cfljax.launch.sweep import SweepOptions
    from cfljax.report.tables import write_comparison
    from cfljax.report.tuning import dry_run, text
    from cfljax.report.write import report
    from cfljax.results.result import Results
    from cfljax.store import Store

    check_workers(flags)
    if flags.budget is not None and not flags.budget > 0:
        raise SpecError(f"--budget {flags.budget:g}: must be more than 0 runs")
    spec = read_spec(flags.spec, flags.set, plugins=flags.plugin, tuned=True)
    plan = plan_search(spec, flags.metric, flags.budget)
    seeds = (
        None
        if flags.then_compare is None
        else read_seeds(parse_value(flags.then_compare, "--then-compare"))
    )
    if flags.dry_run:
        print(dry_run(plan))
        return 0
    if not flags.no_cache:
        use_compilation_cache()
    store = Store(flags.out or default_folder(spec.name))
    options = SweepOptions(flags.keep, flags.quiet)
    if flags.as_worker:
        return _be_worker(flags, spec, plan, store, options, seeds)
    store.write_spec(Path(flags.spec).read_text(encoding="utf-8-sig"))
    command = WorkerCommand(flags.workers, _list_worker_flags(flags, store.folder))
    table, last = tune(spec, plan, store, options, seeds, command)
    print(text(table))
    results = Results(store.folder, sweep=last.describe_sweep())
    if seeds is not None:
        print(f"\n{write_comparison(results)}")
    print(f"\n{spec.name}: results: {store.folder}")
    if not flags.no_report:
        print(f"Report: {format_link(report(results))}")
    failed = sum(record["status"] == "failed" for record in results.records.values())
    if failed:
        print(f"cfljax: {failed} runs failed", file=sys.stderr)
    return 1 if failed else 0


def _be_worker(
    flags: argparse.Namespace,
    spec: Spec,
    plan: SearchPlan,
    store: Store,
    options: SweepOptions,
    seeds: list[int] | None,
) -> int:
    """Work on a rung, or on the comparison after the search, for the process that has started this
    one."""
    from cfljax.launch import workers
    from cfljax.launch.search import make_last_spec, run_climbing_worker
    from cfljax.launch.tuning import start_record

    if flags.rung is not None:
        return run_climbing_worker(
            flags.as_worker, flags.processors, flags.rung, spec, plan, store, options
        )
    return workers.run_worker(
        flags.as_worker,
        flags.processors,
        make_last_spec(spec, plan, start_record(plan, store), seeds),
        store,
        options,
    )


def _list_worker_flags(flags: argparse.Namespace, folder: Path) -> list[str]:
    words = [flags.spec, *list_sweep_flags(flags, folder), "--metric", flags.metric]
    words += [] if flags.budget is None else ["--budget", repr(flags.budget)]
    return words + ([] if flags.then_compare is None else ["--then-compare", flags.then_compare])
