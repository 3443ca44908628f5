"""Run a published number of ours again, for as many rounds as asked, and say whether it is the same
to the last bit.

    CFLJAX_DATA=FOLDER python -m experiments.check "FedGroup Table 3, MNIST-MLP, FG-EDC" --rounds 5

A name is of a sweep in records/ and of a method in it, and perhaps of options in which its runs
differ ("lam 0.2"); the first run of that name unless --seed says another. Another version of JAX or
another kind of machine may round otherwise: then the largest difference is reported."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cfljax.api import one_run
from cfljax.config.gone import without_gone
from cfljax.errors import SpecError
from cfljax.report.configurations import Unit
from cfljax.results.result import Result, Results
from cfljax.store import provenance

RECORDS = Path(__file__).parent / "records"
UNLIKE = ("seconds",)
"""Words in the names of curves that no two runs share."""


def named(records: Path = RECORDS) -> dict[str, list[tuple[set[str], Unit]]]:
    """Return the runs of each sweep and method, in the order of their seeds, each with the options
    that tell it apart."""
    found: dict[str, list[Unit]] = defaultdict(list)
    for folder in sorted(path for path in records.iterdir() if path.is_dir()):
        results = Results(folder)
        for row in results.rows:
            if row["status"] == "done":
                unit = Unit(row["id"], results.records[row["id"]], results.store)
                found[f"{results.sweep.get('name')}, {row['label']}"].append(unit)
    pairs = {name: zip(_told_apart(runs), runs, strict=True) for name, runs in found.items()}
    return {name: sorted(each, key=lambda pair: pair[1].seed) for name, each in pairs.items()}


def chosen(name: str, records: Path = RECORDS) -> list[Unit]:
    """Return the runs that a name means. SpecError, with the nearest names, where there are
    none."""
    every = named(records)
    for begin in sorted(every, key=len, reverse=True):
        wanted = set(name.removeprefix(begin).split(", ")) - {""}
        if name == begin or name.startswith(f"{begin}, "):
            if found := [unit for options, unit in every[begin] if wanted <= options]:
                return found
            options = sorted(set.union(*(options for options, _ in every[begin])))
            raise SpecError(
                f"there is no such run; what tells them apart: {', '.join(options) or 'the seed'}"
            )
    near = difflib.get_close_matches(name, every, 3, 0.3)
    raise SpecError(
        "there is no such number" + (f"; the nearest: {'; '.join(near)}" if near else "")
    )


def _told_apart(runs: list[Unit]) -> Iterator[set[str]]:
    """Yield the options of each run that some other run lacks: `lam 0.2` and `init he`."""
    parts = ("data", "model", "method", "train")
    flat = [
        {(part, key): value for part in parts for key, value in run.record["config"][part].items()}
        for run in runs
    ]
    keys = [
        key
        for key in dict.fromkeys(key for each in flat for key in each)
        if len({str(each.get(key)) for each in flat}) > 1
    ]
    for each in flat:
        yield {
            f"{key} {each[part, key]}" for part, key in keys if each.get((part, key)) is not None
        }


def again(run: Result, rounds: int) -> Result:
    """Run it again for that many rounds, up to the next that it was evaluated in."""
    config = without_gone(run.config)
    table = {
        part: {k: v for k, v in config[part].items() if v is not None}
        for part in ("data", "model", "method", "train")
    }
    seen = run.history["round"]
    table["train"]["rounds"] = int(min(seen[seen >= rounds], default=seen[-1]))
    return one_run(
        table | {"seeds": [run.seed], "method": [table["method"]], "plugins": own_plugins(run)}
    )


def own_plugins(run: Result) -> list[str]:
    """Return the plug-ins of a run: files of this folder, since a record may name any program."""
    here = Path(__file__).parent
    named = [here.parent / name for name in run.config.get("plugins", [])]
    for file in named:
        if file.resolve().parent != here.resolve():
            raise SpecError(f"its plug-in {file} is no file of experiments/, and is not executed")
    return list(map(str, named))


def compared(old: Result, new: Result) -> str:
    """Return what differs between the curves of two runs, in the rounds that both have."""
    rounds = np.intersect1d(old.history["round"], new.history["round"])
    curves = [
        name
        for name in old.history
        if name in new.history and name != "round" and not any(word in name for word in UNLIKE)
    ]
    worst = []
    for name in curves:
        one, other = (
            run.history[name][np.isin(run.history["round"], rounds)] for run in (old, new)
        )
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        apart[np.isnan(one) & np.isnan(other)] = 0.0
        at = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        worst.append((float(np.nan_to_num(apart, nan=np.inf)[at]), name, int(rounds[at])))
    most, same = max(worst), sum(apart == 0 for apart, _, _ in worst)
    said = (
        f"the same to the last bit: {same} of {len(curves)} curves over rounds {rounds[0]} to "
        f"{rounds[-1]}"
    )
    return (
        said
        if most[0] == 0
        else f"{said}; the largest difference is {most[0]:.3g}, of {most[1]} in round {most[2]}"
    )


def main(words: list[str] | None = None, records: Path = RECORDS) -> int:
    """Run the command; 0 where all is the same."""
    flags = argparse.ArgumentParser(
        prog="python -m experiments.check",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    flags.add_argument("name", help="of a published number of ours")
    flags.add_argument("--rounds", type=int, default=5, help="how many rounds are run (default 5)")
    flags.add_argument("--seed", type=int, help="of the run (default: the first)")
    given = flags.parse_args(words)
    try:
        fitting = chosen(given.name, records)
        runs = [run for run in fitting if given.seed in (None, run.seed)]
        if not runs:
            raise SpecError(
                f"--seed {given.seed}: has "
                f"{', '.join(str(seed) for seed in sorted({run.seed for run in fitting}))}"
            )
        old = Result(*runs[0].store.read(runs[0].id))
        found = compared(old, again(old, given.rounds))
    except SpecError as error:
        print(f"{given.name}: {error}", file=sys.stderr)
        return 2
    before, now = (
        _made_by(versions) for versions in (old.record["versions"], provenance()["versions"])
    )
    made = f"made by {before}" if before == now else f"made by {before}, now {now}"
    print(f"{given.name}, seed {old.seed}, {made}: {found}")
    return 1 if "difference" in found else 0


def _made_by(versions: dict[str, str]) -> str:
    return f"cfljax {versions['cfljax']}, JAX {versions['jax']}"


if __name__ == "__main__":
    sys.exit(main())
