"""Weights & Biases: a run each, grouped by sweep. Without a network: WANDB_MODE=offline, and `wandb sync` later."""

from __future__ import annotations

from pathlib import Path

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.results.result import Result
from cfljax.sinks.common import need, place, rows, summary, title


class WeightsAndBiases:
    """Project, entity, mode and keys come from wandb's own settings and environment."""

    def __init__(self, folder: Path, name: str):
        self.package = need("wandb", "wandb")
        self.folder = place(folder, "wandb")
        self.name = name

    def write(self, result: Result) -> None:
        """The run under its own id, so that writing it again replaces it."""
        run = self.package.init(
            id=result.run,
            name=title(result),
            group=self.name,
            config=result.config,
            dir=str(self.folder),
            resume="allow",
            reinit="finish_previous",
            tags=[result.method, result.status],
        )
        for number, values in rows(result):
            run.log(values, step=number)
        run.summary.update(summary(result))
        run.finish(exit_code=0 if result.status == "done" else 1)

    def close(self) -> None:
        """Every run is finished already."""


WANDB = Entry(NoOptions, WeightsAndBiases)
