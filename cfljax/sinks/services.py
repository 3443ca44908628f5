"""The sinks of this package: JSON lines (which need no package), TensorBoard, Weights & Biases."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cfljax.registry.options import Table
from cfljax.results.result import Result
from cfljax.sinks.common import LOGS_FOLDER, folder_of, need, rows, summary, title


class JsonLines:
    """JSON lines: `DIR/logs/history.jsonl`, with a line per evaluation and a line per finished run.
    One write appends a run."""

    def __init__(self, folder: Path, name: str):
        self.path = folder / LOGS_FOLDER / "history.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.name = name

    def write(self, result: Result) -> None:
        """Append the run."""
        run: Table = {
            "sweep": self.name,
            "run": result.run,
            "method": result.method,
            "seed": result.seed,
        }
        run |= result.record.get("varies", {})
        lines = [run | {"round": number} | values for number, values in rows(result)]
        lines.append(
            run
            | {
                "status": result.status,
                "error": result.record.get("error"),
                "summary": summary(result),
            }
        )
        text = "".join(json.dumps(line, default=str) + "\n" for line in lines)
        # Without a buffer the lines are one write, so that lines of two processes do not mix
        with self.path.open("ab", buffering=0) as file:
            file.write(text.encode())


class TensorBoard:
    """TensorBoard: a folder of event files for each run, written without TensorFlow. `tensorboard
    --logdir DIR/logs/tensorboard` shows them."""

    def __init__(self, folder: Path, name: str):
        self.package = need("tensorboardX", "tensorboard")
        self.folder = folder_of(folder, "tensorboard")
        self.name = name

    def write(self, result: Result) -> None:
        """Write the run's curves, its options and its headline numbers."""
        words = re.sub(r"[^\w.=+-]+", "_", title(result))
        where = self.folder / f"{words[:80]}-{result.run}"
        for old in where.glob("events.*"):
            # TensorBoard would show the events of an earlier attempt of the run, too
            old.unlink()
        with self.package.SummaryWriter(str(where)) as writer:
            for number, values in rows(result):
                for quantity, value in values.items():
                    writer.add_scalar(quantity, value, number)
            writer.add_text(
                "config",
                "    " + json.dumps(result.config, indent=1, default=str).replace("\n", "\n    "),
            )
            for quantity, value in summary(result).items():
                writer.add_scalar(f"summary/{quantity}", value, 0)
            for option, value in result.record.get("varies", {}).items():
                writer.add_text(f"varies/{option}", str(value))


class WeightsAndBiases:
    """Weights & Biases: each run, grouped by sweep. Project, entity, mode and keys come from the
    settings and environment of wandb. Without a network: WANDB_MODE=offline, and `wandb sync`
    later."""

    def __init__(self, folder: Path, name: str):
        self.package = need("wandb", "wandb")
        self.folder = folder_of(folder, "wandb")
        self.name = name

    def write(self, result: Result) -> None:
        """Send the run under its id, so that sending it again replaces it."""
        about = {
            "id": result.run,
            "name": title(result),
            "group": self.name,
            "tags": [result.method, result.status],
        }
        again = {"resume": "allow", "reinit": "finish_previous"}
        run = self.package.init(**about, **again, config=result.config, dir=str(self.folder))
        for number, values in rows(result):
            run.log(values, step=number)
        run.summary.update(summary(result))
        run.finish(exit_code=0 if result.status == "done" else 1)
