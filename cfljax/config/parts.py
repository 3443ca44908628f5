"""The options `train.parts` (which parts of a model all clients share, a cluster shares, or none) and `train.freeze` (which do not
train)."""

from __future__ import annotations

from typing import Protocol

from cfljax.config.frozen import FrozenTable
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, Value, show
from cfljax.round.config import MethodConfig

SHARING = ("all", "cluster", "client")
"""Who shares a part: all clients, the members of a cluster, or nobody, so that it stays with the client."""
Pairs = tuple[tuple[str, str], ...]
"""(name of a part, its kind) for each part that is named."""


class SaysParts(Protocol):
    """The options of `train` about parts."""

    @property
    def parts(self) -> Table | None:
        """`train.parts`: name of a part → who shares it."""

    @property
    def freeze(self) -> str | tuple[str, ...] | None:
        """`train.freeze`: names of parts."""

    @property
    def schedule(self) -> str | None:
        """`train.schedule`."""


def read_parts(value: Value) -> FrozenTable | None:
    """Check the table; None if it has only "cluster", which is the default of every part. Raises a SpecError."""
    if value is None:
        return None
    for name, kind in value.items():
        if kind not in SHARING:
            told = suggest(kind, SHARING) if isinstance(kind, str) else ""
            raise SpecError(f'train.parts.{name} = {show(kind)}: must be "all", "cluster" or "client"' + told)
    return FrozenTable(value) if set(value.values()) - {"cluster"} else None


def read_frozen(value: Value) -> tuple[str, ...] | None:
    """Check the names of `train.freeze` and sort them; None if there are none. Raises a SpecError."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or "" in names:
        raise SpecError(f'train.freeze = {show(value)}: must name a part, such as "head", or a list of parts')
    return tuple(sorted(set(names)))


def list_pairs(options: MethodConfig, train: SaysParts) -> Pairs:
    """Return the parts of a run: those of `train.parts` and `train.freeze`, or the method's own; () if models are shared whole."""
    return options.parts or (*(train.parts or {}).items(), *((name, "frozen") for name in read_frozen(train.freeze) or ()))


def stay_home(options: MethodConfig, train: SaysParts) -> bool:
    """Return whether parts of the models stay with the clients."""
    return any(kind == "client" for _, kind in list_pairs(options, train))


def check_parts(label: str, options: MethodConfig, train: SaysParts) -> None:
    """Reject a method that cannot share parts of its models, or train them in turns."""
    own_steps = options.own_steps or hasattr(options, "local_steps") or getattr(options, "aggregate", "model") == "gradient"
    if train.schedule and own_steps:
        raise SpecError(f'train.schedule = "{train.schedule}": method.{label} takes gradient steps of its own; leave it out')
    where = divided_by(train)
    if not where:
        return
    twice = (train.parts or {}).keys() & set(read_frozen(train.freeze) or ())
    if twice:
        raise SpecError(f'train.freeze = "{min(twice)}": train.parts lists it too, but a frozen part is not shared; leave out one')
    if options.parts:
        own = ", ".join(f'{name} = "{kind}"' for name, kind in options.parts)
        raise SpecError(f"{where}: method.{label} itself has parts ({own}); take fedavg for others")
    if options.clusters == "auto":
        raise SpecError(f'{where}: method.{label}.clusters = "auto": what is sent depends on their number; give a number')
    if options.own_server:
        raise SpecError(f"{where}: the step of the server is method.{label}'s own, on whole models; leave it out for this method")
    if not options.averaged:
        raise SpecError(f"{where}: method.{label} does not average the models of clusters; leave it out for this method")


def divided_by(train: SaysParts) -> str:
    """Return the option that divides models into parts: "train.parts", "train.freeze", or "" if none does."""
    return "train.parts" if train.parts else "train.freeze" if train.freeze else ""
