"""Where progress is shown: lines that are updated in place, in a terminal or below the cell of a
notebook."""

from __future__ import annotations

import html
import io
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any, Protocol, TextIO

# Fewer columns or lines than these have no room for a display
MIN_COLUMNS = 60
MIN_LINES = 4
NOTEBOOK_COLUMNS = 100
# The most batches that a notebook shows
NOTEBOOK_LINES = 8
UP = "\033[{}A"
ERASE_BELOW = "\033[J"


class Display(Protocol):
    """Lines that are updated in place."""

    def room(self) -> tuple[int, int]:
        """Return the columns and lines that there is room for."""

    def paint(self, lines: list[str]) -> None:
        """Show these lines in place of the last ones."""

    def say(self, message: str) -> None:
        """Show a line that stays, above the others."""

    def close(self, last: str) -> None:
        """Remove the lines. `last`: what they have come to."""


class Terminal:
    """The last lines of a terminal. The cursor waits below them, so that whatever ends the process
    is printed on a line of its own."""

    def __init__(self, stream: TextIO):
        self.stream = stream
        # How many lines are shown
        self.shown = 0

    def room(self) -> tuple[int, int]:
        """Return the columns and lines that there is room for."""
        size = os.get_terminal_size(self.stream.fileno())
        return size.columns - 1, size.lines - 2

    def paint(self, lines: list[str]) -> None:
        """Show these lines in place of the last ones."""
        self._write(lines, [])

    def say(self, message: str) -> None:
        """Print a line where the others stand; these are painted again below it."""
        self._write([], [message])

    def close(self, last: str) -> None:  # noqa: ARG002 (what follows says how it ended)
        """Remove the lines."""
        self._write([], [])

    def _write(self, lines: list[str], above: list[str]) -> None:
        up = UP.format(self.shown) if self.shown else ""
        self.shown = len(lines)
        # In one call: other threads and processes print, too
        self.stream.write(
            "".join([f"\r{up}{ERASE_BELOW}", *(f"{line}\n" for line in [*above, *lines])])
        )
        self.stream.flush()


class LinesAbove(io.TextIOBase):
    """Standard output while a terminal shows a display: whole lines, which stay above it. So what a
    callback or a plug-in prints does not tear it."""

    def __init__(self, stream: TextIO, print_line: Callable[[str, TextIO], None]):
        self.stream = stream
        self.print_line = print_line
        self.rest = ""

    def write(self, text: str) -> int:
        """Print the lines that are whole, and keep the rest until its end has come."""
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            self.print_line(line, self.stream)
        return len(text)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The terminal's."""
        return self.stream.encoding

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return True: there is none elsewhere."""
        return True

    def fileno(self) -> int:
        """Return that of the terminal."""
        return self.stream.fileno()

    def finish(self) -> None:
        """Print what has come without an end of its line."""
        self.stream.write(self.rest)
        self.stream.flush()
        self.rest = ""


class Notebook:
    """An output of a notebook's cell that is replaced again and again."""

    def __init__(self, ipython: Any):
        self.ipython = ipython
        self.id = secrets.token_hex(8)
        self.said: list[str] = []
        self.made = False

    def room(self) -> tuple[int, int]:
        """Return the columns and lines that are used."""
        return NOTEBOOK_COLUMNS, NOTEBOOK_LINES

    def paint(self, lines: list[str]) -> None:
        """Show these lines, below what was said, in place of the last ones."""
        text = "\n".join([*self.said, *lines])
        style = "margin: 0; line-height: 1.3"
        data = {"text/plain": text, "text/html": f'<pre style="{style}">{html.escape(text)}</pre>'}
        # IPython prints data as they are, instead of the text of a dict, if they are `raw`
        self.ipython.display.display(
            data, raw=True, display_id=self.id, **({"update": True} if self.made else {})
        )
        self.made = True

    def say(self, message: str) -> None:
        """Show a line that stays."""
        self.said.append(message)

    def close(self, last: str) -> None:
        """Leave what was said, and what it has come to."""
        self.paint([last])


def find_display(stream: TextIO, explicit: bool) -> Display | None:
    """Return the display for this process; None: it gets plain lines. `explicit`: the stream was
    given, so a notebook is none of its business."""
    if not explicit and (ipython := find_notebook()) is not None:
        return Notebook(ipython)
    # A command in a cell (`!cfljax sweep`) has a terminal that cannot move its cursor up
    if os.environ.get("TERM") == "dumb" or "JPY_PARENT_PID" in os.environ:
        return None
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    room = size.columns >= MIN_COLUMNS and size.lines >= MIN_LINES
    return Terminal(stream) if room and stream.isatty() else None


def find_notebook() -> Any | None:
    """Return the package IPython if this process is the kernel of a notebook. It is never imported:
    a kernel has it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else ipython
