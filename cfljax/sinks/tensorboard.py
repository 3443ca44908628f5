"""TensorBoard event files, written without TensorFlow: `tensorboard --logdir DIR/logs/tensorboard`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.results.result import Result
from cfljax.sinks.common import flat, folder_of, need, rows, summary, title


class TensorBoard:
    """A sink that writes a folder of event files for each run."""

    def __init__(self, folder: Path, name: str):
        self.package = need("tensorboardX", "tensorboard")
        self.folder = folder_of(folder, "tensorboard")
        self.name = name

    def write(self, result: Result) -> None:
        """Write the run's curves, its options and its headline numbers."""
        words = re.sub(r"[^\w.=+-]+", "_", title(result))
        where = self.folder / f"{words[:80]}-{result.run}"
        for old in where.glob("events.*"):
            old.unlink()  # files of an earlier attempt
        with self.package.SummaryWriter(str(where)) as writer:
            for number, values in rows(result):
                for quantity, value in values.items():
                    writer.add_scalar(quantity, value, number)
            writer.add_text("config", "    " + json.dumps(result.config, indent=1, default=str).replace("\n", "\n    "))
            for quantity, value in summary(result).items():
                writer.add_scalar(f"summary/{quantity}", value, 0)
            for option, value in flat(result.record.get("varies", {})).items():
                writer.add_text(f"varies/{option}", str(value))


TENSORBOARD = Entry(NoOptions, TensorBoard)
