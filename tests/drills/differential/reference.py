"""The compiled program against the plain one of tests/reference/whole.py, which computes the same run from start to end."""

from __future__ import annotations

from random import Random

import numpy as np

from cfljax.assemble import host_federation, model_of
from cfljax.config import read_spec
from tests.drills.differential.examples import Unfit
from tests.drills.differential.plans import Arrays, distance, outcome, sensitive
from tests.drills.differential.specs import LRS, SEEDS, Table
from tests.reference import whole_scores

CLOSE = 1e-4
EXACT = ("labels", "history/round", "history/bytes_up", "history/bytes_down")


def problems(table: Table, draw: Random) -> list[str]:
    """What runs of two seeds and learning rates, which share a program, do not have in common with the plain program's."""
    found = []
    for seed, lr in zip(draw.sample(SEEDS, 2), draw.sample(LRS, 2), strict=True):
        one = table | {"seeds": [seed], "train": table["train"] | {"lr": lr}}
        arrays = outcome(one)
        if isinstance(arrays, str):
            raise Unfit(arrays)
        wrong = [] if arrays["diverged"] else unlike(reference(one), arrays)
        if wrong and not sensitive(one, arrays):
            found += [f"seed {seed}, lr {lr}: {line}" for line in wrong]
    return found


def reference(table: Table) -> Arrays:
    """The same arrays by the plain program."""
    (run,) = read_spec(table).runs()
    federation = host_federation(run)
    return whole_scores.run(run.resolved(), federation, model_of(run, federation).init)


def unlike(plain: Arrays, compiled: Arrays) -> list[str]:
    """Arrays that the plain program has and the compiled one has not, or others."""
    found = []
    for name, values in plain.items():
        apart = distance(values, compiled[name]) if name in compiled else np.inf
        if not apart <= (0 if name in EXACT else CLOSE):
            found.append(f"{name} {apart:.2g} apart")
    return found
