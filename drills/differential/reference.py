"""The compiled program against the plain one of tests/reference/whole.py, which computes the same run from start to end."""

from __future__ import annotations

from random import Random

import numpy as np

from cfljax.config import read_spec
from cfljax.experiment.assemble import host_federation, model_of
from drills.common import Tally
from drills.differential.plans import Arrays, distance, named, outcome, sensitive
from drills.differential.specs import Table, variations
from drills.differential.unfit import Unfit
from tests.reference import whole_scores

CLOSE, RUNS = 1e-4, 4
EXACT = ("labels", "history/round", "history/bytes_up", "history/bytes_down")


def problems(table: Table, draw: Random, tally: Tally) -> list[str]:
    """What some runs that share the table's program do not have in common with the plain program's."""
    found: list[str] = []
    for one in variations(draw, table, RUNS):
        arrays = outcome(one)
        if isinstance(arrays, str):
            raise Unfit(arrays)
        if arrays["diverged"]:
            continue
        plain = reference(one)
        wrong = unlike(plain, arrays)
        if wrong and sensitive(one, arrays):
            tally.count("decided by rounding")
        elif wrong:
            found += [f"{named(one)}: {line}" for line in wrong]
        else:
            tally.most("weights from the plain program's", distance(plain["models"], arrays["models"]))
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
