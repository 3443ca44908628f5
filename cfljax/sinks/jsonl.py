"""JSON lines: `DIR/logs/history.jsonl`, with a line per evaluation and a line per finished run. Needs no package."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions, Table
from cfljax.results.result import Result
from cfljax.sinks.common import PLACE, rows, summary


class JsonLines:
    """A sink that appends the lines of each run to one file, in a single write."""

    def __init__(self, folder: Path, name: str):
        self.path = folder / PLACE / "history.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.name = name

    def write(self, result: Result) -> None:
        """Append the run."""
        run: Table = {"sweep": self.name, "run": result.run, "method": result.method, "seed": result.seed}
        run |= result.record.get("varies", {})
        lines = [run | {"round": number} | values for number, values in rows(result)]
        lines.append(run | {"status": result.status, "error": result.record.get("error"), "summary": summary(result)})
        text = "".join(json.dumps(line, default=str) + "\n" for line in lines)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


JSONL = Entry(NoOptions, JsonLines)
