"""The table `train.clock`: how fast the clients' devices and connections are, for the simulated clock."""

from __future__ import annotations

import dataclasses

from cfljax.errors import SpecError
from cfljax.federation.traces import read_trace
from cfljax.registry.options import option


@dataclasses.dataclass(frozen=True)
class Clock:
    """A simulated clock. It changes no result, unless there is a deadline, or a trace in which clients are away."""

    speed: str = option("lognormal", "speed of clients: drawn (the median is 1), or 1 for all", choices=("lognormal", "same"))
    spread: float | None = option(None, "lognormal: standard deviation of the speed's logarithm (1.0)", low=0, traced=True)
    step_ms: float = option(5.0, "milliseconds of a local step at speed 1", low=0, traced=True)
    down_mbps: float = option(20.0, "megabits per second from the server to a client", above=0, traced=True)
    up_mbps: float = option(5.0, "megabits per second from a client to the server", above=0, traced=True)
    deadline_s: float | None = option(None, "clients that need longer for a round are left out of it", above=0, traced=True)
    trace: str | None = option(None, "CSV file: when clients are available, and how fast", file=True)
    cost_per_s: float = option(0.0, "what a second of a client's device costs, in energy or money", low=0, traced=True)

    def __post_init__(self) -> None:
        if self.spread is None:
            object.__setattr__(self, "spread", 1.0 if self.speed == "lognormal" else 0.0)

    def check(self, where: str) -> None:
        """Reject options that contradict each other, and a trace that cannot be read."""
        if self.speed == "same" and self.spread:
            raise SpecError(f'{where}.spread = {self.spread}: belongs to speed = "lognormal"')
        if self.trace is not None:
            read_trace(self.trace)
