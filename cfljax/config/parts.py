"""The options `train.parts` (which parts of a model all clients share, a cluster shares, or none) and `train.freeze` (which do not
train)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfljax.config.frozen import FrozenTable
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Value, show
from cfljax.round.config import MethodConfig

if TYPE_CHECKING:
    from cfljax.config.train import Train

SHARING = ("all", "cluster", "client")
"""Who shares a part: all clients, the members of a cluster, or nobody, so that it stays with the client."""
Pairs = tuple[tuple[str, str], ...]
"""(name of a part, its kind) for each part that is named."""


def read_parts(value: Value) -> FrozenTable | None:
    """Check the table; None if it has only "cluster", which is the default of every part. Raises a SpecError."""
    if value is None:
        return None
    for name, kind in value.items():
        if kind not in SHARING:
            why = suggest(kind, SHARING) if isinstance(kind, str) else ""
            raise SpecError(f'train.parts.{name} = {show(kind)}: must be "all", "cluster" or "client"' + why)
    return FrozenTable(value) if set(value.values()) - {"cluster"} else None


def read_frozen(value: Value) -> tuple[str, ...] | None:
    """Check the names of `train.freeze` and sort them; None if there are none. Raises a SpecError."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or "" in names:
        raise SpecError(f'train.freeze = {show(value)}: must name a part, such as "head", or a list of parts')
    return tuple(sorted(set(names)))


def list_pairs(options: MethodConfig, train: Train) -> Pairs:
    """Return the parts of a run: from `train.parts` and `train.freeze`, or the method's own; () if models are shared whole."""
    return options.parts or (*(train.parts or {}).items(), *((name, "frozen") for name in read_frozen(train.freeze) or ()))


def stay_home(options: MethodConfig, train: Train) -> bool:
    """Return whether parts of the models stay with the clients."""
    return any(kind == "client" for _, kind in list_pairs(options, train))


def check_parts(label: str, options: MethodConfig, train: Train) -> None:
    """Reject a part that is both shared and frozen, and FedNova of what everybody shares."""
    for part, kind in list_pairs(options, train):
        if kind == "all" and getattr(options, "average", "") == "nova":
            why = f'a part that all clients share is not averaged by steps; make it {part} = "cluster", or take average = "samples"'
            raise SpecError(f'method.{label}.average = "nova" with train.parts.{part} = "all": {why}')
    if twice := (train.parts or {}).keys() & set(read_frozen(train.freeze) or ()):
        raise SpecError(f'train.freeze = "{min(twice)}": train.parts lists it too, but a frozen part is not shared; leave out one')


def divided_by(train: Train) -> str:
    """Return the option that divides models into parts: "train.parts", "train.freeze", or "" if none does."""
    return "train.parts" if train.parts else "train.freeze" if train.freeze else ""
