"""The options `train.parts` (which parts of a model everybody shares, a cluster shares, or nobody) and `train.freeze` (which do not
train)."""

from __future__ import annotations

from typing import Protocol

from cfljax.config.frozen import FrozenTable
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, Value, show
from cfljax.round.config import MethodConfig

KINDS = ("all", "cluster", "client")
"""Who shares a part: everybody, the members of a cluster, or nobody, so that it stays with the client."""
Pairs = tuple[tuple[str, str], ...]
"""(name of a part, its kind) for each part that is named."""


class SaysParts(Protocol):
    """What the table `train` says of parts."""

    @property
    def parts(self) -> Table | None:
        """`train.parts`: name of a part → who shares it."""

    @property
    def freeze(self) -> str | tuple[str, ...] | None:
        """`train.freeze`: names of parts."""

    @property
    def schedule(self) -> str | None:
        """`train.schedule`."""


def read(value: Value) -> FrozenTable | None:
    """The checked table; None where it says nothing but "cluster", which every part is without it. Raises SpecError."""
    if value is None:
        return None
    for name, kind in value.items():
        if kind not in KINDS:
            told = suggest(kind, KINDS) if isinstance(kind, str) else ""
            raise SpecError(f'train.parts.{name} = {show(kind)}: must be "all", "cluster" or "client"' + told)
    return FrozenTable(value) if set(value.values()) - {"cluster"} else None


def frozen(value: Value) -> tuple[str, ...] | None:
    """The checked names of `train.freeze`, in their order; None where there are none. Raises SpecError."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or "" in names:
        raise SpecError(f'train.freeze = {show(value)}: must name a part, such as "head", or a list of parts')
    return tuple(sorted(set(names)))


def pairs_of(options: MethodConfig, train: SaysParts) -> Pairs:
    """The parts of a run: those of `train.parts` and `train.freeze`, or those that its method itself has; () if models are shared
    whole."""
    return options.parts or (*(train.parts or {}).items(), *((name, "frozen") for name in frozen(train.freeze) or ()))


def stay_home(options: MethodConfig, train: SaysParts) -> bool:
    """Whether parts of the models stay with the clients."""
    return any(kind == "client" for _, kind in pairs_of(options, train))


def check_parts(label: str, options: MethodConfig, train: SaysParts) -> None:
    """Raise a SpecError if the method cannot share parts of its models, or train them in turns."""
    own_steps = options.own_steps or hasattr(options, "local_steps") or getattr(options, "aggregate", "model") == "gradient"
    if train.schedule and own_steps:
        raise SpecError(f'train.schedule = "{train.schedule}": method.{label} takes gradient steps of its own; leave it out')
    where = divided_by(train)
    if not where:
        return
    twice = (train.parts or {}).keys() & set(frozen(train.freeze) or ())
    if twice:
        raise SpecError(f'train.freeze = "{min(twice)}": it does not train, and train.parts says who shares it; leave out one')
    if options.parts:
        own = ", ".join(f'{name} = "{kind}"' for name, kind in options.parts)
        raise SpecError(f"{where}: method.{label} itself has parts ({own}); take fedavg for others")
    if options.clusters == "auto":
        raise SpecError(f'{where}: method.{label}.clusters = "auto": what travels depends on their number; give a number')
    if options.own_server:
        raise SpecError(f"{where}: the step of the server is method.{label}'s own, on whole models; leave it out for this method")
    if not options.averaged:
        raise SpecError(f"{where}: method.{label} keeps other models than averages of clusters; leave it out for this method")


def divided_by(train: SaysParts) -> str:
    """The option that divides models into parts: "train.parts", "train.freeze", or "" if none does."""
    return "train.parts" if train.parts else "train.freeze" if train.freeze else ""
