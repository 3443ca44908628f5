"""Figure 5: damaged records, array files, checkpoints and plans."""

from __future__ import annotations

import random
import shutil
import sys
import time
import warnings
from pathlib import Path

from drills import common
from drills.common import Figure, Tally
from drills.kill import LONG

FIGURE = Figure(
    "corruption",
    "5",
    "truncated, zeroed, bit-flipped record, array file, checkpoint, plan",
    "all detected, set aside with a warning, computed again; one bad file never hides the good ones",
    1000,
)
EVERY = 100
"""After this number of looks, one start of the command on a folder with two damaged files."""


def drill(tally: Tally, count: int, seed: int) -> None:
    """A real sweep's folder, one file of it damaged at a time."""
    draw = random.Random(seed)
    with common.workplace() as place:
        whole = place / "whole"
        _stopped_half_way(place, whole)
        shutil.copytree(whole, place / "half")
        assert common.sweep(place, whole, *LONG)[0] == 0
        wanted = common.contents(whole)
        for number in tally.trials(count):
            tally.check(_look(tally, place, place / "half", draw))
            if number % EVERY == EVERY - 1:
                tally.check(_again(tally, place, whole, wanted, draw))


def _stopped_half_way(place: Path, folder: Path) -> None:
    """Until a unit is finished and another one's checkpoint lies there."""
    process = common.start(place, folder, "--workers", "2", *LONG, "--set", "method=fedavg")
    process.communicate()
    end = time.monotonic() + 120
    process = common.start(place, folder, "--workers", "2", *LONG)
    while time.monotonic() < end and not list((folder / "checkpoints").glob("[!.]*.npz")):
        time.sleep(0.001)
    common.kill(process)
    assert list((folder / "units").glob("*.json")) and list(
        (folder / "checkpoints").glob("[!.]*.npz")
    ), "stopped too late"


def damage(data: bytes, draw: random.Random) -> tuple[str, bytes]:
    """(what was done, the damaged bytes)."""
    kind = draw.choice(
        ("bit", "bit", "bit", "bits", "cut", "zeroed", "garbage", "longer", "swapped")
    )
    broken, size = bytearray(data), len(data)
    at = draw.randrange(size)
    length = draw.randint(1, size - at)
    if kind in ("bit", "bits"):
        for _ in range(1 if kind == "bit" else draw.randint(2, 40)):
            broken[draw.randrange(size)] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del broken[at:]
    elif kind == "zeroed":
        broken[at : at + length] = bytes(length)
    elif kind == "garbage":
        broken[at : at + length] = draw.randbytes(length)
    elif kind == "longer":
        broken += draw.randbytes(draw.randint(1, 100))
    else:
        other = draw.randrange(size)
        broken[at], broken[other] = broken[other], broken[at]
    return kind, bytes(broken)


def _look(tally: Tally, place: Path, half: Path, draw: random.Random) -> list[str]:
    """Damage a file of a copy, and look at the folder as a resume would."""
    from cfljax.store import DamagedWarning, Store

    folder = place / "look"
    shutil.copytree(half, folder)
    files = sorted(
        [*folder.glob("units/*"), *folder.glob("checkpoints/[!.]*.npz"), folder / "plan.json"]
    )
    path = draw.choice(files)
    data = path.read_bytes()
    kind, broken = damage(data, draw)
    if broken == data:
        kind, broken = "cut", data[:-1]
    path.write_bytes(broken)
    good = {p.stem for p in folder.glob("units/*.json")} - {path.stem}
    what = "checkpoint" if path.parent.name == "checkpoints" else path.suffix.removeprefix(".")
    tally.count(f"{'plan' if path.name == 'plan.json' else what}, {kind}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        store = Store(folder)
        done = store.done(verify=True)
        plan = store.read_plan()
        checkpoints = {
            p.stem
            for p in store.checkpoints.glob("*.npz")
            if store.load_checkpoint(p.stem) is not None
        }
    problems = [] if done - {path.stem} == good else [f"{good - done} hidden by it"]
    problems += ["taken for good"] if path.parent.name == "units" and path.stem in done else []
    problems += ["taken for good"] if path.name == "plan.json" and plan is not None else []
    problems += (
        ["taken for good"] if path.parent.name == "checkpoints" and path.stem in checkpoints else []
    )
    problems += ["no warning"] if not any(w.category is DamagedWarning for w in said) else []
    problems += (
        ["not set aside"]
        if path.exists() or not any((folder / "damaged").glob(f"{path.name}*"))
        else []
    )
    shutil.rmtree(folder)
    return [f"{path.name} {kind}: {p}" for p in problems]


def _again(tally: Tally, place: Path, whole: Path, wanted: dict, draw: random.Random) -> list[str]:
    """The command on a finished folder with two damaged files."""
    folder = place / "again"
    shutil.copytree(whole, folder)
    files = draw.sample(sorted([*folder.glob("units/*"), folder / "plan.json"]), 2)
    for path in files:
        data = path.read_bytes()
        broken = damage(data, draw)[1]
        path.write_bytes(broken if broken != data else data[:-1])
    names = {p.stem for p in files if p.parent.name == "units"}
    code, _, errors = common.sweep(place, folder, *LONG)
    tally.count("starts of the command")
    problems = [] if code == 0 else [f"ended with {code}: {errors.strip()[-200:]}"]
    problems += common.differences(wanted, common.contents(folder))
    problems += [] if errors.count("damaged") or not names else ["said nothing"]
    problems += ["a traceback"] if "Traceback" in errors else []
    shutil.rmtree(folder)
    return [f"again after {sorted(p.name for p in files)}: {p}" for p in problems]


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
