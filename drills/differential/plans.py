"""One plan and another: clients one after another on one device, against lanes, Gram matrices, blocks, devices, dealt samples."""

from __future__ import annotations

import copy
from random import Random

import numpy as np

from cfljax.config import read_spec
from cfljax.devices.machine import this_machine
from cfljax.experiment.batching import batches
from cfljax.launch.batch import run_batch
from drills.common import Tally
from drills.differential.specs import NUMBERS, PLAIN_PLAN, Table, variations
from drills.differential.unfit import Unfit

Arrays = dict[str, np.ndarray]
CLOSE, RUNS = 1e-5, 3
"""Weights, absolute where they are below 1, else relative."""
LOOSE = {"discrepancy": 1e-3, "diag": 1e-3, "train_loss": 1e-4, "loss": 1e-4}
NUDGES = (1 + 1e-6, 1 - 1e-6, 1 + 3e-6, 1 - 3e-6)
"""Factors of the learning rate, of the order of what rounding does in some steps. Where they alone change a result, a near-tie has
decided it (who joins which cluster, which numbers top-k keeps), and two plans may decide it differently."""


def problems(table: Table, draw: Random, tally: Tally) -> list[str]:
    """What some runs that share the table's program do not have in common with those of the plain plan."""
    found: list[str] = []
    sketched = bool(table["train"]["plan"].get("stream"))
    for asked in variations(draw, table, RUNS):
        plain = with_train(asked, plan=PLAIN_PLAN)
        one, other = outcome(plain), outcome(asked)
        if isinstance(one, str) and one == other:
            raise Unfit(one)
        if isinstance(one, str) or isinstance(other, str):
            return [f"{named(asked)}: {' / '.join(e if isinstance(e, str) else 'done' for e in (one, other))}"]
        wrong = unlike(one, other, sketched)
        if wrong and sensitive(plain, one):
            tally.count("decided by rounding")
        elif wrong:
            found += [f"{named(asked)}: {line}" for line in wrong]
        elif not one["diverged"]:
            tally.most("weights of two plans", distance(one["models"], other["models"]))
    return found


def named(table: Table) -> str:
    """What tells it from the others of its program."""
    numbers = {name: value for name, value in table["train"].items() if name == "lr" or name in NUMBERS}
    return f"seed {table['seeds'][0]}, {numbers}"


def with_train(table: Table, **options: object) -> Table:
    """The table with these options of training."""
    made = copy.deepcopy(table)
    made["train"] |= options
    return made


def outcome(table: Table) -> Arrays | str:
    """The arrays of the one run of the table, models among them, or how it fails."""
    (run,) = read_spec(table).runs()
    ((record, arrays),) = run_batch(batches([run], 1)[0], this_machine(), "models")
    return str(record["error"]) if record["status"] == "failed" else arrays | {"diverged": np.array(record["status"] == "diverged")}


def unlike(one: Arrays, other: Arrays, sketched: bool = False) -> list[str]:
    """What is not the same to rounding. `sketched`: the discrepancy is known roughly only, where updates are summed in blocks."""
    if one.keys() != other.keys():
        return [f"only one has {sorted(one.keys() ^ other.keys())}"]
    if one["diverged"] or other["diverged"]:
        return [] if one["diverged"] == other["diverged"] else ["one diverges"]
    found = []
    for name in one:
        key = name.partition("/")[2] if name.startswith("history/") else name.partition("/")[0]
        if sketched and key == "discrepancy":
            continue
        apart = distance(one[name], other[name])
        if not apart <= (0 if name in ("labels", "group", "train_size") else LOOSE.get(key, CLOSE)):
            found.append(f"{name} {apart:.2g} apart")
    return found


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, relative to numbers above 1; infinity where one is NaN and the other is not."""
    if a.shape != b.shape:
        return np.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    apart = np.abs(a - b) / np.maximum(1, np.abs(a))
    apart = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, np.where(np.isnan(apart), np.inf, apart))
    return float(np.max(apart, initial=0))


def sensitive(table: Table, arrays: Arrays) -> bool:
    """Whether a learning rate that differs in its last digits gives another result: rounding may, too."""
    for factor in NUDGES:
        nudged = outcome(with_train(table, lr=table["train"]["lr"] * factor))
        if isinstance(nudged, str) or unlike(arrays, nudged):
            return True
    return False
