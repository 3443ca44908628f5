"""JSON lines: `DIR/logs/history.jsonl`, a line per evaluation and one per finished run. Needs nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.results.result import Result
from cfljax.sinks.common import PLACE, rows, summary


class JsonLines:
    """One file for all runs; a run's lines are written in one go."""

    def __init__(self, folder: Path, name: str):
        self.path = folder / PLACE / "history.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.name = name

    def write(self, result: Result) -> None:
        """Append the run."""
        run: dict[str, Any] = {"sweep": self.name, "run": result.run, "method": result.method, "seed": result.seed}
        run |= result.record.get("varies", {})
        lines = [run | {"round": number} | values for number, values in rows(result)]
        lines.append(run | {"status": result.status, "error": result.record.get("error"), "summary": summary(result)})
        text = "".join(json.dumps(line, default=str) + "\n" for line in lines)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing is open."""


JSONL = Entry(NoOptions, JsonLines)
