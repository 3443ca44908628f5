"""Progress of a sweep: a bar for each running batch and one for the sweep, or without a terminal a
line every few seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from cfljax.experiment.times import format_seconds

if TYPE_CHECKING:
    from tqdm import tqdm

# Seconds between plain lines
PLAIN_LINE_SECONDS = 5.0
BAR_FORMAT = "{desc:<28.28} {percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} rounds{postfix}"


def do_nothing() -> None:
    """Stand for a function that is called after each run that has ended."""


class Progress:
    """Counts rounds over all runs of a sweep; `with` closes the lines."""

    # Is called after each run that has ended
    ended: Callable[[], None] = staticmethod(do_nothing)

    def __init__(
        self,
        rounds: int,
        runs: int = 1,
        quiet: bool = False,
        stream: TextIO | None = None,
        lines: int = 1,
        programs: int = 1,
    ):
        self.lines = lines
        self.programs = programs
        self.total = rounds
        self.runs = runs
        self.done = self.begun = 0
        self.finished = {"done": 0, "diverged": 0, "failed": 0}
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.last = time.monotonic()
        self.since = [self.last] * lines
        self.ready = [False] * lines
        self.rounds_left = [0] * lines
        self.asked = self.compiling = self.training = 0.0
        self.trained = 0
        self.batches: list[tqdm[object]] = []
        self.sweep: tqdm[object] | None = None
        self.current = [""] * lines

    def __enter__(self) -> Progress:
        if not self.quiet and _has_room(self.stream, self.lines):
            from tqdm import tqdm

            look = {"file": self.stream, "leave": False, "dynamic_ncols": True}
            self.batches = [
                tqdm(total=1, bar_format=BAR_FORMAT, position=at, **look)
                for at in range(self.lines)
            ]
            self.sweep = tqdm(total=self.total, bar_format=BAR_FORMAT, position=self.lines, **look)
            self.sweep.set_description_str("sweep", refresh=False)
        return self

    def __exit__(self, *_: object) -> None:
        for bar in [*self.batches, self.sweep]:
            if bar is not None:
                bar.close()

    def start(self, name: str, rounds: int, line: int = 0) -> None:
        """Show that a batch begins, with this number of rounds of all its runs together; compiling
        comes first."""
        self.current[line] = name
        self.since[line] = time.monotonic()
        self.ready[line] = False
        self.asked += rounds
        self.rounds_left[line] = rounds
        if self.batches:
            self.batches[line].reset(total=rounds)
            self.batches[line].set_description_str(name, refresh=False)
            self.batches[line].set_postfix_str("compiling", refresh=True)
            self._refresh()
        elif not self.quiet and self.begun == 0:
            self.say(f"compiling {name}")
        self.begun += 1

    def update(self, rounds: int, accuracy: float | None = None, line: int = 0) -> None:
        """Count `rounds` more of the batch. Before its first update it has compiled, which is no
        part of the speed."""
        now = time.monotonic()
        spent = now - self.since[line]
        self.since[line] = now
        self.rounds_left[line] -= rounds
        if not self.ready[line]:
            self.compiling += spent
            self.ready[line] = True
        elif rounds > 0:
            self.training += spent
            self.trained += rounds
        if self.batches:
            if accuracy is not None:
                self.batches[line].set_postfix_str(f"accuracy {accuracy:.3f}", refresh=False)
            self.batches[line].update(rounds)
        self.pass_over(rounds, accuracy, line)

    def pass_over(self, rounds: int, accuracy: float | None = None, line: int = 0) -> None:
        """Count `rounds` more of the sweep, done here or elsewhere."""
        self.done += rounds
        if self.sweep is not None:
            self.sweep.set_postfix_str(
                f"{self._format_state()}, {self.estimate_left()} left", refresh=False
            )
            self.sweep.update(rounds)
        elif not self.quiet and time.monotonic() - self.last >= PLAIN_LINE_SECONDS:
            self._print_line(accuracy, line)

    def finish(self, status: str, result: str = "") -> None:
        """Count a run that has ended. The result, in words, of the first run that is done is shown
        at once."""
        self.finished[status] += 1
        if status == "done" and self.finished["done"] == 1 and result and not self.quiet:
            self.say(f"first of {self.runs} runs: {result}" if self.runs > 1 else result)
        self._refresh()
        self.ended()

    def say(self, message: str) -> None:
        """Show a message in a new line."""
        if self.sweep is not None:
            self.sweep.write(message, file=self.stream)
        else:
            print(message, file=self.stream, flush=True)

    def _format_state(self) -> str:
        """Format how many runs have ended in which way, and how many are to do."""
        ended = sum(self.finished.values())
        states = [f"{n} {name}" for name, n in self.finished.items() if n or name == "done"]
        return ", ".join([*states, f"{max(self.runs - ended, 0)} to do"])

    def estimate_left(self) -> str:
        """Estimate the time left, by the speed of training and what programs took to compile so
        far; `?`: unknown."""
        if not self.trained:
            return "?"
        # Lines that have rounds to do compute side by side. How many programs have been compiled is
        # estimated by the share of rounds that were started.
        busy = max(1, sum(rest > 0 for rest in self.rounds_left))
        seen = min(self.programs, max(busy, self.programs * self.asked / max(self.total, 1)))
        training = self.training / self.trained * (self.total - self.done)
        return format_seconds((training + self.compiling / seen * (self.programs - seen)) / busy)

    def _refresh(self) -> None:
        if self.sweep is not None:
            self.sweep.set_postfix_str(
                f"{self._format_state()}, {self.estimate_left()} left", refresh=True
            )

    def _print_line(self, accuracy: float | None, line: int) -> None:
        """Print a line on the sweep and the batch that has just made progress."""
        self.last = time.monotonic()
        now = (
            self.current[line]
            if accuracy is None
            else f"{self.current[line]}, accuracy {accuracy:.3f}"
        )
        self.say(
            f"{self.done}/{self.total} rounds, runs: {self._format_state()}, "
            f"about {self.estimate_left()} left; {now}"
        )


def _has_room(stream: TextIO, lines: int) -> bool:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return stream.isatty() and size.columns >= 60 and size.lines > lines + 1
