"""The options `train.parts` (which parts of a model all clients share, a cluster shares, or none) and `train.freeze`."""

from __future__ import annotations

from cfljax.config.train import Train, read_frozen
from cfljax.errors import SpecError
from cfljax.round.config import MethodConfig

Pairs = tuple[tuple[str, str], ...]  # (name of a part, its kind) for each part that is named


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
