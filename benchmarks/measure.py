"""Running the systems of a comparison by turns, and the rows that come of it."""

from __future__ import annotations

import json
import math
import os
import selectors
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

KEYS = ("workload", "system", "median_s", "min_s", "max_s", "compile_s", "peak_rss_mib", "accuracy")
"""What every row has, in this order, before `about`."""
PAUSE = 0.15
"""Seconds between two systems' turns, in which the threads of the one come to rest."""


def row(
    workload: str, system: str, about: dict[str, Any], **figures: float | None
) -> dict[str, Any]:
    """A row of results; figures that are not known are null."""
    unknown = set(figures) - set(KEYS)
    if unknown:
        raise ValueError(f"no such figures: {sorted(unknown)}")
    named = {"workload": workload, "system": system} | {
        key: _number(figures.get(key)) for key in KEYS[2:]
    }
    return named | {"about": about}


def _number(value: float | None) -> float | None:
    """Six digits; null for what JSON has no word for."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def timed(
    workload: str, system: str, seconds: list[float], about: dict[str, Any], **figures: float | None
) -> dict[str, Any]:
    """A row with the median and the range of these seconds."""
    return row(
        workload,
        system,
        about | {"seconds": [float(f"{s:.6g}") for s in seconds]},
        median_s=statistics.median(seconds),
        min_s=min(seconds),
        max_s=max(seconds),
        **figures,
    )


def write_rows(rows: list[dict[str, Any]], file: Path | None) -> None:
    """The rows as a JSON list, whole or not at all."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}")
        part.write_text(json.dumps(rows, indent=1) + "\n")
        part.replace(file)


PATIENCE = 900.0
"""Seconds after which a system that says nothing is given up."""


class SystemFailed(Exception):
    """A system that did not start or ended early; the message is one line."""


class System:
    """A system under measurement: a process that trains a turn's rounds each time it is told to."""

    def __init__(
        self,
        name: str,
        command: list[str],
        shared: Path,
        folder: Path,
        environment: dict[str, str] | None = None,
    ):
        self.name, self.models_file = name, folder / f"{shared.stem}-{name}-models.npz"
        self.seconds: list[float] = []
        self.facts: dict[str, Any] = {}
        self._log = folder / f"{shared.stem}-{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command[:2], str(shared), str(self.models_file), *command[2:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )
        self._heard = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self.facts |= self._hear("ready")

    def turn(self) -> None:
        """Seconds per round of one turn more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
        except BrokenPipeError:
            raise SystemFailed(self._reason()) from None
        self.seconds.append(self._hear("seconds"))

    def finish(self) -> None:
        """Its models are written, and the process ends."""
        self.facts |= self._hear("done")
        self.stop()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _hear(self, wanted: str) -> Any:
        """The answer of that name: a line of JSON."""
        assert self._process.stdout is not None
        until = time.monotonic() + PATIENCE
        while b"\n" not in self._heard:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                self._process.kill()
                raise SystemFailed(f"silent for {PATIENCE:.0f} s")
            some = os.read(self._process.stdout.fileno(), 1 << 16)
            if not some:
                raise SystemFailed(self._reason())
            self._heard += some
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)[wanted]

    def _reason(self) -> str:
        """The last line that the process wrote to its standard error."""
        self._process.wait(20)
        lines = [
            line.strip()
            for line in self._log.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        return (lines[-1] if lines else f"ended with exit code {self._process.returncode}")[:300]


def by_turns(systems: list[System], turns: int) -> dict[str, str]:
    """Every system trains every turn's rounds, one system at a time, the order moving on by one
    each turn. Name -> reason of those that failed on the way."""
    failed: dict[str, str] = {}
    for t in range(turns):
        order = systems[t % len(systems) :] + systems[: t % len(systems)]
        for system in order:
            if system.name not in failed:
                try:
                    time.sleep(PAUSE)
                    system.turn()
                except SystemFailed as error:
                    failed[system.name] = str(error)
    for system in systems:
        if system.name not in failed:
            try:
                system.finish()
            except SystemFailed as error:
                failed[system.name] = str(error)
    return failed
