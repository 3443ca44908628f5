"""How long the rest of a sweep or a search takes, by what has been seen of it: the speed of each
method, what batches cost before their first round, and what phases cost before their first
batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """A phase of a sweep or a search: what is to do in it."""

    # Label of a method -> rounds of all its runs together
    rounds: Mapping[str, float]
    # The runs that end in it; 0: it pauses its runs, as a rung of a search does
    runs: int = 0
    # Runs that were done before this start
    before: int = 0
    # The batches, each of which is set up and compiled before its first round
    batches: int = 1
    # What it is called, in the words of a display
    name: str = ""


class Line(NamedTuple):
    """A batch that is being computed."""

    name: str
    label: str
    # Of all its runs together
    rounds: int
    done: int
    # The time of its last event
    since: float
    # Whether it has come to its first round
    ready: bool = False
    accuracy: float | None = None


class Seen:
    """What rounds and beginnings have cost so far, in seconds of one process."""

    def __init__(self) -> None:
        # Label -> seconds and rounds of training
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.rounds: Counter[str] = Counter()
        # Seconds until the first round: of batches that had to be compiled, and of later ones of
        # their labels, which find most of that done
        self.first: list[float] = []
        self.later: list[float] = []
        # Label -> the time at which a batch of it had come to its first round
        self.compiled: dict[str, float] = {}
        # Seconds until the first batch of a phase
        self.phases: list[float] = []

    def add_rounds(self, label: str, rounds: int, seconds: float) -> None:
        """Note that these rounds were trained."""
        self.rounds[label] += rounds
        self.seconds[label] += seconds

    def add_beginning(self, label: str, since: float, now: float) -> None:
        """Note that a batch that began at this time has been set up and compiled now."""
        (self.later if self._is_compiled(label, since) else self.first).append(now - since)
        self.compiled.setdefault(label, now)

    def _is_compiled(self, label: str, since: float) -> bool:
        return label in self.compiled and self.compiled[label] <= since

    def round_seconds(self, label: str) -> float:
        """Return the seconds of a round; of a label without any, those of the others' mean."""
        labels = [label] if self.rounds[label] else list(self.rounds)
        rounds = sum(self.rounds[each] for each in labels)
        return sum(self.seconds[each] for each in labels) / max(rounds, 1)

    def estimate(
        self, works: Sequence[Work], lines: Sequence[Line], now: float, processes: int
    ) -> float | None:
        """Estimate the seconds until the end; None before the first rounds.

        Args:
            works: what is left to do: of the present phase, and of those to come.
            lines: the batches that are being computed, whose rounds are in `works`, too.
            now: the time.
            processes: how many batches are computed side by side."""
        if not any(self.rounds.values()):
            return None
        first = _mean(self.first)
        later = _mean(self.later)
        running = [line for line in lines if line.done < line.rounds]
        compiling = [line for line in running if not line.ready]
        begun = set(self.compiled) | {line.label for line in compiling}
        labels = {label for work in works for label, rounds in work.rounds.items() if rounds > 0}
        batches = sum(work.batches for work in works)
        new = min(len(labels - begun), batches)
        begins = sum(
            max((later if self._is_compiled(line.label, line.since) else first) - spent, 0.0)
            for line in compiling
            for spent in [now - line.since]
        )
        training = sum(
            rounds * self.round_seconds(label)
            for work in works
            for label, rounds in work.rounds.items()
        )
        # The last batches leave processes without work
        busy = max(1, min(processes, len(running) + batches))
        spread = (training + begins + new * first + (batches - new) * later) / busy
        longest = max(
            ((line.rounds - line.done) * self.round_seconds(line.label) for line in running),
            default=0.0,
        )
        return max(spread, longest) + (len(works) - 1) * _mean(self.phases)


def _mean(values: Collection[float]) -> float:
    return sum(values) / max(len(values), 1)
