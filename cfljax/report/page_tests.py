"""Enters: the rows of the comparison table. Leaves: the part of the page that says what was tested, as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from cfljax.report import tested
from cfljax.report.comparison import Row
from cfljax.report.critical_difference import MOST, svg
from cfljax.report.tables import printable


def escaped(words: object) -> str:
    """Escape the text for HTML."""
    return html.escape(printable(str(words)))


def tests(table: Sequence[Row]) -> str:
    """The sentences for a paper, the differences from the best, and the critical-difference picture; "" where there is nothing."""
    parts = []
    if said := tested.brief(table):
        parts.append(f"<h3>For a paper</h3>{_write_copyable('brief', said)}")
        parts.append(f"<details><summary>All that was tested</summary>{_write_copyable('long', tested.sentence(table))}</details>")
    if (over := tested.mean_ranks(table)) is not None:
        about = "Mean ranks over the data sets and partitions, by the means over the seeds; bars: no significant difference."
        more = f" The best {MOST} of {len(over.names)} methods." if len(over.names) > MOST else ""
        parts.append(f'<figure id="fig-ranks"><figcaption><h3>Critical differences</h3><p>{about}{more}</p></figcaption>')
        parts.append(f'<div class="plot scroll">{svg(over)}</div></figure>')
    if blocks := tested.differences(table):
        inside = "".join(_write_block(*block) for block in blocks)
        head = "".join(f"<th{'' if i else _WORD}>{escaped(name)}</th>" for i, name in enumerate(tested.HEADINGS))
        about = "Points of accuracy over the n shared seeds; effect: Hedges’ g of the paired differences; p: by Holm."
        parts.append(f'<details><summary>Differences from the best</summary><p class="notes">{about}</p><div class="scroll">')
        parts.append(f'<table class="plain"><thead><tr>{head}</tr></thead>{inside}</table></div></details>')
    return "".join(parts)


def _write_copyable(name: str, words: str) -> str:
    button = f'<button type="button" class="plain" data-copy="#{name}">copy</button>'
    return f'<p class="paper" id="{name}">{escaped(words)}</p>{button}'


_WORD = ' class="word"'


def _write_block(heading: str, best: str, lines: list[tested.Line]) -> str:
    title = escaped(f"against {best}{f', {heading}' if heading else ''}")
    shown = lines[: tested.MOST_ROWS]
    cells = ["".join(f"<td>{escaped(cell)}</td>" for cell in line[1:]) for line in shown]
    rows = "".join(f"<tr><th>{escaped(line[0])}</th>{numbers}</tr>" for line, numbers in zip(shown, cells, strict=True))
    more = f'<tr><th colspan="6">and {len(lines) - len(shown)} more; table.csv has all</th></tr>' if len(lines) > len(shown) else ""
    return f'<tbody><tr><th class="block" colspan="6">{title}</th></tr>{rows}{more}</tbody>'
