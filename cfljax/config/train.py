"""The `train` table: from its values to checked options of the training loop and of local training,
common to all methods."""

from __future__ import annotations

import dataclasses

from cfljax.config import transit
from cfljax.config.frozen import FrozenTable
from cfljax.config.optimisers import check_optimiser
from cfljax.config.train_tables import (
    AsynchronousTable,
    ClockTable,
    ServerTable,
    StopTable,
    check_asynchronous,
    read_server,
)
from cfljax.errors import SpecError, suggest
from cfljax.federation.room import Room
from cfljax.local.aggregation import Robust
from cfljax.local.attacks import Attack
from cfljax.local.compressors import Compressor
from cfljax.local.privacy import Privacy
from cfljax.local.rates import Schedule
from cfljax.local.send import Sending
from cfljax.registry.options import Table, Value, check, option, show


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """The table `train.plan`: choices that replace the ones by measured speed. They change results
    in the last bits."""

    gram: int | None = option(
        None, "clients of up to this many samples train on their Gram matrix (0: none)", low=0
    )
    keep: bool | None = option(
        None, "make the Gram matrices of all clients once, before the first round"
    )
    lanes: int | None = option(
        None, "clients side by side at a time (1: one after another, 0: all at once)", low=0
    )
    stream: int | None = option(
        None,
        "participants trained at a time by methods that need only sums of updates (0: all)",
        low=0,
    )
    devices: int | None = option(None, "devices that share a round's participants", low=1)
    quick: bool | None = option(
        None, "compile in half the time, to code that may run 1.5 times as long (CPU only)"
    )
    pool: str | None = option(
        None,
        "every device holds all samples, or only its clients' samples",
        choices=("copied", "sharded"),
    )
    clients: int | None = option(
        None,
        "room for so many clients: runs on other data of up to this size share programs",
        low=1,
    )
    samples: int | None = option(
        None,
        "room for so many samples of each client, in training, test and validation each",
        low=1,
    )
    pool_samples: int | None = option(None, "room for so many samples of all clients", low=1)
    groups: int | None = option(
        None, "room for so many groups of clients, whatever differs between them", low=1
    )
    phases: int | None = option(None, "room for so many phases of `data.drift`", low=1)


@dataclasses.dataclass(frozen=True)
class Lora:
    """The table `train.lora` (Hu et al. 2022): beside a frozen kernel W, alpha / rank · down @ up
    trains."""

    rank: int = option(8, "rank of the adapters", low=1, high=4096)
    alpha: float = option(16.0, "adapters are scaled by alpha / rank", above=0)
    where: str = option(
        "attention",
        "layers: of attention, the other dense ones, or all",
        choices=("attention", "dense", "all"),
    )
    head: bool = option(False, "the head trains, too, as a whole")


SHARING = ("all", "cluster", "client")
"""Who shares a part: all clients, the members of a cluster, or nobody, so that it stays with the
client."""
TABLES = {
    **transit.TABLES,
    "lr_schedule": Schedule,
    "stop": StopTable,
    "clock": ClockTable,
    "asynchronous": AsynchronousTable,
    "lora": Lora,
}
"""Options of `train` that are tables, and the classes of their options."""


WORD_OR_TABLE = str | Table | None
"""How a spec gives an option that is a table: a name alone, a table, or "none"."""


@dataclasses.dataclass(frozen=True)
class Train:
    """The `train` table. Options that are tables are objects: their words and tables are read when
    it is made."""

    rounds: int = option(100, "communication rounds", low=1, high=10**9)
    participation: int | float = option(
        1.0, "a round's clients: a fraction up to 1.0 of those that train, or a count", above=0
    )
    epochs: int | None = option(
        None, "local passes over a client's data (1 unless `steps` is given)", low=1, high=10**9
    )
    steps: int | None = option(
        None, "local optimiser steps, instead of `epochs`", low=1, high=10**9
    )
    batch: int | str = option(10, "samples per step, or all of them", low=1, choices=("full",))
    lr: float = option(
        0.03,
        'learning rate; { value = 0.1, schedule = "cosine" } gives `lr_schedule`, too',
        low=0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )
    lr_decay: float = option(1.0, "round t uses lr · lr_decay^t", above=0, high=1, traced=True)
    lr_schedule: Schedule | None = option(
        None,
        'in place of lr_decay: "cosine", or a table { name = "step", at = [60, 80] }',
        choices=("none",),
        lists=("at",),
        written=WORD_OR_TABLE,
    )
    momentum: float = option(
        0.0,
        "momentum of SGD, reset in each round unless `optimizer_state` is kept",
        low=0,
        traced=True,
    )
    weight_decay: float = option(0.0, "adds weight_decay · w to the gradient", low=0, traced=True)
    optimizer: str | Table = option(
        "sgd", 'a name of optax, or a table { name = "adam", b1 = 0.8 }'
    )
    optimizer_state: str = option(
        "reset", "reset it in each round, or each client keeps its own", choices=("reset", "client")
    )
    eval_every: int = option(1, "rounds between evaluations", low=1, high=10**9)
    dropout: float = option(
        0.0, "chance that a participant drops out of a round", low=0, traced=True
    )
    stragglers: float = option(
        0.0, "chance that a participant does only part of its steps", low=0, high=1, traced=True
    )
    straggler_work: float = option(
        0.5, "the part of its steps that a straggler does", above=0, high=1, traced=True
    )
    score: str = option(
        "all",
        "which clients to score: all, or only those that have a cluster",
        choices=("all", "assigned"),
    )
    test_clients_choose: str = option(
        "holdout",
        "clients that never train choose a model on half of their test samples and are "
        "scored on the rest, or do both on all",
        choices=("holdout", "test_loss"),
    )
    eval_clients: int | None = option(None, "score only this many clients, drawn at random", low=1)
    precision: str = option(
        "highest",
        "precision of matrix products on accelerators; bfloat16: networks compute in it on "
        "any device",
        choices=("highest", "high", "default", "bfloat16"),
    )
    metrics: tuple[str, ...] | None = option(
        None, "metrics to record at each evaluation: macro_f1, average_precision, or your own"
    )
    discrepancy: str = option(
        "after",
        "measure it from the model after the round, or at its start",
        choices=("after", "start"),
    )
    privacy: Privacy | None = option(
        None,
        "clip updates and add noise: { clip = 1.0, noise = 0.8 }",
        written=WORD_OR_TABLE,
    )
    compress: Compressor | None = option(
        None,
        'send less: "sign", "int8", or { name = "topk", keep = 0.01 }',
        written=WORD_OR_TABLE,
    )
    attack: Attack | None = option(
        None,
        'clients that send false updates: { name = "sign_flip", share = 0.2 }',
        written=WORD_OR_TABLE,
    )
    robust: Robust | None = option(
        None, 'replace the mean: "median", "krum", or a table', written=WORD_OR_TABLE
    )
    stop: StopTable | None = option(
        None,
        'early stopping: { patience = 20, metric = "val_loss" }',
        choices=("none",),
        written=WORD_OR_TABLE,
    )
    server: ServerTable | None = option(
        None,
        'an optimiser at the server: { name = "adam", lr = 0.1 }',
        written=WORD_OR_TABLE,
    )
    parts: Table | None = option(
        None, 'who shares which part of a model: { body = "all", head = "client" }, else "cluster"'
    )
    freeze: str | tuple[str, ...] | None = option(
        None, 'parts that do not train in the rounds and are never sent: "head", or a list of parts'
    )
    finetune_steps: int | None = option(
        None,
        "local steps of the whole model after the last round, scored in separate columns (0: none)",
        low=0,
        high=10**9,
    )
    lora: Lora | None = option(
        None,
        'LoRA, only adapters train: { rank = 8, alpha = 16, where = "attention" }',
        choices=("none",),
        written=WORD_OR_TABLE,
    )
    clock: ClockTable | None = option(
        None,
        "a simulated clock: { step_ms = 5, down_mbps = 20, up_mbps = 5, deadline_s = 60 }",
        choices=("none",),
        written=WORD_OR_TABLE,
    )
    asynchronous: AsynchronousTable | None = option(
        None,
        "the server waits for some updates only, on this clock: { buffer = 10 }",
        choices=("none",),
        written=WORD_OR_TABLE,
    )
    refused: str = option(
        "error",
        "what becomes of options of `train` that a method refuses: an error, or they are left out "
        "for this method, which its record and the notes below tables say",
        choices=("error", "drop"),
    )
    plan: PlanOptions | None = option(
        None,
        "how training is carried out: auto, or a table { gram = 512, devices = 2 }",
        written=WORD_OR_TABLE,
    )

    def __post_init__(self) -> None:
        # Each way to write an option becomes one value here, so that runs which mean the same are
        # equal and have one id
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 1)
        object.__setattr__(self, "plan", read_plan(self.plan))
        object.__setattr__(self, "server", read_server(self.server))
        object.__setattr__(self, "parts", read_parts(self.parts))
        object.__setattr__(self, "freeze", read_frozen(self.freeze))
        for name, kind in TABLES.items():
            object.__setattr__(self, name, transit.read_table(getattr(self, name), name, kind))
        if self.lr_schedule is not None:
            object.__setattr__(self, "lr_schedule", self.lr_schedule.of_length(self.rounds))
        if self.server is not None and self.server.lr_schedule is not None:
            schedule = self.server.lr_schedule.of_length(self.rounds)
            server = dataclasses.replace(self.server, lr_schedule=schedule)
            object.__setattr__(self, "server", server)
        if isinstance(self.optimizer, dict):
            table = FrozenTable(self.optimizer)
            alone = set(table) == {"name"} and isinstance(table["name"], str)
            object.__setattr__(self, "optimizer", table["name"] if alone else table)

    @property
    def optimizer_pair(self) -> tuple[str, Table]:
        """The optimiser's name in optax, and its arguments."""
        if isinstance(self.optimizer, str):
            return self.optimizer, {}
        return self.optimizer["name"], {k: v for k, v in self.optimizer.items() if k != "name"}

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The schedules of learning rates, by the name of the rate."""
        found = {"lr": self.lr_schedule, "server.lr": self.server and self.server.lr_schedule}
        return {rate: schedule for rate, schedule in found.items() if schedule}

    @property
    def keeps_state(self) -> bool:
        """Whether optimisers go on from round to round."""
        return self.optimizer_state == "client"

    @property
    def divided_by(self) -> str:
        """The option that divides models into parts; "" if none does."""
        if self.parts:
            return "train.parts"
        return "train.freeze" if self.freeze else ""

    @property
    def plan_options(self) -> PlanOptions:
        """The choices about the execution plan that the spec makes."""
        return self.plan or PlanOptions()

    @property
    def room(self) -> Room:
        """How large the arrays of the data are made."""
        plan = self.plan_options
        return Room(*(getattr(plan, name) for name in Room._fields))

    @property
    def clock_table(self) -> ClockTable | None:
        """The simulated clock; None: there is none. Methods and stages ask for it by this name."""
        return self.clock

    @property
    def transit(self) -> transit.Transit:
        """What happens to updates between participants and server."""
        return transit.Transit(self.privacy, self.compress, self.attack, self.robust)

    @property
    def server_table(self) -> ServerTable | None:
        """The optimiser of the server; None: it takes means. Stages ask for it by this name."""
        return self.server

    def vector_bytes(self, d: int) -> int:
        """Return the bytes of an update of d numbers as a participant sends it."""
        return Sending(self.compress).bytes_up(d)

    def vector_bytes_down(self, d: int) -> int | None:
        """Return the bytes of a model of d numbers as a participant receives it; None: four for
        each number that travels."""
        return Sending(self.compress).bytes_down(d)

    def slots(self, training: int, clients: int) -> int:
        """Return the size S of the cohort axis if `training` of all clients train: the number of
        participants. If all training clients take part, it is the number of all clients, so that
        the cohort keeps their order."""
        drawn = self.participants(training)
        return drawn if drawn < training else clients

    def participants(self, training: int) -> int:
        """Return the number of participants of a round, if `training` clients train."""
        if isinstance(self.participation, int):
            return min(self.participation, training)
        return max(1, round(self.participation * training))

    def check(self, where: str) -> None:
        """Reject options that cannot be combined."""
        if self.epochs is not None and self.steps is not None:
            raise SpecError(
                f"{where}.steps = {self.steps}: give epochs or steps, not both (epochs = "
                f"{self.epochs})"
            )
        if isinstance(self.participation, float) and not self.participation <= 1:
            raise SpecError(
                f"{where}.participation = {self.participation}: a fraction is at most 1.0; a "
                "count is an integer without a point"
            )
        for name, value in (("momentum", self.momentum), ("dropout", self.dropout)):
            if value >= 1:
                raise SpecError(f"{where}.{name} = {value}: must be less than 1")
        for rate, schedule in self.schedules.items():
            schedule.check(f"{where}.{rate}_schedule")
        if self.lr_schedule is not None and self.lr_decay != 1:
            raise SpecError(
                f"{where}.lr_decay = {self.lr_decay}: {where}.lr_schedule says how the learning "
                "rate changes; leave out one"
            )
        check_asynchronous(
            self.asynchronous,
            self.clock,
            self.plan_options.stream,
            self.plan_options.clients,
            self.participation,
        )
        for table in (self.privacy, self.compress, self.robust):
            if table is not None:
                table.check_train(where, self)
        if self.metrics:
            from cfljax.engine.metrics import METRICS

            for name in self.metrics:
                METRICS.entry(name, f"{where}.metrics")
        if self.optimizer != "sgd":
            _check_optimizer(self, f"{where}.optimizer")
        if self.keeps_state:
            _check_optimizer_state(self, where)


def read_plan(value: Value) -> PlanOptions | None:
    """Check the options of `train.plan`; None and "auto" leave all choices to the program."""
    if value is None or value == "auto":
        return None
    if isinstance(value, str):
        raise SpecError(
            f'train.plan = "{value}": must be "auto" or a table such as {{ gram = 512, devices = '
            f"2 }}"
        )
    return value if isinstance(value, PlanOptions) else check(PlanOptions, value, "train.plan")


def read_parts(value: Value) -> FrozenTable | None:
    """Check the table; None if it has only "cluster", which is the default of every part. Raises a
    SpecError."""
    if value is None:
        return None
    for name, kind in value.items():
        if kind not in SHARING:
            near = suggest(kind, SHARING) if isinstance(kind, str) else ""
            raise SpecError(
                f'train.parts.{name} = {show(kind)}: must be "all", "cluster" or "client"' + near
            )
    return FrozenTable(value) if set(value.values()) - {"cluster"} else None


def read_frozen(value: Value) -> tuple[str, ...] | None:
    """Check the names of `train.freeze` and sort them; None if there are none. Raises a
    SpecError."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or "" in names:
        raise SpecError(
            f'train.freeze = {show(value)}: must name a part, such as "head", or a list of parts'
        )
    return tuple(sorted(set(names)))


def _check_optimizer_state(train: Train, where: str) -> None:
    """Reject kept states of an optimiser that has none, or of an asynchronous server."""
    if train.asynchronous is not None:
        why = "one state per client is kept between rounds; leave out one"
        raise SpecError(f'{where}.optimizer_state = "client" with {where}.asynchronous: {why}')
    if train.optimizer == "sgd" and not train.momentum:
        raise SpecError(
            f'{where}.optimizer_state = "client": plain SGD has no state; give '
            f"{where}.momentum or another {where}.optimizer"
        )


def _check_optimizer(train: Train, where: str) -> None:
    """Reject an optimiser that optax does not have, or arguments in two places."""
    if isinstance(train.optimizer, dict) and not isinstance(train.optimizer.get("name"), str):
        raise SpecError(
            f"{where} = {show(train.optimizer)}: the table needs a name, as in {{ name = "
            f'"adam", b1 = 0.8 }}'
        )
    name, arguments = train.optimizer_pair
    momentum = train.momentum
    check_optimiser(name, arguments, where, "train.lr")
    if momentum and name != "sgd":
        raise SpecError(
            f'train.momentum = {momentum}: is for optimizer = "sgd"; give it in the table of '
            f'"{name}"'
        )
    if momentum and arguments:
        raise SpecError(
            f"train.momentum = {momentum}: give it in the optimizer's table, which replaces "
            "plain SGD"
        )
