"""The options of the training loop and of local training, common to all methods."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cached_property
from typing import Any

from cfljax.config import touches
from cfljax.config.frozen import Table
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import check, option, show

_NEED_MORE = ("lbfgs", "polyak_sgd")  # their update wants losses that the local solver does not hand over


@dataclasses.dataclass(frozen=True)
class Forced:
    """The table `train.plan`: choices that are not left to the machine's measured speed. Results differ in their last bits."""

    gram: int | None = option(None, "clients of up to so many samples train on their Gram matrix (0: none)", low=0)
    keep: bool | None = option(None, "make the Gram matrices of all clients once, before the first round")
    lanes: int | None = option(None, "clients side by side at a time (1: one after another, 0: all at once)", low=0)
    side_by_side: bool | None = option(None, "true is lanes = 0, false is lanes = 1")
    stream: int | None = option(None, "methods that only need sums take participants in blocks of so many (0: all at once)", low=0)
    devices: int | None = option(None, "devices that a round's participants are dealt to", low=1)
    pool: str | None = option(None, "every device has all samples, or each its clients' own", choices=("copied", "sharded"))


@dataclasses.dataclass(frozen=True)
class Train:
    """The `train` table."""

    rounds: int = option(100, "communication rounds", low=1, high=10**9)
    participation: int | float = option(1.0, "a round's clients: a fraction up to 1.0 of those that train, or a count", above=0)
    epochs: int | None = option(None, "local passes over a client's data (1 unless `steps` is given)", low=1, high=10**9)
    steps: int | None = option(None, "local optimiser steps, in place of `epochs`", low=1, high=10**9)
    batch: int | str = option(10, "samples per step, or all of them", low=1, choices=("full",))
    lr: float = option(0.03, "learning rate", low=0, traced=True)
    lr_decay: float = option(1.0, "round t uses lr · lr_decay^t", above=0, high=1, traced=True)
    momentum: float = option(0.0, "momentum of SGD, reset at each local start", low=0, traced=True)
    weight_decay: float = option(0.0, "adds weight_decay · w to the gradient", low=0, traced=True)
    optimizer: str | dict = option("sgd", 'a name of optax, or a table { name = "adam", b1 = 0.8 }')  # type: ignore[type-arg]
    eval_every: int = option(1, "rounds between evaluations", low=1, high=10**9)
    dropout: float = option(0.0, "chance that a participant drops out of a round", low=0, traced=True)
    stragglers: float = option(0.0, "chance that a participant does only part of its steps", low=0, high=1, traced=True)
    straggler_work: float = option(0.5, "the part of its steps that a straggler does", above=0, high=1, traced=True)
    score: str = option("all", "whom to score: everybody, or clients that have a cluster", choices=("all", "assigned"))
    test_clients_choose: str = option(
        "holdout",
        "clients that never train choose a model on half of their test samples and are scored on the rest, or both on all",
        choices=("holdout", "test_loss"),
    )
    eval_clients: int | None = option(None, "score only so many clients", low=1)
    precision: str = option("highest", "of matrix products on accelerators", choices=("highest", "high", "default"))
    metrics: tuple[str, ...] | None = option(None, "metrics of your own to record at each evaluation")
    discrepancy: str = option("after", "from the model after or at the start of the round", choices=("after", "start"))
    privacy: str | dict | None = option(None, "clip updates and add noise: { clip = 1.0, noise = 0.8 }", later=True)  # type: ignore[type-arg]
    compress: str | dict | None = option(None, 'send less: "sign", "int8", or { name = "topk", keep = 0.01 }', later=True)  # type: ignore[type-arg]
    attack: str | dict | None = option(None, 'clients that lie: { name = "sign_flip", share = 0.2 }', later=True)  # type: ignore[type-arg]
    robust: str | dict | None = option(None, 'in place of means: "median", "krum", or a table', later=True)  # type: ignore[type-arg]
    plan: str | dict | None = option(None, "how training is carried out: auto, or a table { gram = 512, devices = 2 }")  # type: ignore[type-arg]

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 1)
        if self.plan == "auto":
            object.__setattr__(self, "plan", None)
        elif isinstance(self.plan, dict):
            object.__setattr__(self, "plan", Table(self.plan))
        for name in touches.KINDS:
            object.__setattr__(self, name, touches.read(getattr(self, name), name))
        if isinstance(self.optimizer, dict):
            table = Table(self.optimizer)
            alone = set(table) == {"name"} and isinstance(table["name"], str)
            object.__setattr__(self, "optimizer", table["name"] if alone else table)

    @cached_property
    def without_choice(self) -> Train:
        """Of runs without clients that never train: how they choose says nothing, and is what it was when ids were made of it."""
        return dataclasses.replace(self, test_clients_choose="test_loss")

    @property
    def optimizer_pair(self) -> tuple[str, dict[str, Any]]:
        """The optimiser's name in optax, and its arguments."""
        if isinstance(self.optimizer, str):
            return self.optimizer, {}
        return self.optimizer["name"], {k: v for k, v in self.optimizer.items() if k != "name"}

    @property
    def forced(self) -> Forced:
        """What the plan leaves to no choice."""
        return check(Forced, dict(self.plan) if isinstance(self.plan, dict) else {}, "train.plan")

    @property
    def touches(self) -> touches.Touches:
        """What happens to updates on their way."""
        return touches.Touches(*(getattr(self, name) for name in touches.Touches._fields))

    def vector_bytes(self, d: int) -> int:
        """Bytes of an update of d numbers on its way up."""
        return 4 * d if (way := self.touches.compress) is None else way.bytes(d)

    def places(self, able: int, clients: int) -> int:
        """How many places a round has for participants, if so many of the clients train: where all of these take part, one for
        each client, so that they keep their order."""
        drawn = self.participants(able)
        return drawn if drawn < able else clients

    def participants(self, clients: int) -> int:
        """How many of so many clients that train take part in a round."""
        if isinstance(self.participation, int):
            return min(self.participation, clients)
        return max(1, round(self.participation * clients))

    def check(self, where: str) -> None:
        """Combinations; raises SpecError."""
        if self.epochs is not None and self.steps is not None:
            raise SpecError(f"{where}.steps = {self.steps}: give epochs or steps, not both (epochs = {self.epochs})")
        if isinstance(self.participation, float) and not self.participation <= 1:
            raise SpecError(
                f"{where}.participation = {self.participation}: a fraction is at most 1.0; a count is an integer without a point"
            )
        for name, value in (("momentum", self.momentum), ("dropout", self.dropout)):
            if value >= 1:
                raise SpecError(f"{where}.{name} = {value}: must be less than 1")
        if isinstance(self.plan, str):
            raise SpecError(f'{where}.plan = "{self.plan}": must be "auto" or a table such as {{ gram = 512, devices = 2 }}')
        if self.forced.lanes is not None and self.forced.side_by_side is not None:
            raise SpecError(f"{where}.plan.side_by_side: lanes = {self.forced.lanes} says that; leave out one")
        _together(self, where)
        if self.metrics:
            from cfljax.engine.metrics import METRICS

            for name in self.metrics:
                METRICS.entry(name, f"{where}.metrics")
        if self.optimizer != "sgd":
            check_optimizer(self.optimizer, self.momentum, where)


def _together(train: Train, where: str) -> None:
    """A robust rule needs all updates as they are."""
    privacy, _, _, robust = train.touches
    if robust is None:
        return
    if privacy is not None and privacy.noise > 0:
        raise SpecError(f"{where}.robust with {where}.privacy.noise = {privacy.noise}: the noise is measured for weighted sums")
    if train.forced.stream:
        raise SpecError(f"{where}.plan.stream = {train.forced.stream}: {where}.robust needs all updates at once; leave out one")


def check_optimizer(optimizer: str | dict[str, Any], momentum: float, where: str) -> None:
    """The optimiser and its arguments, against optax."""
    where = f"{where}.optimizer"
    name = optimizer if isinstance(optimizer, str) else optimizer.get("name")
    arguments = {} if isinstance(optimizer, str) else {k: v for k, v in optimizer.items() if k != "name"}
    if not isinstance(name, str):
        raise SpecError(f'{where} = {show(optimizer)}: the table needs a name, as in {{ name = "adam", b1 = 0.8 }}')
    known = optimizers()
    if name not in known:
        raise SpecError(f'{where} = "{name}": optax has no such optimiser' + suggest(name, known))
    for key, value in arguments.items():
        if key == "learning_rate":
            raise SpecError(f"{where}.learning_rate: the learning rate is train.lr")
        if key not in known[name]:
            raise SpecError(f"{where}.{key}: optax.{name} takes no such argument" + suggest(key, known[name]))
        if isinstance(known[name][key], (int, float)) and not isinstance(value, (int, float)):
            raise SpecError(f"{where}.{key} = {show(value)}: must be a number")
    if momentum and name != "sgd":
        raise SpecError(f'train.momentum = {momentum}: is for optimizer = "sgd"; give it in the table of "{name}"')
    if momentum and arguments:
        raise SpecError(f"train.momentum = {momentum}: give it in the optimizer's table, as that table replaces plain SGD")
    _try(name, arguments, where)


def _try(name: str, arguments: dict[str, Any], where: str) -> None:
    import optax

    try:
        getattr(optax, name)(0.1, **arguments)
    except Exception as error:  # whatever optax makes of a wrong argument
        raise SpecError(f"{where} = {show(arguments)}: optax.{name} refuses it ({error})") from None


def optimizers() -> dict[str, dict[str, Any]]:
    """The optimisers of optax by name, with the arguments that they take beside the learning rate and their defaults."""
    import optax

    found: dict[str, dict[str, Any]] = {}
    for name in dir(optax):
        thing = getattr(optax, name)
        if name.startswith("_") or name in _NEED_MORE or not inspect.isfunction(thing):
            continue
        arguments = {p.name: p.default for p in inspect.signature(thing).parameters.values()}
        if next(iter(arguments), "") == "learning_rate":
            found[name] = {key: default for key, default in arguments.items() if key != "learning_rate"}
    return found
