"""The table `train.stop`: when a run ends before its last round."""

from __future__ import annotations

import dataclasses

from cfljax.errors import SpecError
from cfljax.registry.options import option


@dataclasses.dataclass(frozen=True)
class Stop:
    """A run ends at the first evaluation at which its metric has not become better for `patience` rounds."""

    patience: int = option(20, "rounds without a better value", low=1)
    metric: str = option("val_loss", "metric to watch; none uses test data", choices=("val_loss", "val_accuracy", "train_loss"))


NEEDS_VALIDATION = "needs validation samples; add data.validation = 0.1"


def check_stop(stop: Stop | None, validation: float) -> None:
    """Reject a metric of validation samples if there are none."""
    if stop is not None and stop.metric != "train_loss" and not validation:
        raise SpecError(f'train.stop.metric = "{stop.metric}": {NEEDS_VALIDATION}, or take "train_loss"')
