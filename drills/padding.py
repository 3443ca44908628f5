"""Figure 13: garbage samples, dummy clients, spare participants and spare clusters on random federations."""

from __future__ import annotations

import sys

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "padding",
    "13",
    "padding with garbage samples, dummy clients, spare participants, spare clusters",
    "mini-batch under extra samples: bit-identical; full batch: the same, else 1e-6; the rest within 1e-6",
    200,
)
CLOSE = 1e-6
ROUNDS = 3


def drill(tally: Tally, count: int, seed: int) -> None:
    """Random federations; each is padded in every way."""
    from drills.rounds import padded_with_nan, play, random_federation

    for number in tally.trials(count):
        rng = np.random.default_rng([seed, number])
        federation = random_federation(rng, int(rng.integers(2, 10)))
        method = ("ifca", "fedavg")[number % 2]
        wide, spare = padded_with_nan(federation, 4, 0, rng), padded_with_nan(federation, 0, 3, rng)
        shape, full_batch = {"rounds": ROUNDS, "seeds": [number]}, {"batch": "full"}
        plain, padded = (play.on_nine(method, federation=f, **shape)[0] for f in (federation, wide))
        tally.check([f"{number}, {method}, mini-batches, extra samples: {field}" for field in play.unlike(plain, padded)])
        full, padded = (play.on_nine(method, federation=f, work=full_batch, **shape)[0] for f in (federation, wide))
        tally.check(_apart(tally, f"{number}, {method}, full batch, extra samples", full, padded))
        tally.check(_apart(tally, f"{number}, {method}, dummy clients", plain, play.on_nine(method, federation=spare, **shape)[0]))
        both = ((federation, 9), (spare, 12))
        everybody, more = (play.on_nine(method, federation=f, participants=n, **shape)[0] for f, n in both)
        tally.check(_apart(tally, f"{number}, {method}, spare participants", everybody, more))
        few, many = (play.on_nine("cfl_sattler", federation=federation, participants=9, max_clusters=k, **shape)[0] for k in (4, 7))
        tally.check(_apart(tally, f"{number}, cfl_sattler, spare clusters", few, many))


def _apart(tally: Tally, what: str, a: object, b: object) -> list[str]:
    """Labels have to be equal, models close; what only the wider one has must be empty."""
    clients, models = a.labels.shape[1], min(len(a.models), len(b.models))
    problems = [] if np.array_equal(a.labels, b.labels[:, :clients]) else ["other labels"]
    problems += [] if (b.labels[:, clients:] == -1).all() else ["dummy clients have labels"]
    apart = float(np.max(np.abs(a.models[:models] - b.models[:models]), initial=0))
    tally.most(what.split(", ", 2)[2] + ": weights apart", apart)
    problems += [f"weights {apart:.2g} apart"] if not apart <= CLOSE else []
    gap = float(np.nanmax(np.abs(a.history["loss"] - b.history["loss"]), initial=0))
    problems += [f"losses {gap:.2g} apart"] if gap > 1e-5 else []
    problems += [] if np.array_equal(a.history["bytes_up"], b.history["bytes_up"]) else ["other communication"]
    return [f"{what}: {p}" for p in problems]


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
