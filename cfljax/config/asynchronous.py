"""The table `train.asynchronous`: the server continues when some updates have arrived, without waiting for all participants."""

from __future__ import annotations

import dataclasses

from cfljax.config.clock import Clock
from cfljax.config.transit import Transit
from cfljax.errors import SpecError
from cfljax.registry.options import option

TABLE = "train.asynchronous"
_OWNERS = {"exponent": (0.5, "polynomial"), "slope": (10.0, "hinge"), "grace": (4.0, "hinge")}
"""Name of a number → its default, and the staleness that it belongs to."""


@dataclasses.dataclass(frozen=True)
class Asynchronous:
    """Buffered asynchronous aggregation. `participation` is then the number of clients in flight."""

    buffer: int = option(10, "number of updates that the server waits for", low=1)
    staleness: str = option(
        "polynomial",
        "factor of an update t steps old: (1 + t)^-exponent; hinge: 1 up to t = grace, then 1 / (1 + slope (t - grace))",
        choices=("polynomial", "hinge", "none"),
    )
    exponent: float | None = option(None, "polynomial: how fast the factor falls (0.5)", low=0, traced=True)
    slope: float | None = option(None, "hinge: how fast it falls (10)", low=0, traced=True)
    grace: float | None = option(None, "hinge: the steps before it falls (4)", low=0, traced=True)

    def __post_init__(self) -> None:
        for name, (default, owner) in _OWNERS.items():
            if getattr(self, name) is None and self.staleness == owner:
                object.__setattr__(self, name, default)

    def check(self, where: str) -> None:
        """Reject a number that belongs to another staleness."""
        for name, (_, owner) in _OWNERS.items():
            if (value := getattr(self, name)) is not None and self.staleness != owner:
                raise SpecError(f'{where}.{name} = {value}: belongs to staleness = "{owner}"')


def check_asynchronous(
    asynchronous: Asynchronous | None, clock: Clock | None, transit: Transit, stream: int | None, participation: int | float
) -> None:
    """Reject options of `train` that asynchronous aggregation cannot have."""
    if asynchronous is None:
        return
    if clock is None:
        raise SpecError(f"{TABLE}: updates arrive by a simulated clock; add train.clock, as in clock = {{ step_ms = 5 }}")
    if clock.deadline_s is not None:
        limit = "an asynchronous server has no deadline; leave out one"
        raise SpecError(f"{TABLE} with train.clock.deadline_s = {clock.deadline_s}: {limit}")
    if transit.privacy is not None and (transit.privacy.noise > 0 or transit.choice is not None):
        key = f"noise = {transit.privacy.noise}" if transit.privacy.noise > 0 else "choice"
        why = "ε is computed for rounds in which all clients can be drawn; here some are still training"
        raise SpecError(f"{TABLE} with train.privacy.{key}: {why}; leave out one")
    if stream:
        raise SpecError(f"train.plan.stream = {stream}: {TABLE} keeps all pending updates; leave out one")
    if isinstance(participation, int):
        check_buffer(asynchronous, participation)


def check_buffer(asynchronous: Asynchronous, under_way: int) -> None:
    """Reject a buffer that is larger than the number of clients in flight."""
    if asynchronous.buffer > under_way:
        limit = f"{under_way} clients train at a time (train.participation); give a buffer of at most {under_way}"
        raise SpecError(f"{TABLE}.buffer = {asynchronous.buffer}: {limit}")
