"""What a system under measurement needs, with numpy alone: the shared arrays, its turn, and a file
to leave its models in.

A system is a program `NAME.py SHARED.npz MODELS.npz`. It says {"ready": {…}} when it has loaded,
compiled and warmed up; each time that a line arrives on its standard input it has a turn of some
rounds, and answers {"seconds": s} for each round; at the end it writes its models and says {"done":
{…}}. So the systems of a comparison take turns on the same machine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


class Shared:
    """What the shared file says."""

    def __init__(self, file: str) -> None:
        self.shared_file = file
        with np.load(file, allow_pickle=False) as arrays:
            self.settings: dict[str, Any] = json.loads(str(arrays["settings"]))
            self.schedule = arrays["schedule"]
            self.start, self.count = arrays["start"], arrays["count"]
            self.turn: int = self.settings["turn"]
            self.init = {
                name[5:]: arrays[name] for name in arrays.files if name.startswith("init/")
            }

    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """(x f32[T, ...], y i64[T]) as the model sees them, client after client."""
        with np.load(self.shared_file, allow_pickle=False) as arrays:
            x = arrays["x"].astype(np.float32)
            x -= arrays["mean"]
            x *= arrays["scale"]
            return x, arrays["y"].astype(np.int64)

    def of(self, client: int) -> slice:
        """Where the client's samples lie."""
        return slice(int(self.start[client]), int(self.start[client] + self.count[client]))


class Stage(Shared):
    """The shared arrays, and the talk with the program that compares."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # whatever libraries print is not part of the talk
        super().__init__(sys.argv[1])
        self.models_file = sys.argv[2]
        self._began, self._done = 0.0, 0

    def ready(self, **facts: Any) -> None:
        self._say(ready=facts)

    def begin(self) -> None:
        """A round begins: the first of a turn waits for it, and starts the clock."""
        if self._done % self.turn:
            return
        if not sys.stdin.readline():
            os._exit(1)  # the program that compares has gone
        self._began = time.perf_counter()

    def end(self, rounds: int = 1) -> None:
        """So many rounds are done; after the last of a turn, its seconds are said."""
        self._done += rounds
        if self._done % self.turn == 0:
            self._say(seconds=(time.perf_counter() - self._began) / self.turn)

    def rounds(self) -> Iterator[np.ndarray]:
        """The participants of each round, in this system's turns; the body of the loop is what is
        timed."""
        for ids in self.schedule:
            self.begin()
            yield ids
            self.end()

    def finish(self, models: dict[str, np.ndarray], **facts: Any) -> None:
        """Leave the models, named as `init`, [K, ...] each."""
        np.savez(self.models_file, **{name: np.asarray(value) for name, value in models.items()})
        self._say(done={"peak_rss_mib": peak_rss_mib(), **facts})

    def _say(self, **what: Any) -> None:
        self._out.write(json.dumps(what) + "\n")
        self._out.flush()


def peak_rss_mib() -> float:
    """The peak resident memory of this process, and of every process below it, added up."""
    if not Path("/proc/self").is_dir():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 2**10
        )
    parents, peaks = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":", 1) for line in status.read_text().splitlines() if ":" in line
            )
            process = int(status.parent.name)
            parents[process], peaks[process] = (
                int(fields["PPid"]),
                int(fields.get("VmHWM", "0 kB").split()[0]),
            )
        except (OSError, KeyError, ValueError):
            continue  # it has ended meanwhile
    mine, known = {os.getpid()}, 0
    while len(mine) > known:
        known = len(mine)
        mine |= {child for child, parent in parents.items() if parent in mine}
    return sum(peaks.get(process, 0) for process in mine) / 1024
