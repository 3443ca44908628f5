"""Figure 1: SIGKILL at any moment, then the same command again."""

from __future__ import annotations

import random
import shutil
import sys
import time
import warnings
from pathlib import Path

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "kill",
    "1",
    "SIGKILL at a random moment (set-up, compiling, between and inside writes), then start again",
    "all results equal the uninterrupted sweep's, bit for bit; no finished unit is redone; "
    "at most one chunk is lost",
    50,
)
LONG = ("--set", "train.rounds=200", "--set", "train.eval_every=2")
WAYS = ("at any time", "inside a write", "just after a unit") * 3 + ("while compiling",)


def drill(tally: Tally, count: int, seed: int) -> None:
    """Kills, each in a folder of its own, each followed by one or two more starts."""
    draw = random.Random(seed)
    with common.workplace() as place:
        whole = {
            workers: common.uninterrupted(place, f"whole{workers}", "--workers", workers, *LONG)
            for workers in "12"
        }
        length = max(seconds for seconds, _ in whole.values())
        for number in tally.trials(count):
            way, workers = WAYS[number % len(WAYS)], draw.choice("12")
            tally.count(way)
            tally.check(_one(tally, place, number, way, workers, draw, length, whole[workers][1]))


def _one(
    tally: Tally,
    place: Path,
    number: int,
    way: str,
    workers: str,
    draw: random.Random,
    length: float,
    wanted: dict,
) -> list[str]:
    folder, flags = place / f"killed{number}", ("--workers", workers, *LONG)
    more = {"CFLJAX_CACHE": str(place / f"cache{number}")} if way == "while compiling" else {}
    for _ in range(draw.choice((1, 1, 2))):
        _kill_one(place, folder, flags, more, way, draw, length)
    before, finished = (
        _checkpoints(folder),
        common.stamps(folder) if (folder / "units").exists() else {},
    )
    whole = {
        name
        for name in finished
        if name.endswith(".json") and _good(folder, name.removesuffix(".json"))
    }
    known = len(common.events(folder))
    code, out, errors = common.sweep(place, folder, *flags, **more)
    problems = [] if code == 0 else [f"resume ended with {code}: {errors.strip()[-200:]}"]
    problems += common.differences(wanted, common.contents(folder))
    after = common.stamps(folder)
    redone = [name for name in whole if after.get(name) != finished[name]]
    problems += [f"{name} was written again" for name in redone] + common.leftovers(folder)
    for event in common.events(folder)[known:]:
        if event["event"] == "begin" and event["from"] < before.get(event["batch"], 0):
            problems.append(
                f"resumed at round {event['from']}, the checkpoint was at {before[event['batch']]}"
            )
    tally.count("finished units found after kills", len(whole))
    tally.count("checkpoints found after kills", len(before))
    shutil.rmtree(folder)
    shutil.rmtree(place / f"cache{number}", ignore_errors=True)
    return [f"kill {number} ({way}, {workers} workers): {p}" for p in problems]


def _kill_one(
    place: Path,
    folder: Path,
    flags: tuple[str, ...],
    more: dict,
    way: str,
    draw: random.Random,
    length: float,
) -> None:
    process = common.start(place, folder, *flags, **more)
    end = time.monotonic() + 3 * length + 30
    units = len(list((folder / "units").glob("*.json"))) if folder.exists() else 0
    if way == "at any time":
        time.sleep(draw.uniform(0, 1.1 * length))
    elif way == "while compiling":
        time.sleep(draw.uniform(0.5, 2.5) * length)
    else:
        wanted = draw.randint(1, 60) if way == "inside a write" else units + draw.randint(1, 2)
        while process.poll() is None and time.monotonic() < end:
            if way == "inside a write":
                wanted -= any(folder.glob("*/.*.cfljax-tmp"))
                if wanted <= 0:
                    break
            elif len(list((folder / "units").glob("*.json"))) >= wanted:
                time.sleep(draw.uniform(0, 0.03))
                break
            time.sleep(0.0005)
    if draw.random() < 0.5:
        common.kill(process)  # with its workers
    else:
        process.kill()  # its workers are left alone and have to notice
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _checkpoints(folder: Path) -> dict[str, int]:
    """Batch → rounds done, of the checkpoints that lie there."""
    from cfljax.store import Store

    if not (folder / "units").exists():
        return {}
    store, found = Store(folder, read_only=True), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in store.checkpoints.glob("*.npz"):
            loaded = store.load_checkpoint(path.stem)
            if loaded is not None:
                found[path.stem] = int(loaded[1]["done"])
    return found


def _good(folder: Path, name: str) -> bool:
    from cfljax.store import Store

    return Store(folder, read_only=True).check(name) is None


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
