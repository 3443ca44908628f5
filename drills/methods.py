"""Figures 9, 10, 11, 12 and 16, for every method of the registry; a method's programs are compiled once for all of them.

    python -m drills.methods --methods fedavg,ifca --seed 1

writes again.json, chunks.json, diverging.json, broken_client.json and alone.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURES = {
    "again": Figure("again", "9", "the same run in a new process", "bit-identical on CPU", 1),
    "chunks": Figure("chunks", "10", "chunks of 1, 2, 5, 10 rounds with save and load between", "bit-identical", 1),
    "diverging": Figure(
        "diverging",
        "11",
        "one diverging run (lr = NaN or 1e30) in a batch of 8",
        "the other seven bit-identical to a batch without it; `diverged_at` recorded",
        1,
    ),
    "broken_client": Figure(
        "broken_client",
        "12",
        "a client whose data or update is NaN or Inf",
        "only the clusters that used it; counted in the record",
        1,
    ),
    "alone": Figure(
        "alone",
        "16",
        "alone against batched, side by side against in sequence",
        "in sequence bit-identical on CPU where it is the same program; else labels equal, weights within 1e-5",
        1,
    ),
}
ROUNDS = 10
WIDE = 8


class Stop(Exception):
    """After a checkpoint has been saved."""


def in_parts(name: str, rounds: int, seed: int, folder: Path) -> object:
    """The run in chunks, each in a call of its own that begins with what the one before has written to the disk."""
    from cfljax.launch.checkpoints import from_arrays, to_arrays
    from cfljax.store import Store
    from drills.rounds import ten_rounds

    store = Store(folder)

    def keep(make: object) -> None:
        store.save_checkpoint(name, *to_arrays(make()))
        raise Stop

    resume = None
    while True:
        try:
            return ten_rounds(name, seeds=[seed], chunk_rounds=rounds, resume=resume, checkpoint=keep)[0]
        except Stop:
            resume = from_arrays(*store.load_checkpoint(name))


def chunks(tally: Tally, name: str, seed: int, whole: Any) -> None:
    """Figure 10."""
    from tests.play import unlike

    with tempfile.TemporaryDirectory(prefix="cfljax-drill-") as place:
        for rounds in (1, 2, 5, 10):
            other = in_parts(name, rounds, seed, Path(place))
            tally.check([f"{name}, chunks of {rounds}: {field}" for field in unlike(whole, other)])


def diverging(tally: Tally, name: str, seed: int) -> None:
    """Figure 11."""
    from drills.rounds import ten_rounds
    from tests.play import unlike

    seeds = [seed + i for i in range(WIDE)]
    good = ten_rounds(name, hypers=({},) * WIDE, seeds=seeds)
    for lr in (float("nan"), 1e30):
        at = (seed + 3) % WIDE
        mixed = ten_rounds(name, hypers=tuple({"lr": lr} if i == at else {} for i in range(WIDE)), seeds=seeds)
        problems = [f"run {i}: {field}" for i in range(WIDE) if i != at for field in unlike(good[i], mixed[i])]
        problems += [] if mixed[at].diverged_at >= 0 else ["diverged_at is not recorded"]
        tally.check([f"{name}, lr {lr}: {p}" for p in problems])


def broken_client(tally: Tally, name: str, seed: int) -> None:
    """Figure 12. `local` sends no updates that could be broken on their way."""
    from cfljax.local.send import Sending, attackers, exact_share
    from drills.rounds import ten_rounds
    from tests import play, toy

    federation = play.nine_clients()
    for value in (np.nan, np.inf):
        client = (seed + (0 if np.isnan(value) else 4)) % 9
        (output,) = ten_rounds(name, federation=toy.broken(federation, client, value=value), seeds=[seed])
        tally.check([f"{name}, data of client {client} {value}: {p}" for p in _spread(output, client)])
    for value in (np.nan, np.inf) if name != "local" else ():
        sending, numbers = Sending(attack="sign_flip", seed=seed), {"attack.share": 1 / 9, "attack.factor": value}
        (client,) = np.flatnonzero(attackers(sending, exact_share(sending, numbers, federation), federation))
        (output,) = ten_rounds(name, hypers=(numbers,), seeds=[seed], work={"sending": sending})
        tally.check([f"{name}, updates of client {client} {value}: {p}" for p in _spread(output, client)])


def _spread(output: Any, client: int) -> list[str]:
    """What a broken client has done to others, or that nobody has noticed it."""
    labels = output.labels[-1]
    others = np.unique(labels[(np.arange(9) != client) & (labels >= 0)])
    problems = [] if output.diverged_at == -1 else ["the run counts as diverged"]
    problems += [] if output.history["nonfinite"][-1] > 0 else ["not counted"]
    problems += [] if np.isfinite(output.models[others]).all() else ["models of others are not finite"]
    return problems + ([] if np.isfinite(output.history["accuracy"]).all() else ["accuracy is not finite"])


def alone(tally: Tally, name: str, seed: int, whole: Any) -> None:
    """Figure 16, without `jax.disable_jit` (see eager.py)."""
    from drills.rounds import ten_rounds

    batch = ten_rounds(name, hypers=({},) * WIDE, seeds=[seed + i for i in range(WIDE)])
    numbers, seeds = ({},) * 3, [seed, seed + 1, seed + 2]
    side_by_side = ten_rounds(name, numbers, seeds, work={"sequential": False})
    for what, other in (("in a batch of 8", batch[0]), ("side by side", side_by_side[0])):
        rounds = slice(0, 4)  # labels are promised for three rounds: near-ties may flip, and training amplifies them
        problems = [] if np.array_equal(whole.labels[rounds], other.labels[rounds]) else ["other labels in three rounds"]
        apart = float(np.max(np.abs(whole.models - other.models), initial=0))
        same = np.array_equal(whole.labels, other.labels)
        tally.most(f"{what}: weights apart", apart if same else 0.0)
        tally.count(f"{what}: the same bits" if apart == 0 else f"{what}: other bits")
        problems += [f"weights {apart:.2g} apart"] if same and apart > 1e-5 else []
        gap = float(np.max(np.abs(whole.history["accuracy"] - other.history["accuracy"])))
        tally.most(f"{what}: accuracy apart", gap)
        tally.check([f"{name}, {what}: {p}" for p in problems])


def digest(output: Any) -> str:
    """A checksum of all bits of an output but its timings."""
    from tests.play import fields

    total = hashlib.sha256()
    for name, value in sorted(fields(output).items()):
        total.update(f"{name}{value.dtype}{value.shape}".encode() + value.tobytes())
    return total.hexdigest()


def again(tally: Tally, found: dict[str, str], seed: int) -> None:
    """Figure 9: all of them once more, in a new process."""
    command = [sys.executable, "-m", "drills.methods", "--digests", "--methods", ",".join(found), "--seed", str(seed)]
    own = os.environ | {common.FRESH: "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=common.ROOT, check=True, env=own)
    for name, other in json.loads(done.stdout.strip().splitlines()[-1]).items():
        tally.check(None if other == found[name] else f"{name}: other bits in a new process")


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    from cfljax.methods import METHODS
    from drills.rounds import ten_rounds

    made = argparse.ArgumentParser("python -m drills.methods", description=__doc__)
    made.add_argument("--methods", default=",".join(METHODS), help="names, divided by commas")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--digests", action="store_true", help="print the digests of the runs and nothing else")
    made.add_argument("--add", action="store_true", help="add to the figures that are there")
    made.add_argument("--skip-again", action="store_true", help="leave out figure 9")
    made.add_argument("--json", type=Path, default=common.RESULTS, help="the folder that the figures go to")
    flags = made.parse_args(arguments)
    names = flags.methods.split(",")
    if flags.digests:
        print(json.dumps({name: digest(ten_rounds(name, seeds=[flags.seed])[0]) for name in names}))
        return 0
    tallies, begin, digests = {figure: Tally() for figure in FIGURES}, time.perf_counter(), {}
    for name in names:
        (whole,) = ten_rounds(name, seeds=[flags.seed])
        digests[name] = digest(whole)
        for figure, drill in (("chunks", chunks), ("diverging", diverging), ("broken_client", broken_client), ("alone", alone)):
            try:
                drill(tallies[figure], name, flags.seed, *([whole] if figure in ("chunks", "alone") else []))
            except Exception as error:
                tallies[figure].check(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        print(name, round(time.perf_counter() - begin), "s", flush=True)
        if not flags.skip_again:
            again(tallies["again"], {name: digests[name]}, flags.seed)
        for figure in FIGURES:
            if tallies[figure].tried:
                line = f"python -m drills.methods --methods {flags.methods} --seed {flags.seed}"
                common.write(FIGURES[figure], tallies[figure], line, flags.json / f"{figure}.json", flags.add, begin)
        tallies, begin, flags.add = {figure: Tally() for figure in FIGURES}, time.perf_counter(), True
    return 0


if __name__ == "__main__":
    sys.exit(main())
