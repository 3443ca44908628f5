"""Figure 19: a results folder that an older release wrote, and reports that do not depend on when and in which order.

drills/stores holds a folder per release and beside it the frames that this release's `python -m cfljax.load` printed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "old_store",
    "19",
    "a store written by an older release; report rendered twice and from a shuffled listing",
    "equal numbers, byte-identical output",
    3,
)
STORES = Path(__file__).parent / "stores"


def drill(tally: Tally, count: int, seed: int) -> None:
    """Every old store; `count` reports of each, on copies whose files were made in another order."""
    draw = random.Random(seed)
    with common.workplace() as place:
        for store in sorted(path for path in STORES.iterdir() if path.is_dir()):
            tally.check([f"{store.name}: {p}" for p in _frames(store, place)])
            first = _rendered(_shuffled(store, place / "r", None), place / "report0")
            for number in tally.trials(count):
                folder = _shuffled(store, place / "r", draw if number else None)
                found = _rendered(folder, place / f"report{1 + number}")
                odd = sorted(name for name in first.keys() | found.keys() if first.get(name) != found.get(name))
                tally.check([f"{store.name}: report {number}: {name} differs" for name in odd])
                tally.count("files of a report compared", len(first))


def _frames(store: Path, place: Path) -> list[str]:
    """Differences between what is read now and what the older release read."""
    import pandas as pd

    problems = []
    for name, flag in (("runs", "--csv"), ("history", "--history")):
        out = place / f"{name}.csv"
        _command("load", str(store), flag, str(out))
        old, new = pd.read_csv(STORES / f"{store.name}-{name}.csv"), pd.read_csv(out)
        missing = [column for column in old if column not in new]
        problems += [f"{name}: no column {column}" for column in missing]
        problems += [f"{name}: {c} differs" for c in old if c not in missing and not old[c].equals(new[c])]
    return problems


def _shuffled(store: Path, folder: Path, draw: random.Random | None) -> Path:
    """A copy at the same place, its files made in a random order: that is the order in which many file systems list them."""
    shutil.rmtree(folder, ignore_errors=True)
    files = sorted(path for path in store.rglob("*") if path.is_file())
    if draw is not None:
        draw.shuffle(files)
    for path in files:
        target = folder / path.relative_to(store)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if draw is not None:
            os.utime(target, (draw.randint(1, 10**9),) * 2)
    return folder


def _rendered(folder: Path, out: Path) -> dict[str, bytes]:
    _command("report", str(folder), "--out", str(out))
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def _command(name: str, *flags: str) -> None:
    line = [sys.executable, "-m", f"cfljax.{name}", *flags]
    subprocess.run(line, check=True, capture_output=True, cwd=common.ROOT, env=common.environment())


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
