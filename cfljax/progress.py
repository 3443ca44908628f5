"""What a person sees while runs are under way: a bar with rounds, accuracy and time left, or a plain line every few seconds
where the output is no terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

EVERY = 5.0
"""Seconds between plain lines."""


class Progress:
    """Counts rounds over all runs of a sweep; `with` closes the bar."""

    def __init__(self, rounds: int, quiet: bool = False, stream: TextIO | None = None):
        self.total, self.done, self.finished = rounds, 0, {"done": 0, "diverged": 0, "failed": 0}
        self.stream = stream or sys.stderr
        self.begin = self.last = time.monotonic()
        self.quiet = quiet
        self.bar: Any = None
        self.current = ""

    def __enter__(self) -> Progress:
        if not self.quiet and self.stream.isatty():
            from tqdm import tqdm

            form = "{percentage:3.0f}% |{bar:24}| {n_fmt}/{total_fmt} rounds, {remaining} left  {postfix}"
            self.bar = tqdm(total=self.total, file=self.stream, bar_format=form, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def update(self, rounds: int, what: str, accuracy: float | None = None) -> None:
        """`rounds` more are done; `what` is running."""
        self.done += rounds
        self.current = what if accuracy is None else f"{what}, accuracy {accuracy:.3f}"
        if self.bar is not None:
            self.bar.set_postfix_str(self.current, refresh=False)
            self.bar.update(rounds)
        elif not self.quiet and time.monotonic() - self.last >= EVERY:
            self._line()

    def finish(self, status: str) -> None:
        """A run has ended."""
        self.finished[status] += 1

    def say(self, message: str) -> None:
        """A line of its own."""
        if self.bar is not None:
            self.bar.write(message, file=self.stream)
        else:
            print(message, file=self.stream, flush=True)

    def _line(self) -> None:
        self.last = time.monotonic()
        spent = self.last - self.begin
        left = spent / self.done * (self.total - self.done) if self.done else float("nan")
        runs = ", ".join(f"{n} {name}" for name, n in self.finished.items() if n) or "0 done"
        self.say(f"{self.done}/{self.total} rounds, runs: {runs}, about {clock(left)} left; {self.current}")


def clock(seconds: float) -> str:
    """`m:ss`, or `h:mm:ss`."""
    if seconds != seconds:
        return "?"
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
