"""Progress of a run, a sweep or a search: in a terminal and in a notebook a display that is updated
in place, with a line for each running batch and one for everything; elsewhere a plain line now and
then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TextIO

from cfljax.experiment.times import format_seconds
from cfljax.launch.display import LinesAbove, Terminal, find_display
from cfljax.launch.time_left import Line, Seen, Work

# Seconds between two pictures of the display
REFRESH_SECONDS = 0.5
# Seconds between plain lines: a twentieth of the time so far, within these bounds
MIN_PLAIN_LINE_SECONDS = 5.0
MAX_PLAIN_LINE_SECONDS = 60.0
NAME_COLUMNS = 32
BAR_COLUMNS = 20


def do_nothing(progress: Progress) -> None:
    """Stand for a function that is called when progress was made."""


class Progress:
    """Counts the rounds and runs of all phases; `with` shows them."""

    # Is called in the process that shows progress, after each event
    changed: Callable[[Progress], None] = staticmethod(do_nothing)

    def __init__(
        self, *phases: Work, quiet: bool = False, stream: TextIO | None = None, lines: int = 1
    ):
        """`phases`: what is to do, in order. `lines`: how many batches are computed side by
        side."""
        self.quiet = quiet
        self.stream = stream or sys.stderr
        self.lines = lines
        self.display = None if quiet else find_display(self.stream, stream is not None)
        self.seen = Seen()
        self.running: list[Line | None] = [None] * lines
        self.done: float = 0
        self.finished = Counter({"done": 0})
        self.begin = self.last = self.phase_begin = time.monotonic()
        self.said_first = False
        self.phases = list(phases) or [Work({})]
        self._begin_phase()
        self.lock = threading.RLock()
        self.closed = threading.Event()
        self.above: LinesAbove | None = None
        self.redirected = contextlib.ExitStack()

    @property
    def phase(self) -> Work:
        """The phase that is being computed."""
        return self.phases[0]

    @property
    def total(self) -> float:
        """The rounds of this start, done or still to do."""
        return self.done + sum(sum(work.rounds.values()) for work in self._list_left())

    def _begin_phase(self) -> None:
        self.left = Counter(self.phase.rounds)
        self.batches_left = self.phase.batches
        self.runs_ended = 0
        self.is_first_batch = True

    def enter(self, work: Work, then: Sequence[Work] = (), lines: int = 1) -> None:
        """Begin the next phase. `then`: the phases that follow it. `lines`: how many batches are
        computed side by side in it."""
        with self.lock:
            self.phases = [work, *then]
            self.lines = lines
            self.running = [None] * lines
            self.phase_begin = time.monotonic()
            self._begin_phase()
        if any(work.rounds.values()) and self.display is None and not self.quiet:
            self.say(work.name)

    def __enter__(self) -> Progress:
        if not self.quiet:
            threading.Thread(target=self._refresh_again_and_again, daemon=True).start()
        if isinstance(self.display, Terminal) and sys.stdout.isatty():
            self.above = LinesAbove(sys.stdout, self._print_above)
            self.redirected.enter_context(contextlib.redirect_stdout(self.above))
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.redirected.close()
        with self.lock:
            if self.display is not None:
                spent = format_seconds(time.monotonic() - self.begin)
                state = self.describe_state() or f"{self.done:.0f} rounds"
                self.display.close(f"{state} in {spent}")
            if self.above is not None:
                self.above.finish()

    def start(self, name: str, rounds: int, label: str = "", line: int = 0) -> None:
        """Show that a batch of this label begins, with this number of rounds of all its runs
        together; compiling comes first."""
        now = time.monotonic()
        with self.lock:
            if self.is_first_batch:
                self.seen.phases.append(now - self.phase_begin)
                self.is_first_batch = False
            self.batches_left = max(0, self.batches_left - 1)
            first = not self.seen.compiled and not any(self.running)
            self.running[line] = Line(name, label or name, rounds, 0, now)
        if first and self.display is None and not self.quiet:
            self.say(f"compiling {name}")
        self.refresh()

    def update(self, rounds: int, accuracy: float | None = None, line: int = 0) -> None:
        """Count `rounds` more of the batch. Before its first update it has compiled, which is no
        part of the speed."""
        now = time.monotonic()
        with self.lock:
            batch = self.running[line] or Line("", "", max(rounds, 0), 0, now)
            if not batch.ready:
                self.seen.add_beginning(batch.label, batch.since, now)
            elif rounds > 0:
                self.seen.add_rounds(batch.label, rounds, now - batch.since)
            self.running[line] = batch._replace(
                done=batch.done + rounds,
                since=now,
                ready=True,
                accuracy=batch.accuracy if accuracy is None else accuracy,
            )
        self.pass_over(rounds, batch.label)

    def pass_over(self, rounds: int, label: str = "") -> None:
        """Count `rounds` more of this label, done here or elsewhere."""
        with self.lock:
            self.done += rounds
            self.left[label] -= rounds
        self.refresh()
        self.changed(self)

    def finish(self, status: str, result: str = "") -> None:
        """Count a run that has ended. The result, in words, of the first run that is done is shown
        at once."""
        with self.lock:
            self.finished[status] += 1
            self.runs_ended += 1
            show = status == "done" and result and not self.said_first and not self.quiet
            self.said_first = self.said_first or status == "done"
        if show:
            runs = self.phase.runs
            self.say(f"first of {runs} runs: {result}" if runs > 1 else result)
        self.refresh()
        self.changed(self)

    def say(self, message: str) -> None:
        """Show a message in a new line."""
        with self.lock:
            if self.display is None:
                print(message, file=self.stream, flush=True)
            else:
                self.display.say(message)
                self.display.paint(self._write_lines())

    def _print_above(self, line: str, stream: TextIO) -> None:
        """Print a line of somebody else's where the display stands, and the display below it."""
        assert self.display is not None
        with self.lock:
            self.display.paint([])
            print(line, file=stream, flush=True)
            self.display.paint(self._write_lines())

    def describe_state(self) -> str:
        """Say how far it is: the phase, and how many runs have ended in which way."""
        work = self.phase
        before = work.before
        parts = [work.name] if work.name else []
        if work.runs:
            ended = f"{before + self.runs_ended} of {before + work.runs} runs"
            parts.append(f"{ended} ({before} before)" if before else ended)
        parts += [f"{n} {status}" for status, n in self.finished.items() if n and status != "done"]
        return ", ".join(parts)

    @property
    def share(self) -> float:
        """The part of all runs that is done, between 0 and 1: runs done before, and the rounds of
        the others."""
        work = self.phase
        runs = work.before + work.runs
        now = self.done / self.total if self.total else 1.0
        return (work.before + work.runs * now) / runs if runs else now

    def list_labels(self) -> frozenset[str]:
        """Return the labels of the batches that are being computed."""
        with self.lock:
            return frozenset(
                line.label for line in self.running if line is not None and line.done < line.rounds
            )

    def seconds_left(self) -> float | None:
        """Estimate the seconds until the end; None: unknown."""
        with self.lock:
            batches = [line for line in self.running if line is not None]
            now = time.monotonic()
            return self.seen.estimate(self._list_left(), batches, now, self.lines)

    def _list_left(self) -> list[Work]:
        """Return what is left to do of this phase, and the phases after it."""
        left = {label: max(rounds, 0) for label, rounds in self.left.items()}
        return [self.phase._replace(rounds=left, batches=self.batches_left), *self.phases[1:]]

    def format_left(self) -> str:
        """Format the time left; "" before anything is known."""
        left = self.seconds_left()
        return "" if left is None else f"about {format_seconds(left)} left"

    def _refresh_again_and_again(self) -> None:
        while not self.closed.wait(REFRESH_SECONDS):
            self.refresh()

    def refresh(self) -> None:
        """Paint the display if it is old enough, or print a plain line if one is due."""
        now = time.monotonic()
        with self.lock:
            every = REFRESH_SECONDS / 2
            if self.display is None:
                spent = now - self.begin
                every = min(max(MIN_PLAIN_LINE_SECONDS, spent / 20), MAX_PLAIN_LINE_SECONDS)
            if self.quiet or self.closed.is_set() or now - self.last < every or not self.total:
                return
            self.last = now
            if self.display is not None:
                self.display.paint(self._write_lines())
            elif self.seen.phases:
                self.say(self._write_plain_line())

    def _write_plain_line(self) -> str:
        """Write where it stands, and the batch that has made progress last."""
        facts = [f"{self.done:.0f} of {self.total:.0f} rounds", self.format_left()]
        line = ", ".join(filter(None, [self.describe_state(), *facts]))
        running = [each for each in self.running if each is not None]
        newest = max(running, key=lambda each: each.since, default=None)
        return line if newest is None else f"{line}; {newest.name} {self._describe(newest)}"

    def _describe(self, batch: Line) -> str:
        """Say what a batch is doing."""
        if not batch.ready:
            return f"compiling, {format_seconds(time.monotonic() - batch.since)}"
        rounds = f"{batch.done}/{batch.rounds} rounds"
        return rounds if batch.accuracy is None else f"{rounds}, accuracy {batch.accuracy:.3f}"

    def _write_lines(self) -> list[str]:
        """Write the lines of the display, cut to its width."""
        assert self.display is not None
        columns, lines = self.display.room()
        running = [each for each in self.running if each is not None]
        shown = [
            f"{each.name:<{NAME_COLUMNS}.{NAME_COLUMNS}}  "
            + ("" if not each.ready else f"{self._bar(each.done, each.rounds)}  ")
            + self._describe(each)
            for each in running[: max(1, lines - 2)]
        ]
        if len(shown) < len(running):
            shown.append(f"and {len(running) - len(shown)} more")
        spent = f"{format_seconds(time.monotonic() - self.begin)} so far"
        total = self.total
        share = f"{100 * self.done / total if total else 0:3.0f} %"
        facts = [share, spent, self.format_left()]
        everything = [
            self.describe_state(),
            self._bar(self.done, total),
            ", ".join(filter(None, facts)),
        ]
        whole = "  ".join(filter(None, everything))
        if len(whole) > columns:
            del everything[1]
            whole = "  ".join(filter(None, everything))
        return [line[:columns] for line in [*shown, whole]]

    def _bar(self, done: float, total: float) -> str:
        """Draw a bar, of letters that every terminal has where it has no others."""
        unicode = (getattr(self.stream, "encoding", None) or "").lower().startswith("utf")
        full, empty = "█░" if unicode else "#."
        filled = round(BAR_COLUMNS * min(max(done / total, 0.0), 1.0)) if total else 0
        return full * filled + empty * (BAR_COLUMNS - filled)
