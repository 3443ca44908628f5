"""Figure 18: degenerate federations, for every method."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "degenerate",
    "18",
    "degenerate federations: one client, one class, one sample, empty test sets, all noise in OPTICS, more clusters than clients",
    "finite, documented outcome or a one-line error",
    1000,
)


def _pool(federation: Any, **changes: Any) -> Any:
    return dataclasses.replace(federation, pool=federation.pool._replace(**changes))


def _counts(federation: Any, part: str, count: Any) -> Any:
    split = getattr(federation, part)
    count = np.minimum(np.asarray(split.count), np.asarray(count, np.int32)).astype(np.int32)
    return dataclasses.replace(federation, **{part: dataclasses.replace(split, count=count)})


def _clients(number: int) -> Callable[[Any], Any]:
    from drills.rounds import random_federation

    return lambda _: random_federation(np.random.default_rng(7), number)


def _same(federation: Any) -> Any:
    def of_the_first(split: Any) -> Any:
        start, count = (np.full_like(each, each[0]) for each in (split.start, split.count))
        return dataclasses.replace(split, start=start, count=count)

    return dataclasses.replace(federation, train=of_the_first(federation.train), test=of_the_first(federation.test))


def _apart(federation: Any) -> Any:
    """Every sample a point of its own, with labels at random: nobody's weights are near anybody's."""
    rng = np.random.default_rng(3)
    x = (10 * rng.normal(size=federation.pool.x.shape)).astype(np.float32)
    return _pool(federation, x=x, y=rng.integers(0, 4, len(x)).astype(np.int32))


FORMS: dict[str, Callable[[Any], Any]] = {
    "one client": _clients(1),
    "two clients": _clients(2),
    "more clusters than clients": _clients(3),
    "one test sample in all": lambda f: _counts(f, "test", [1] + [0] * 8),
    "one class": lambda f: _pool(f, y=np.zeros_like(f.pool.y)),
    "one sample each": lambda f: _counts(f, "train", 1),
    "one sample in all": lambda f: _counts(f, "train", [1] + [0] * 8),
    "one client holds all": lambda f: _counts(f, "train", [99] + [0] * 8),
    "no training data": lambda f: _counts(f, "train", 0),
    "empty test sets": lambda f: _counts(f, "test", 0),
    "an empty test set": lambda f: _counts(f, "test", [0] + [99] * 8),
    "all clients the same": _same,
    "nobody like anybody": _apart,
    "all samples zero": lambda f: _pool(f, x=np.zeros_like(f.pool.x)),
    "huge numbers": lambda f: _pool(f, x=(np.nan_to_num(f.pool.x) * 1e18).astype(np.float32)),
}


def drill(tally: Tally, count: int, seed: int) -> None:
    """Every form with every method, at most `count` of them, beginning with method number `seed`."""
    from cfljax.methods import METHODS
    from drills.rounds import random_federation

    base = random_federation(np.random.default_rng(seed))
    pairs = [(name, form) for name in METHODS for form in FORMS]
    for number in tally.trials(min(count, len(pairs))):
        name, form = pairs[(number + seed * len(FORMS)) % len(pairs)]
        tally.check([f"{name}, {form}: {p}" for p in _problems(tally, name, FORMS[form](base))])
    tally.facts["methods"] = sorted({name for name, _ in pairs[: tally.tried]})


def _problems(tally: Tally, name: str, federation: Any) -> list[str]:
    from cfljax.errors import CfljaxError
    from drills.rounds import play

    four = {"clusters": 4} if "clusters" in play.options(name) else {}
    everybody = {"participants": 9} if name in play.EVERYBODY else {}
    try:
        (output,) = play.on_nine(name, federation=federation, seeds=[1], **everybody, **four)
    except CfljaxError as error:
        tally.count("a one-line error")
        return ["an error of several lines"] if "\n" in str(error) else []
    except Exception as error:
        return [f"{type(error).__name__}: {str(error)[:150]}"]
    if output.diverged_at >= 0:
        tally.count("recorded as diverged")
        return []
    tally.count("finite")
    tested = np.asarray(federation.test.count).sum() > 0
    used = np.unique(output.labels[output.labels >= 0])
    problems = [] if np.isfinite(output.models[used]).all() else ["models that are not finite"]
    problems += [] if output.labels.max(initial=-1) < len(output.models) else ["labels beyond the models"]
    problems += [] if (output.labels[:, np.asarray(federation.uid) < 0] == -1).all() else ["dummies have labels"]
    problems += [] if not tested or np.isfinite(output.history["accuracy"]).all() else ["accuracy that is not finite"]
    problems += [] if tested or np.isnan(output.history["accuracy"]).all() else ["an accuracy without test samples"]
    return problems


if __name__ == "__main__":
    common.compile_less()
    sys.exit(common.main(FIGURE, drill))
