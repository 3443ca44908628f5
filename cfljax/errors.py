"""Errors that a user can cause. Each has one line that says what to do, and the exit code of the
command that meets it."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path


class CfljaxError(Exception):
    """An error with an explanation of one line, which commands print without a traceback."""

    exit_code = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """What commands print: one line, whatever a user's text in it has."""
        return (" ".join(str(self).split()),)


class SpecError(CfljaxError):
    """A wrong name, value or combination in a spec, a flag or a call."""

    exit_code = 2


class SpecErrors(SpecError):
    """Several mistakes in a spec, so that a user mends them all at once: a line for each."""

    lines: tuple[str, ...] = ()

    def __init__(self, lines: Iterable[str]):
        # Of a grid there may be thousands
        each = tuple(lines)
        left = len(each) - MOST_LINES
        self.lines = each if left <= 0 else (*each[:MOST_LINES], f"… and {left} more")
        super().__init__("\n".join(self.lines))


MOST_LINES = 20
"""How many mistakes of a spec are told at once."""


def join_errors(lines: Iterable[str]) -> SpecError:
    """Return one error of these lines, each of which is told once."""
    each = tuple(dict.fromkeys(lines))
    return SpecError(each[0]) if len(each) == 1 else SpecErrors(each)


class StoreError(CfljaxError):
    """The results folder cannot be read or written."""

    exit_code = 3


class DataError(CfljaxError):
    """A data set is missing or broken."""

    exit_code = 4


def locate_frame(error: BaseException) -> str:
    """Return the last line of a user's own code that an error came through, as in `mine.py, line
    12: `; "" if there is none."""
    package = Path(__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        installed = {"site-packages", "dist-packages"} & set(file.parts)
        if not (installed or file.is_relative_to(package)):
            return f"{file.name}, line {frame.lineno}: "
    return ""


class SpecWarning(UserWarning):
    """Something in a spec is allowed, but may not be what the user meant."""


class DataWarning(UserWarning):
    """Something in a user's data is left out."""


ALIASES = {
    "k": "clusters",
    "n_clusters": "clusters",
    "num_clusters": "clusters",
    "learning_rate": "lr",
    "eta": "lr",
    "num_clients": "clients",
    "n_clients": "clients",
    "num_rounds": "rounds",
    "n_rounds": "rounds",
    "batch_size": "batch",
    "local_epochs": "epochs",
    "local_steps": "steps",
    "fraction": "participation",
}
"""What other programs call an option."""


def suggest(name: str, known: Iterable[str]) -> str:
    """`'; did you mean "x"?'` for a near miss, else the list of what is known."""
    known = sorted(known)
    if ALIASES.get(str(name)) in known:
        return f'; did you mean "{ALIASES[str(name)]}"?'
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    return "; known: " + ", ".join(known) if known else ""
