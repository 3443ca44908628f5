"""Learning rates over the rounds: `train.lr_decay`, and schedules of `train.lr` and
`train.server.lr`.

A schedule is a table of factors, one for each round. The table is one of the run's numbers, so
compiled code reads the factor of its round and knows nothing of the schedule."""

from __future__ import annotations

import dataclasses
import math

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.registry.options import NamedTable, Table, option, show
from cfljax.types import Array, HostHyper, Hyper

MOST_ROUNDS = 1_000_000
"""The longest table. It has four bytes a round."""
FACTORS_OF = {"lr": "lr_factors", "head_lr": "lr_factors", "server.lr": "server.lr_factors"}
"""A rate of `Hyper` -> the name of its table there, f32[rounds]."""


@dataclasses.dataclass(frozen=True)
class Schedule(NamedTable):
    """How a learning rate changes. In round t (from 0) it is its value times the factor of the
    round; when the schedule is over, the last factor stays."""

    OWNERS = {
        "end": (0.0, ("cosine", "warmup_cosine")),
        "warmup": (5, ("warmup_cosine",)),
        "at": (None, ("step",)),
        "factor": (None, ("step", "exponential")),
    }
    name: str = option(
        help="cosine: down to `end`; warmup_cosine: first up, in `warmup` rounds; step: times "
        "`factor` from each round of `at` on; exponential: times `factor` in each round",
        choices=("cosine", "warmup_cosine", "step", "exponential"),
    )
    end: float | None = option(
        None, "cosine, warmup_cosine: the factor towards which the rate falls (0.0)", low=0, high=1
    )
    warmup: int | None = option(
        None, "warmup_cosine: rounds until the rate is whole (5)", low=1, high=MOST_ROUNDS
    )
    at: tuple[int, ...] | None = option(
        None, "step: rounds in order, as in [60, 80]", low=1, high=MOST_ROUNDS - 1
    )
    factor: float | None = option(
        None, "step (0.1), exponential (0.99): what multiplies the rate", above=0, high=1
    )
    rounds: int | None = option(
        None, "how long it is, but for step (train.rounds)", low=1, high=MOST_ROUNDS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = {"step": 0.1, "exponential": 0.99}
        if self.factor is None and self.name in usual:
            object.__setattr__(self, "factor", usual[self.name])

    def check(self, where: str) -> None:
        """Reject options of another schedule, and numbers of rounds that do not fit."""
        super().check(where)
        if self.name == "step":
            if not self.at:
                raise SpecError(f"{where}.at: missing (the rounds, as in at = [60, 80])")
            if list(self.at) != sorted(set(self.at)):
                raise SpecError(f"{where}.at = {show(self.at)}: must be in order, each round once")
            if self.rounds is not None:
                raise SpecError(
                    f'{where}.rounds = {self.rounds}: name = "step" ends with its last round of '
                    "at; leave it out"
                )
        if self.rounds is not None and self.rounds > MOST_ROUNDS:
            raise SpecError(
                f"{where}.rounds: missing (a schedule has at most {MOST_ROUNDS:,} rounds, the run "
                f"has {self.rounds:,})"
            )
        if self.warmup and self.rounds and self.warmup >= self.rounds:
            raise SpecError(
                f"{where}.warmup = {self.warmup}: must be less than its {self.rounds} rounds"
            )

    def of_length(self, rounds: int) -> Schedule:
        """Return the schedule for a run of so many rounds; it stays if it has a length."""
        if self.rounds is not None or self.name == "step":
            return self
        return dataclasses.replace(self, rounds=rounds)

    def factors(self) -> tuple[float, ...]:
        """Return the factor of each round, of a schedule that has a length."""
        at, factor = self.at or (), self.factor or 1.0
        warmup, rounds, end = self.warmup or 0, self.rounds or 0, self.end or 0.0
        if self.name == "step":
            return tuple(factor ** sum(t >= each for each in at) for t in range(at[-1] + 1))
        if self.name == "exponential":
            return tuple(factor**t for t in range(rounds))
        falling = rounds - warmup
        rise = [(t + 1) / warmup for t in range(warmup)]
        half_waves = [(1 + math.cos(math.pi * t / falling)) / 2 for t in range(falling)]
        return (*rise, *(end + (1 - end) * wave for wave in half_waves))


def split_schedule(table: Table, where: str) -> Table:
    """Return a table of a spec with `lr = { value = 0.1, schedule = "cosine", … }` as its two
    options: `lr = 0.1`, and `lr_schedule = { name = "cosine", … }`.

    Args:
        table: Options as a spec writes them.
        where: The name of the table, for messages.
    """
    rate = table.get("lr")
    if isinstance(rate, list) and any(isinstance(r, dict) and "schedule" in r for r in rate):
        raise SpecError(
            f"{where}.lr = {show(rate)}: a list holds numbers; give each schedule a table of its "
            "own, as in train = [{ lr = … }, { lr = … }]"
        )
    if not isinstance(rate, dict) or "low" in rate:  # numbers, or a random range
        return table
    done = {key: value for key, value in table.items() if key != "lr"}
    rest = {key: value for key, value in rate.items() if key not in ("value", "schedule")}
    if "value" in rate:
        done["lr"] = rate["value"]
    if "schedule" in rate:
        if "lr_schedule" in table:
            raise SpecError(f"{where}.lr_schedule: {where}.lr.schedule says it, too; leave out one")
        word = rate["schedule"]
        done["lr_schedule"] = word if word == "none" and not rest else {"name": word, **rest}
    elif rest:
        raise SpecError(
            f"{where}.lr.{min(rest)}: belongs to a schedule; write it beside, as in lr = "
            '{ value = 0.1, schedule = "cosine" }'
        )
    return done


def before_rounds(hyper: HostHyper) -> HostHyper:
    """HOST. Return the numbers of what is done before the first round: schedules have begun.

    Args:
        hyper: The numbers of the run.
    """
    begun: HostHyper = {}
    for rate, name in FACTORS_OF.items():
        table, value = hyper.get(name), hyper.get(rate)
        if isinstance(table, tuple) and isinstance(value, float):
            begun[rate] = value * table[0]
    return hyper | begun


def factor_of_round(hyper: Hyper, t: Array, rate: str = "lr") -> Array | None:
    """Return f32[]: what multiplies a learning rate in round t; None: nothing does.

    Args:
        hyper: The numbers of the run.
        t: i32[] the number of the round, from 0.
        rate: The name of the rate.
    """
    table = hyper.get(FACTORS_OF[rate])
    if table is not None:
        return table[jnp.minimum(t, len(table) - 1)]
    if rate in ("lr", "head_lr") and "lr_decay" in hyper:
        return hyper["lr_decay"] ** t.astype(jnp.float32)
    return None


def at_round(hyper: Hyper, t: Array) -> Hyper:
    """Return the numbers of round t, with its learning rates.

    Args:
        hyper: The numbers of the run.
        t: i32[] the number of the round, from 0.
    """
    factors = {rate: factor_of_round(hyper, t, rate) for rate in FACTORS_OF}
    return hyper | {
        rate: hyper[rate] * factor
        for rate, factor in factors.items()
        if factor is not None and rate in hyper
    }
