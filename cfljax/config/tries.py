"""What numbers of clusters that are tried (`auto = "val_loss"`) do not go together with."""

from __future__ import annotations

from cfljax.config.data import Data
from cfljax.config.stop import NEEDED
from cfljax.config.train import Train
from cfljax.errors import SpecError
from cfljax.methods.shared.config import MethodConfig


def check_tries(label: str, options: MethodConfig, data: Data, train: Train) -> None:
    """Raise a SpecError where numbers cannot be tried in the rounds of this run; and for rounds of tries where nothing is tried."""
    rounds, usual = (getattr(each, "try_rounds", 0) for each in (options, type(options)))
    if not options.counts_clusters or getattr(options, "auto", None) != "val_loss":
        if rounds != usual:
            why = 'numbers of clusters are tried only if they are to be found, with auto = "val_loss"; leave it out'
            raise SpecError(f"method.{label}.try_rounds = {rounds}: {why}")
        return
    where, rather = f'method.{label}.auto = "val_loss"', 'take "silhouette"'
    if not data.validation:
        raise SpecError(f"{where}: {NEEDED}, or {rather}")
    if found := _refused(train):
        key, why = found[0]
        raise SpecError(f"{where} with train.{key}: {why}; {rather}")
    if data.drift is not None and min([begin for begin, _ in data.drift.spans], default=0) < rounds:
        why = f"each number is tried for {rounds} rounds on the data of the first; give fewer try_rounds, or {rather}"
        raise SpecError(f"{where} with data.drift: {why}")


def _refused(train: Train) -> list[tuple[str, str]]:
    """What the rounds of this run have that tries do not have or count: (key in `train`, why) each."""
    found, privacy = [], train.transit.privacy
    if privacy is not None and privacy.noise:
        found.append((f"privacy.noise = {privacy.noise:g}", "what the tries of all numbers make public is not in ε"))
    if train.transit.choice is not None:
        found.append(("privacy.choice", "the choices in the tries of all numbers are not in ε"))
    if train.server_table is not None:
        found.append(("server", "numbers are tried with plain means"))
    if train.clocked is not None:
        found.append(("clock", "the time of the tries is not counted, and they know neither deadline nor trace"))
    return found
