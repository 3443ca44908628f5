"""Weights & Biases: each run, grouped by sweep. Without a network: WANDB_MODE=offline, and `wandb sync` later."""

from __future__ import annotations

from pathlib import Path

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.results.result import Result
from cfljax.sinks.common import folder_of, need, rows, summary, title


class WeightsAndBiases:
    """A sink for Weights & Biases. Project, entity, mode and keys come from the settings and environment of wandb."""

    def __init__(self, folder: Path, name: str):
        self.package = need("wandb", "wandb")
        self.folder = folder_of(folder, "wandb")
        self.name = name

    def write(self, result: Result) -> None:
        """Send the run under its id, so that sending it again replaces it."""
        about = {"id": result.run, "name": title(result), "group": self.name, "tags": [result.method, result.status]}
        again = {"resume": "allow", "reinit": "finish_previous"}
        run = self.package.init(**about, **again, config=result.config, dir=str(self.folder))
        for number, values in rows(result):
            run.log(values, step=number)
        run.summary.update(summary(result))
        run.finish(exit_code=0 if result.status == "done" else 1)


WANDB = Entry(NoOptions, WeightsAndBiases)
