"""The sweep command."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfljax.commands import (
    accuracy,
    add_flags_of_sweeps,
    as_json,
    check_workers,
    format_link,
    list_sweep_flags,
    parser_of,
    preview,
    warn_of_divergence,
)
from cfljax.errors import SpecError
from cfljax.files import use_compilation_cache
from cfljax.launch.options import OPTIONS
from cfljax.registry.options import Hint, check, list_alternatives, read_hints

if TYPE_CHECKING:
    from cfljax.config import Spec
    from cfljax.devices.mesh import Shape
    from cfljax.launch import Launcher
    from cfljax.launch.sweep import Outcome


def parser(prog: str = "python -m cfljax.sweep") -> argparse.ArgumentParser:
    """Make the parser of the sweep command. `--help` lists the flags in this order."""
    flags = parser_of("sweep", prog)
    flags.add_argument(
        "spec",
        nargs="?",
        metavar="SPEC.toml",
        help="the spec of the sweep (default: the quickstart)",
    )
    add_flags_of_sweeps(flags)
    flags.add_argument(
        "--explain",
        action="store_true",
        help="print how clients would be trained, with predicted costs",
    )
    as_json.add_flag(flags, "sweep", "with --dry-run: ")
    flags.add_argument("--retry-failed", action="store_true", help="run failed runs again")
    target = "report the rounds, bytes and seconds to this accuracy (a fraction), not to FedAvg's"
    flags.add_argument("--target", type=accuracy, metavar="ACCURACY", help=target)
    flags.add_argument(
        "--open", action="store_true", help="open the page, which is updated as runs end"
    )
    flags.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="SINK",
        help="log to jsonl, tensorboard or wandb",
    )
    flags.add_argument(
        "--shard",
        metavar="I/N",
        help="run only part I of N, 0/4 to 3/4, for job arrays on a shared folder",
    )
    flags.add_argument(
        "--launcher",
        default="local",
        metavar="NAME",
        help="where runs are computed (default: local)",
    )
    _add_flags_of_devices(flags)
    _add_flags_of_launchers(flags)
    return flags


def _add_flags_of_devices(flags: argparse.ArgumentParser) -> None:
    """Add the flags of several devices and processes that compute one run."""
    flags.add_argument(
        "--mesh",
        metavar="SHAPE",
        help="use several devices in one process: auto, or for example runs=2,clients=4",
    )
    flags.add_argument(
        "--distributed",
        action="store_true",
        help="share a run with other processes that this command starts",
    )
    flags.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="--distributed: address of process 0, if JAX cannot find it",
    )
    flags.add_argument(
        "--process-id", type=int, metavar="N", help="--distributed: index of this process, from 0"
    )
    flags.add_argument(
        "--num-processes", type=int, metavar="N", help="--distributed: number of processes"
    )


def _add_flags_of_launchers(flags: argparse.ArgumentParser) -> None:
    """Add a flag for each option of a launcher, first those that one launcher has alone."""
    forms: dict[Hint, dict[str, Any]] = {
        int: {"type": int, "metavar": "N"},
        float: {"type": float, "metavar": "N"},
        str: {},
        tuple[str, ...]: {"action": "append", "metavar": "KEY=VALUE"},
    }
    having = _find_launchers()
    for name in sorted(having, key=lambda name: len(having[name])):
        options = OPTIONS[having[name][0]]
        about = options.__dataclass_fields__[name].metadata["help"]
        kind, *_ = list_alternatives(read_hints(options)[name])
        flags.add_argument(
            f"--{name.replace('_', '-')}",
            help=f"--launcher {', '.join(having[name])}: {about}",
            **forms[kind],
        )


def _find_launchers() -> dict[str, list[str]]:
    """Map each option to the launchers that have it."""
    found: dict[str, list[str]] = {}
    for launcher, options in OPTIONS.items():
        for name in options.__dataclass_fields__:
            found.setdefault(name, []).append(launcher)
    return found


def run(flags: argparse.Namespace) -> int:
    """Carry out the sweep, print its table, and say where the results are."""
    from cfljax.api import QUICKSTART, default_folder
    from cfljax.config import read_spec

    _check(flags)
    spec = read_spec(flags.spec or QUICKSTART, flags.set, plugins=flags.plugin)
    launch, chosen = _choose_launcher(flags)
    part = _parse_shard(flags.shard)
    if flags.dry_run:
        preview.dry_run(spec, flags.json)
        if not flags.explain:
            return 0
    if not flags.no_cache:
        use_compilation_cache()
    if flags.explain:
        return preview.explain(spec, flags.workers)
    shape = _take_devices(flags)
    from cfljax.devices import distributed
    from cfljax.launch import workers
    from cfljax.launch.plan_file import choose_mesh
    from cfljax.launch.sweep import SweepOptions, carry_out, follow_leader, run_together
    from cfljax.report.write import LivePage
    from cfljax.sinks.feed import send_finished_runs
    from cfljax.store import Store

    folder = flags.out or default_folder(spec.name)
    options = SweepOptions(flags.keep, flags.quiet, flags.retry_failed, chosen, part, shape)
    if flags.as_worker:
        return workers.run_worker(flags.as_worker, flags.processors, spec, Store(folder), options)
    with run_together(spec, shape):
        if not distributed.leads():
            return follow_leader(spec)
        store = Store(folder)
        choose_mesh(store, store.read_plan() or {}, shape)
        worker_flags = _list_worker_flags(flags, folder)
        store.write_spec(_write_flags_and_spec(flags))
        command = shlex.join(["cfljax", "sweep", *worker_flags])
        store.log({"event": "start", "command": command, "time": time.time()})
        if not flags.no_report:
            live = LivePage(folder, spec.describe_sweep(), flags.target, flags.open)
            options = options._replace(changed=live.write)
            if sys.stdout.isatty() and not flags.quiet:
                print(f"Report, updated during the runs: {format_link(live.path)}")
        logged = spec.describe_sweep() | {"named": spec.labels_by_id()}
        with send_finished_runs(folder, flags.log, logged, _print_error):
            if shape is not None:
                outcome = carry_out(spec, store, options)
            else:
                outcome = launch(spec, store, options, flags.workers, worker_flags)
    _print_results(flags, spec, folder, outcome)
    return 1 if outcome.failed else 0


def _print_error(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr)


def _print_results(
    flags: argparse.Namespace, spec: Spec, folder: str | Path, outcome: Outcome
) -> None:
    """Print the table, how the runs ended, and where the results are; write the report."""
    from cfljax.report.tables import write_comparison
    from cfljax.report.write import report
    from cfljax.results.result import Results

    results = Results(folder, target=flags.target, sweep=spec.describe_sweep())
    print(write_comparison(results))
    computed = "nothing to do"
    if outcome.computed:
        computed = f"{outcome.computed} run{'s' if outcome.computed != 1 else ''} computed"
    ended = f"{outcome.done} done, {outcome.diverged} diverged, {outcome.failed} failed"
    print(f"\n{spec.name}: {computed}; {ended}. Results: {folder}")
    if not flags.no_report:
        print(f"Report: {format_link(report(results))}")
    warn_of_divergence(results.records.values())
    for record in results.records.values():
        if record["status"] == "failed":
            _print_error(f"failed: {record['label']} (seed {record['seed']}): {record['error']}")


def _check(flags: argparse.Namespace) -> None:
    """Refuse what no sweep can use before its folder is made."""
    from cfljax.sinks import SINKS

    check_workers(flags)
    if not (
        flags.as_worker is flags.processors is None
        or _is_worker(flags.as_worker or "", flags.processors or "")
    ):
        raise SpecError(
            "--as-worker, --processors: are for the workers that --workers N starts; give that"
        )
    _check_unused(flags)
    for name in flags.log:
        SINKS.entry(name, "--log")


def _check_unused(flags: argparse.Namespace) -> None:
    """Refuse flags that have no effect with --dry-run or --explain, which train nothing, and --json
    without the first."""
    if flags.json and (flags.explain or not flags.dry_run):
        raise SpecError("--json: is for --dry-run alone; cfljax report --json has the results")
    if not (flags.dry_run or flags.explain):
        return
    asked = "--dry-run" if flags.dry_run else "--explain"
    for flag, given, why in (
        (
            f"--target {flags.target}",
            flags.target is not None,
            "nothing is trained that could reach an accuracy",
        ),
        ("--distributed", flags.distributed, "one process says what would be done"),
        (f"--mesh {flags.mesh}", flags.mesh is not None, "says nothing of devices"),
    ):
        if given:
            raise SpecError(f"{flag} with {asked}: {why}; leave it out")


def _is_worker(share: str, processors: str) -> bool:
    """Return whether these are what a worker is started with: `k/n`, and numbers of processors."""
    return (
        _parse_share(share) is not None
        and re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", processors) is not None
    )


def _parse_share(written: str) -> tuple[int, int] | None:
    """Parse `k/n`; None if it has another form."""
    at = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", written)
    return (int(at[1]), int(at[2])) if at is not None and int(at[1]) < int(at[2]) else None


def _take_devices(flags: argparse.Namespace) -> Shape | None:
    """Take the devices, and join the processes, that the flags ask for; the mesh, None where they
    ask for none."""
    ids = (flags.coordinator, flags.process_id, flags.num_processes)
    if flags.mesh is None and not flags.distributed:
        if any(value is not None for value in ids):
            raise SpecError(
                "--coordinator, --process-id and --num-processes are for --distributed; give "
                "that, too"
            )
        return None
    if flags.launcher != "local" or flags.workers or flags.as_worker:
        raise SpecError(
            "--mesh and --distributed: are for one process on each machine, without "
            "--launcher and --workers"
        )
    from cfljax.devices import distributed, mesh
    from cfljax.devices.cores import use_cores
    from cfljax.devices.machine import describe_machine

    shape = mesh.parse_mesh("auto" if flags.mesh is None else flags.mesh)
    devices = max(1, shape.runs * shape.clients // (flags.num_processes or 1))
    if devices > mesh.MAX_DEVICES:
        raise SpecError(
            f"--mesh {shape}: {devices:,} devices in a process; at most {mesh.MAX_DEVICES:,}"
        )
    use_cores(None if shape == mesh.AUTO else devices)
    if flags.distributed:
        distributed.connect(*ids)
    else:
        describe_machine(shape).shape()
    return shape


def _parse_shard(written: str | None) -> tuple[int, int] | None:
    """Return the part of the runs that `--shard` asks for; None for all."""
    part = None if written is None else _parse_share(written)
    if written is not None and part is None:
        raise SpecError(f"--shard {written[:30]}: must be I/N with I from 0 to N - 1, as in 0/4")
    return part


def _choose_launcher(flags: argparse.Namespace) -> tuple[Launcher, object]:
    """Return the launcher that the flags name, and its checked options."""
    from cfljax.launch import LAUNCHERS

    given = {name: getattr(flags, name) for name in _find_launchers()}
    table = {name: value for name, value in given.items() if value is not None}
    entry = LAUNCHERS.entry(flags.launcher, "--launcher")
    return entry.make, check(entry.options, table, f"--launcher {flags.launcher}")


def _write_flags_and_spec(flags: argparse.Namespace) -> str:
    """Return the text of the spec, with the flags that change it as comments above."""
    from cfljax.api import QUICKSTART

    sets = "".join(f"# --set {' '.join(flag.split())}\n" for flag in flags.set)
    sets += "".join(f"# --plugin {' '.join(flag.split())}\n" for flag in flags.plugin)
    written = Path(flags.spec or QUICKSTART).read_text(encoding="utf-8-sig")
    # A spec that is the copy of a results folder has such comments of its first start
    earlier = r"\A(# --(set|plugin) .*\n)+"
    return sets + re.sub(earlier, "", written)


def _list_worker_flags(flags: argparse.Namespace, folder: str | Path) -> list[str]:
    """List the command line that another process needs to work on the same sweep."""
    shard = [] if flags.shard is None else ["--shard", flags.shard]
    return [*filter(None, [flags.spec]), *list_sweep_flags(flags, folder), *shard]
