"""cfljax beside other simulators: the same clients, samples, schedule and first models, in one run
on one machine.

    python -m benchmarks.compare --workloads W1,W2 --peers torch,fedjax --rounds 12 --json FILE

FILE is a list of {workload, system, median_s, min_s, max_s, compile_s, peak_rss_mib, accuracy,
about}: seconds per round, of turns of one round, or of a few where rounds are short.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.measure import System, SystemFailed, by_turns, row, timed, write_rows
from benchmarks.setup_peers import PEERS, NotInstalled, cache_folder, ensure, peers_of
from benchmarks.workloads import WORKLOADS

HERE = Path(__file__).parent
WARM_UP = 2
"""Turns before the clock counts."""
COOL_DOWN = 1
"""A turn after it: cfljax's engine evaluates in a run's last round."""
NEWEST_FEDJAX = {"W1": 0.36 / 0.125, "W2": 0.75 / 0.25, "W4": 2.8 / 2.1}
"""How much faster FedJAX's newest source was than its release, when both were measured side by side
(2 cores, JAX 0.12)."""


def ask(what: str, given: dict[str, Any], folder: Path) -> Any:
    """What `benchmarks.judge` finds, in a process of its own."""
    out = folder / f"{what}.json"
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.judge", what, json.dumps(given), str(out)],
        cwd=HERE.parent,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(
            f"benchmarks.judge {what}: "
            f"{ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else 'failed'}"
        )
    return json.loads(out.read_text())


def plans(workload: str, given: argparse.Namespace) -> dict[str, str | None]:
    """cfljax in the forms that are measured, each with its execution plan as JSON; None: its own
    choice."""
    return {"cfljax": given.plan} | {
        name: json.dumps(plan) for name, plan in WORKLOADS[workload].also.items()
    }


def start(
    name: str, workload: str, prepared: dict[str, Any], folder: Path, given: argparse.Namespace
) -> System:
    """A system, loaded, compiled and waiting for its turn."""
    shared = folder / f"{workload}.npz"
    if name in plans(workload, given):
        command = [sys.executable, str(HERE / "peers" / "cfljax_system.py"), "--workload", workload]
        command += ["--data", prepared["place"]] if prepared["place"] else []
        plan = plans(workload, given)[name]
        command += ["--plan", plan] if plan else []
        # a cache of its own: nothing that was compiled, or measured on a busy machine, before
        return System(
            name, command, shared, folder, {"CFLJAX_CACHE": str(folder / f"cache-{name}")}
        )
    python = ensure(name, given.cache)
    return System(
        name,
        [str(python), str(HERE / "peers" / PEERS[name].program), *PEERS[name].flags],
        shared,
        folder,
    )


def measure(workload: str, given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The rows of one workload: systems, then the floor."""
    turns, turn = WARM_UP + given.rounds + COOL_DOWN, given.turn or WORKLOADS[workload].turn
    prepared = ask(
        "prepare",
        {"workload": workload, "rounds": turns * turn, "turn": turn, "folder": str(folder)},
        folder,
    )
    say(f"{workload}: {WORKLOADS[workload].about}; data: {prepared['data']}")
    peak = ask("peaks", given.peaks, folder)
    done, why = {}, {}
    ours = plans(workload, given)
    together = [*ours, *(name for name in given.peers if not PEERS[name].alone)]
    for group in [together, *([name] for name in given.peers if PEERS[name].alone)]:
        systems = []
        for name in group:
            try:
                systems.append(start(name, workload, prepared, folder, given))
                say(f"  {name}: ready")
            except (NotInstalled, SystemFailed) as error:
                why[name] = str(error)
        why |= by_turns(systems, turns)
        done |= {system.name: system for system in systems if system.name not in why}
    again = ask("peaks", given.peaks, folder)
    peak = {
        key: max(value, again[key]) if isinstance(value, float) else value
        for key, value in peak.items()
    }
    files = {name: str(system.models_file) for name, system in done.items()}
    accuracy = ask(
        "accuracies", {"workload": workload, "files": files, "place": prepared["place"]}, folder
    )
    counted = prepared["work"][WARM_UP * turn : (WARM_UP + given.rounds) * turn]
    about = {"data": prepared["data"], "turns": given.rounds, "rounds_per_turn": turn}
    rows = []
    for name in [*ours, *given.peers]:
        if name in why:
            say(f"  {name}: not measured: {why[name]}")
            rows.append(row(workload, name, about | {"reason": why[name]}))
        else:
            rows.append(_row(workload, done[name], accuracy[name], about))
    return [*rows, _floor(workload, counted, peak, about)]


def _row(workload: str, system: System, accuracy: float, about: dict[str, Any]) -> dict[str, Any]:
    facts = dict(system.facts)
    seconds = system.seconds[WARM_UP : len(system.seconds) - COOL_DOWN]
    if system.name == "fedjax" and workload in NEWEST_FEDJAX:
        times = round(NEWEST_FEDJAX[workload], 2)
        facts["newest_source"] = {
            "times_faster_than_release": times,
            "measured": "once, not in this run",
        }
    figures = {key: facts.pop(key) for key in ("compile_s", "peak_rss_mib")}
    return timed(workload, system.name, seconds, about | facts, accuracy=accuracy, **figures)


def _floor(
    workload: str, counted: list[dict[str, float]], peak: dict[str, Any], about: dict[str, Any]
) -> dict[str, Any]:
    """The real operations of a round, in the mean of each turn, at the machine's measured peak."""
    operations, turn = [one["operations"] for one in counted], about["rounds_per_turn"]
    seconds = [
        sum(operations[at : at + turn]) / turn / peak["flops"]
        for at in range(0, len(operations), turn)
    ]
    return timed(workload, "floor", seconds, about | {"machine": peak, "work": counted})


def agree(rows: list[dict[str, Any]], workload: str) -> bool:
    """Whether the systems' accuracies lie within the workload's tolerance; says so."""
    found = {
        r["system"]: r["accuracy"]
        for r in rows
        if r["workload"] == workload and r["accuracy"] is not None
    }
    tolerance = WORKLOADS[workload].tolerance
    spread = max(found.values()) - min(found.values()) if found else 0.0
    fine = spread <= tolerance
    each = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
    say(
        f"  accuracy after the same rounds: {each}: {'agree' if fine else 'DO NOT AGREE'} "
        f"within {tolerance}"
    )
    return fine


def say(text: str) -> None:
    print(text, flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workloads",
        type=lambda text: text.split(","),
        default=["W1", "W2"],
        help="comma-separated; W1 to W6",
    )
    parser.add_argument(
        "--peers",
        type=peers_of,
        default=["torch", "fedjax"],
        help=f"of {', '.join(PEERS)}; installed if need be",
    )
    parser.add_argument("--rounds", type=int, default=12, help="turns that are timed (%(default)s)")
    parser.add_argument(
        "--turn",
        type=int,
        help="rounds in a turn; default: 8 of W1 and W2, whose rounds are short, else 1",
    )
    parser.add_argument("--json", type=Path, help="where the rows go")
    parser.add_argument(
        "--plan",
        help="execution plan of cfljax, as JSON: '\"auto\"' or '{\"lanes\": 4}'; default: its own "
        "choice",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_folder(),
        help="folder of the peers' environments (%(default)s)",
    )
    given = parser.parse_args(arguments)
    for name in given.workloads:
        if name not in WORKLOADS:
            parser.error(f'"{name}": unknown workload; known: {", ".join(WORKLOADS)}')
    for flag, number in (("rounds", given.rounds), ("turn", given.turn)):
        if number is not None and number < 1:
            parser.error(f"--{flag} {number}: must be at least 1")
    given.peaks = (
        {"size": 256, "copied": 1 << 16, "seconds": 0.1} if given.workloads == ["toy"] else {}
    )
    return given


def main(arguments: list[str] | None = None) -> int:
    given, rows, fine = parse(arguments), [], True
    for workload in given.workloads:
        with tempfile.TemporaryDirectory(prefix="cfljax-compare-") as folder:
            rows += measure(workload, given, Path(folder))
        fine &= agree(rows, workload)
        write_rows(rows, given.json)
    print(report.table(rows))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
