"""The tables `train.clock`, `train.asynchronous`, `train.server` and `train.stop`."""

from __future__ import annotations

import dataclasses

from cfljax.config.frozen import FrozenTable
from cfljax.config.optimisers import check_optimiser
from cfljax.config.transit import read_table
from cfljax.errors import SpecError, suggest
from cfljax.federation.traces import read_trace
from cfljax.local.rates import Schedule
from cfljax.registry.options import Table, Value, check, option


@dataclasses.dataclass(frozen=True)
class ClockTable:
    """A simulated clock. It changes no result, unless there is a deadline, or a trace in which
    clients are away."""

    speed: str = option(
        "lognormal",
        "speed of clients: drawn (the median is 1), or 1 for all",
        choices=("lognormal", "same"),
    )
    spread: float | None = option(
        None, "lognormal: standard deviation of the speed's logarithm (1.0)", low=0, traced=True
    )
    step_ms: float = option(5.0, "milliseconds of a local step at speed 1", low=0, traced=True)
    down_mbps: float = option(
        20.0, "megabits per second from the server to a client", above=0, traced=True
    )
    up_mbps: float = option(
        5.0, "megabits per second from a client to the server", above=0, traced=True
    )
    deadline_s: float | None = option(
        None, "clients that need longer for a round are left out of it", above=0, traced=True
    )
    trace: str | None = option(
        None, "CSV file: when clients are available, and how fast", file=True
    )
    cost_per_s: float = option(
        0.0, "what a second of a client's device costs, in energy or money", low=0, traced=True
    )

    def __post_init__(self) -> None:
        if self.spread is None:
            object.__setattr__(self, "spread", 1.0 if self.speed == "lognormal" else 0.0)

    def check(self, where: str) -> None:
        """Reject options that contradict each other, and a trace that cannot be read."""
        if self.speed == "same" and self.spread:
            raise SpecError(f'{where}.spread = {self.spread}: belongs to speed = "lognormal"')
        if self.trace is not None:
            read_trace(self.trace)


ASYNCHRONOUS = "train.asynchronous"


@dataclasses.dataclass(frozen=True)
class AsynchronousTable:
    """Buffered asynchronous aggregation. `participation` is then the number of clients in
    flight."""

    buffer: int = option(10, "number of updates that the server waits for", low=1)
    exponent: float | None = option(
        None, "an update t steps old counts (1 + t)^-exponent (0.5)", low=0, traced=True
    )

    def __post_init__(self) -> None:
        if self.exponent is None:
            object.__setattr__(self, "exponent", 0.5)


def check_asynchronous(
    asynchronous: AsynchronousTable | None,
    clock: ClockTable | None,
    stream: int | None,
    clients: int | None,
    participation: int | float,
) -> None:
    """Reject options of `train` that asynchronous aggregation cannot have."""
    if asynchronous is None:
        return
    if clock is None:
        raise SpecError(
            f"{ASYNCHRONOUS}: updates arrive by a simulated clock; add train.clock, as in "
            f"clock = {{ step_ms = 5 }}"
        )
    if clock.deadline_s is not None:
        limit = "an asynchronous server has no deadline; leave out one"
        raise SpecError(f"{ASYNCHRONOUS} with train.clock.deadline_s = {clock.deadline_s}: {limit}")
    if stream:
        raise SpecError(
            f"train.plan.stream = {stream}: {ASYNCHRONOUS} keeps all pending updates; leave out one"
        )
    if clients is not None:
        raise SpecError(
            f"train.plan.clients = {clients}: with {ASYNCHRONOUS} a slot is an update under way, "
            "not a client; leave out one"
        )
    if isinstance(participation, int):
        check_buffer(asynchronous, participation)


def check_buffer(asynchronous: AsynchronousTable, under_way: int) -> None:
    """Reject a buffer that is larger than the number of clients in flight."""
    if asynchronous.buffer > under_way:
        limit = (
            f"{under_way} clients train at a time (train.participation); give a buffer of at "
            f"most {under_way}"
        )
        raise SpecError(f"{ASYNCHRONOUS}.buffer = {asynchronous.buffer}: {limit}")


SERVER_TABLE = "train.server"
_RANDOM = ("noisy_sgd",)


@dataclasses.dataclass(frozen=True)
class ServerTable:
    """An optimiser of optax that moves the model of each cluster by what a round made of it."""

    name: str = option(help="an optimiser of optax, fedadam, fedyogi or fedadagrad")
    lr: float = option(help="its learning rate", low=0, traced=True)
    lr_schedule: Schedule | None = option(
        None,
        "how it changes over the rounds, as train.lr_schedule",
        choices=("none",),
        written=str | Table | None,
    )
    arguments: Table | None = option(
        None, "its other arguments, written next to name and lr", beside=True
    )

    def check(self, where: str) -> None:
        """Reject what optax does not have."""
        if self.name in _RANDOM:
            raise SpecError(
                f'{where} = "{self.name}": keeps a random key, which checkpoints do not; '
                "noise is train.privacy"
            )
        check_optimiser(self.name, self.arguments or {}, where, f"{where}.lr", server=True)


def read_server(value: Value) -> ServerTable | None:
    """Check the options of the table; None and "none" mean no table."""
    if value is None or value == "none":
        return None
    if isinstance(value, ServerTable):
        return value
    if isinstance(value, str):
        raise SpecError(
            f'{SERVER_TABLE} = "{value}": give its learning rate, too: {{ name = "{value}", '
            f"lr = 0.1 }}"
        )
    own = {key: each for key, each in value.items() if key in ("name", "lr")}
    schedule = read_table(value.get("lr_schedule"), "server.lr_schedule", Schedule)
    rest = {key: each for key, each in value.items() if key not in (*own, "lr_schedule")}
    table = own | {"arguments": FrozenTable(rest) if rest else None}
    return dataclasses.replace(check(ServerTable, table, SERVER_TABLE), lr_schedule=schedule)


# The metrics of the engine that early stopping may watch; none uses test data
STOP_METRICS = ("val_loss", "val_accuracy", "train_loss")


@dataclasses.dataclass(frozen=True)
class StopTable:
    """A run ends at the first evaluation at which its metric has not become better for `patience`
    rounds."""

    patience: int = option(20, "rounds without a better value", low=1)
    metric: str = option(
        "val_loss",
        "metric to watch: val_loss, val_accuracy, train_loss, or one of `train.metrics`, computed "
        "on validation samples",
    )
    better: str | None = option(
        None, "which values of one of `train.metrics` are better", choices=("higher", "lower")
    )

    @property
    def own(self) -> str:
        """The metric of `train.metrics` that is watched; "" if it is one of the engine's."""
        return "" if self.metric in STOP_METRICS else self.metric


NEEDS_VALIDATION = "needs validation samples; add data.validation = 0.1"


def check_stop(stop: StopTable | None, validation: float, metrics: tuple[str, ...] | None) -> None:
    """Reject a metric of validation samples if there are none, and one of the user's that
    `train.metrics` (`metrics`) does not have, or of which nobody knows what is better."""
    if stop is None:
        return
    name = f'train.stop.metric = "{stop.metric}"'
    if stop.own:
        known = (*STOP_METRICS, *(metrics or ()))
        if stop.metric not in known:
            raise SpecError(
                f"{name}: unknown{suggest(stop.metric, known)}; a metric of your own must also be "
                "in train.metrics"
            )
        if f"val_{stop.metric}" in known:
            raise SpecError(
                f'{name}: its values on validation samples are named "val_{stop.metric}", as '
                "another of train.metrics; rename one"
            )
        if stop.better is None:
            raise SpecError(
                f'{name}: say which values are better, as in {{ metric = "{stop.metric}", better = '
                '"higher" }'
            )
    elif stop.better is not None:
        raise SpecError(
            f'train.stop.better = "{stop.better}": is for a metric of train.metrics; what is '
            f"better of {stop.metric} is known, leave it out"
        )
    if stop.metric != "train_loss" and not validation:
        raise SpecError(f'{name}: {NEEDS_VALIDATION}, or take "train_loss"')
