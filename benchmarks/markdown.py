"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with these heads."""
    lines = [_line(heads), "|" + " --- |" * len(heads)]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
