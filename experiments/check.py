"""Run a published number of ours again, for as many rounds as asked, and say whether it is the same to the last bit.

    CFLJAX_DATA=FOLDER python -m experiments.check "FedGroup Table 3, MNIST-MLP, FG-EDC" --rounds 5

A name is that of a sweep in records/ and of a method in it, and perhaps what else tells its runs apart ("lam 0.2"); the first run
of that name unless --seed says another. Another version of JAX or another kind of machine may round otherwise: then the largest
difference is told."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import cfljax
from cfljax.api import one_run
from cfljax.errors import SpecError
from cfljax.report.configurations import Unit
from cfljax.results.result import Result, Results

RECORDS = Path(__file__).parent / "records"
UNLIKE = ("seconds",)
"""Words in the names of curves that no two runs share."""


def named(records: Path = RECORDS) -> dict[str, list[Unit]]:
    """Return the runs of each name, in the order of their seeds."""
    found: dict[str, list[Unit]] = defaultdict(list)
    for folder in sorted(path for path in records.iterdir() if path.is_dir()):
        results = Results(folder)
        for row in results.rows:
            if row["status"] == "done":
                found[f"{results.sweep.get('name')}, {row['label']}"].append(
                    Unit(row["id"], results.records[row["id"]], results.store)
                )
    for name, runs in list(found.items()):
        for run, more in zip(runs, _told_apart(runs), strict=True):
            if more:
                found[name + more].append(run)
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in found.items()}


def _told_apart(runs: list[Unit]) -> Iterator[str]:
    """Yield the options of each run that are not those of all: `, lam 0.2, init he`."""
    parts = ("data", "model", "method", "train")
    flat = [{(part, key): value for part in parts for key, value in run.record["config"][part].items()} for run in runs]
    keys = [key for key in dict.fromkeys(key for each in flat for key in each) if len({str(each.get(key)) for each in flat}) > 1]
    for each in flat:
        yield "".join(f", {key} {each[part, key]}" for part, key in keys if each.get((part, key)) is not None)


def again(run: Result, rounds: int) -> Result:
    """Run it again for that many rounds."""
    table = {part: {k: v for k, v in run.config[part].items() if v is not None} for part in ("data", "model", "method", "train")}
    table["train"]["rounds"] = min(rounds, table["train"]["rounds"])
    plugins = [str(RECORDS.parent.parent / path) for path in run.config.get("plugins", [])]
    return one_run(table | {"seeds": [run.seed], "method": [table["method"]], "plugins": plugins})


def compared(old: Result, new: Result) -> str:
    """Return what differs between the curves of two runs, in the rounds that both have."""
    rounds = np.intersect1d(old.history["round"], new.history["round"])
    curves = [name for name in old.history if name in new.history and name != "round" and not any(word in name for word in UNLIKE)]
    worst = []
    for name in curves:
        one, other = (run.history[name][np.isin(run.history["round"], rounds)] for run in (old, new))
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        apart[np.isnan(one) & np.isnan(other)] = 0.0
        at = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        worst.append((float(np.nan_to_num(apart, nan=np.inf)[at]), name, int(rounds[at])))
    most, same = max(worst), sum(apart == 0 for apart, _, _ in worst)
    said = f"the same to the last bit: {same} of {len(curves)} curves over rounds {rounds[0]} to {rounds[-1]}"
    return said if most[0] == 0 else f"{said}; the largest difference is {most[0]:.3g}, of {most[1]} in round {most[2]}"


def main(words: list[str] | None = None, records: Path = RECORDS) -> int:
    """Run the command; 0 where all is the same."""
    flags = argparse.ArgumentParser(
        prog="python -m experiments.check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    flags.add_argument("name", help="of a published number of ours")
    flags.add_argument("--rounds", type=int, default=5, help="how many rounds are run (default 5)")
    flags.add_argument("--seed", type=int, help="of the run (default: the first)")
    given = flags.parse_args(words)
    runs = named(records)
    if given.name not in runs:
        near = difflib.get_close_matches(given.name, runs, 5, 0.3)
        print(f"{given.name}: there is no such number; the nearest are", *near, sep="\n  ", file=sys.stderr)
        return 2
    fitting = [run for run in runs[given.name] if given.seed in (None, run.seed)]
    if not fitting:
        print(f"--seed {given.seed}: has {', '.join(str(run.seed) for run in runs[given.name])}", file=sys.stderr)
        return 2
    old = Result(*fitting[0].store.read(fitting[0].id))
    try:
        found = compared(old, again(old, given.rounds))
    except SpecError as error:
        print(f"{given.name}: {error}", file=sys.stderr)
        return 2
    print(f"{given.name}, seed {old.seed}, of cfljax {old.record['versions']['cfljax']}, now {cfljax.__version__}: {found}")
    return 1 if "difference" in found else 0


if __name__ == "__main__":
    sys.exit(main())
