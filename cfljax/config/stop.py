"""The table `train.stop`: when a run ends before its last round."""

from __future__ import annotations

import dataclasses

from cfljax.errors import SpecError
from cfljax.methods.shared.config import MethodConfig
from cfljax.registry.options import Value, check, option


@dataclasses.dataclass(frozen=True)
class Stop:
    """A run ends at the first evaluation at which its metric has not become better for `patience` rounds."""

    patience: int = option(20, "rounds without a better value", low=1)
    metric: str = option(
        "val_loss", "of the history; none is measured on test data", choices=("val_loss", "val_accuracy", "train_loss")
    )


def read_stop(value: Value) -> Stop | None:
    """The checked options of the table; None and "none" stand for no table."""
    if value is None or value == "none":
        return None
    if isinstance(value, Stop):
        return value
    return check(Stop, dict(value), "train.stop")


NEEDED = "needs a part of the clients' samples that nobody trains on; add data.validation = 0.1"


def check_stop(stop: Stop | None, validation: float) -> None:
    """Raise a SpecError for a metric of validation samples where none are set aside."""
    if stop is not None and stop.metric != "train_loss" and not validation:
        raise SpecError(f'train.stop.metric = "{stop.metric}": {NEEDED}, or take "train_loss"')


def check_tries(label: str, options: MethodConfig, validation: float, noise: float, served: bool) -> None:
    """Raise a SpecError where numbers of clusters cannot be tried: without validation samples, with noise of `train.privacy`, or
    with an optimiser of the server (`served`), which tries do not have; and for rounds of tries where nothing is tried."""
    if not options.counts_clusters or getattr(options, "auto", None) != "val_loss":
        rounds, usual = getattr(options, "try_rounds", None), getattr(type(options), "try_rounds", None)
        if rounds != usual:
            why = 'numbers of clusters are tried only if they are to be found, with auto = "val_loss"; leave it out'
            raise SpecError(f"method.{label}.try_rounds = {rounds}: {why}")
        return
    if not validation:
        raise SpecError(f'method.{label}.auto = "val_loss": {NEEDED}, or take "silhouette"')
    if noise:
        why = "what the tries of all numbers make public is not in ε"
        raise SpecError(f'method.{label}.auto = "val_loss" with train.privacy.noise = {noise:g}: {why}; take "silhouette"')
    if served:
        why = "numbers are tried with plain means"
        raise SpecError(f'method.{label}.auto = "val_loss" with train.server: {why}; take "silhouette"')
