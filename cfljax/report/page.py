"""Enters: ReportData. Leaves: one HTML page with the tables, and with scripts that draw the
figures; it loads nothing else."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable
from importlib.resources import files

from cfljax.registry.options import Table
from cfljax.report import page_data, tuning
from cfljax.report.cells import format_cell
from cfljax.report.columns import columns_of
from cfljax.report.comparison import Column, Row, headline, headline_of, seconds_in_all
from cfljax.report.configurations import Unit
from cfljax.report.curves import MOST_CURVES
from cfljax.report.live import Live, count_planned, list_waiting, without_ranks, write_bar
from cfljax.report.notes import list_advice, list_notes
from cfljax.report.page_data import escape_html, page_json
from cfljax.report.report_data import ReportData
from cfljax.store import count_busy_seconds
from cfljax.store.rows import option_of
from cfljax.store.units import read_search

SCRIPTS = ("draw.js", "charts.js", "pictures.js", "save.js", "page.js")
# The most failed and diverged runs that are listed
MOST_TROUBLES = 200
# The most rows of the table on the page; the table's files have all
MOST_ROWS = 500
_SLOT = re.compile(r"\{\{(\w+)\}\}")


FILES = (
    '<p>The table as a file: <a href="table.csv">CSV</a>, <a href="table.md">Markdown</a>, '
    '<a href="table.tex">LaTeX</a>; its tests: <a href="tests.tex">LaTeX</a></p>'
)
# For readers whose browser runs no script: the script does the same, and keeps what was chosen
REFRESH = '<noscript><meta http-equiv="refresh" content="10"></noscript>'


def page(data: ReportData, live: Live | None = None) -> str:
    """Write the HTML of the report; the same data gives the same bytes. `live`: how far a sweep is
    that is being computed; the page loads itself again every ten seconds."""
    if live is not None:
        data = without_ranks(data)
    scripts = [web(name) for name in SCRIPTS]
    parts = {
        "title": escape_html(data.collected.title),
        "refresh": "" if live is None else REFRESH,
        "live": "" if live is None else write_bar(live),
        "files": FILES if live is None else "",
        "about": escape_html(_describe(data)),
        "cards": _write_cards(data, live),
        "warnings": "".join(
            f'<p class="warning">{escape_html(p)}</p>' for p in _shorten(data.problems, 5)
        ),
        "table": _write_table(data, live),
        "notes": _write_notes(data),
        "tuning": "".join(
            tuning.section(table)
            for table in map(read_search, data.collected.stores)
            if table is not None
        ),
        "advice": "" if live else page_data.list_advice(list_advice(data.table)),
        "tests": "" if live else page_data.tests(data.table),
        "drawn": escape_html(_note_drawn(data)),
        "stopped": _note_stopped(data),
        "one_seed": "One seed per method." if any(len(c.units) > 1 for c in data.drawn) else "",
        "troubles": _list_troubles(data.collected.units),
        "origin": _write_origin(data),
        "data": page_json(data),
        "css": web("page.css"),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
        "script_hashes": " ".join(map(_hash_script, scripts)),
    }
    return _SLOT.sub(lambda slot: parts[slot.group(1)], web("page.html"))


@functools.cache
def web(name: str) -> str:
    """Read the text of a file in `web/`."""
    return (files("cfljax.report") / "web" / name).read_text(encoding="utf-8")


def _hash_script(script: str) -> str:
    """Hash a script for the page's security policy, which lets no other script run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _shorten(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _describe(data: ReportData) -> str:
    facts = [
        _list_values("data", data),
        f"model {_list_values('model', data)}",
        f"{_list_values('train.rounds', data)} rounds",
    ]
    return " · ".join(fact for fact in facts if "?" not in fact)


def _list_values(name: str, data: ReportData) -> str:
    """List the values of an option over all configurations: `digits rotated`, `10, 20`."""
    each = data.collected.configurations
    values = dict.fromkeys(
        _format_value(configuration.units[0].record["config"], name) for configuration in each
    )
    return ", ".join(_shorten([word for word in values if word], 3)) or "?"


def _format_value(config: Table, name: str) -> str:
    """Format an option of a configuration; for the data set its name, partition and number of
    clients."""
    value = option_of(config, name)
    if isinstance(value, dict):
        clients = f"{value['clients'] or 'all'} clients" if "clients" in value else ""
        return ", ".join(str(v) for v in (value.get("name"), value.get("partition"), clients) if v)
    return "" if value is None else str(value)


def _write_cards(data: ReportData, live: Live | None) -> str:
    """Write the boxes at the top: runs, methods, the best, time and device."""
    collected = data.collected
    units = collected.units
    ended = {
        status: sum(unit.status == status for unit in units)
        for status in ("done", "diverged", "failed")
    }
    left = collected.planned - len(units)
    states = [f"{n} {status}" for status, n in ended.items() if n] + (
        [f"{left} not run yet"] if left > 0 else []
    )
    methods = dict.fromkeys(c.label for c in collected.configurations)
    seeds = {unit.seed for unit in units}
    spent = math.fsum(s for unit in units if math.isfinite(s := seconds_in_all(unit)))
    cards = [("Runs", str(len(units)), ", ".join(states))]
    of_methods, of_rows = "", ""
    if live is not None:
        of_methods = f" of {len({planned.label for planned in live.planned})}"
        of_rows = f" of {len(live.planned)}"
    cards.append(
        (
            "Methods",
            f"{len(methods)}{of_methods}",
            f"{len(collected.configurations)}{of_rows} configurations, {len(seeds)} seeds",
        )
    )
    first = headline(data.table)
    blocks = {row.configuration.block for row in data.table}
    best = next((row for row in data.table if first and row.cells[first.key].best), None)
    if first and best and len(blocks) == 1:
        accuracy = format_cell(dataclasses.replace(first, interval=False), best.cells[first.key])
        cards.append(
            (f"Best {first.curve} ({first.heading})", f"{accuracy} %", best.configuration.legend)
        )
    waited = count_busy_seconds(collected.stores)
    summed = f"{_duration(spent)} of compute"
    cards.append(
        (
            "Time",
            _duration(waited or spent),
            f"{summed} in parallel" if waited else "of compute, all runs together",
        )
    )
    cards.append(
        (
            "Device",
            ", ".join(_list_distinct(_format_device(unit.record.get("device")) for unit in units))
            or "–",
            "",
        )
    )
    return "".join(
        f"<div><dt>{escape_html(a)}</dt><dd>{escape_html(b)}"
        f"<small>{escape_html(c)}</small></dd></div>"
        for a, b, c in cards
    )


def _format_device(words: object) -> str:
    """Format the device of a record: `cpu, 1` as `cpu`, `gpu NVIDIA H200, 2` as `2 × gpu NVIDIA
    H200`."""
    kind, _, count = str(words or "").rpartition(", ")
    if count == "1":
        return kind
    return f"{count} × {kind}" if kind else count


def _duration(spent: float) -> str:
    """Format seconds in seconds, minutes or hours."""
    if spent < 120:
        return f"{spent:.0f} s"
    return f"{spent / 60:.0f} min" if spent < 7200 else f"{spent / 3600:.1f} h"


def _write_notes(data: ReportData) -> str:
    """Write the marks of the table as a legend, the other sentences folded."""
    lines = list_notes(data.table, "Bold:", "≈")
    if data.target is not None:
        lines.append(f"target: an accuracy of {100 * data.target:g} %")
    if len(data.table) > MOST_ROWS:
        lines.append(f"the first {MOST_ROWS} of {len(data.table)} rows; table.csv has all")
    if data.collected.left_out:
        lines.append(f"{data.collected.left_out} runs of an earlier spec or a search are not shown")
    marks = [line for line in lines if line.startswith(("Bold:", "≈"))]
    folded = "<br>".join(escape_html(line) for line in lines if line not in marks)
    legend = escape_html(" · ".join([*marks, "click on a heading to sort"]))
    return (
        f"{legend}<details><summary>About the numbers</summary>{folded}</details>"
        if data.table
        else ""
    )


def _note_stopped(data: ReportData) -> str:
    """Say how many runs `train.stop` or a callback has ended; "" if none."""
    stopped = sum(len(each.stopped) for each in data.curves)
    runs = sum(each.runs for each in data.curves)
    if not stopped:
        return ""
    return (
        f"Marks across the curves: train.stop or a callback ended a run there ({stopped} of {runs} "
        "runs), which keeps its last value."
    )


def _note_drawn(data: ReportData) -> str:
    """Say how many configurations the figures leave out."""
    total = sum(any(u.status != "failed" for u in c.units) for c in data.collected.configurations)
    if not data.drawn:
        return "There are no finished runs to draw."
    if len(data.drawn) == total:
        return ""
    return (
        f"The figures show {len(data.drawn)} of {total} configurations (at most "
        f"{MOST_CURVES}): the best of each method, "
        "then the best of the rest, by accuracy "
        f"({headline_of(data.collected.configurations).heading})."
    )


def _write_table(data: ReportData, live: Live | None) -> str:
    """Write the comparison table, a body for each block; `live`: with the rows that wait."""
    table = data.table[:MOST_ROWS]
    waiting = [] if live is None else list_waiting(live, table)
    if not table and not waiting:
        return '<p class="nothing">No finished runs yet.</p>'
    columns = columns_of(table)
    folders = any(row.configuration.folder for row in table)
    heads = ["method", *(["folder"] if folders else []), "runs", *(c.heading for c in columns)]
    kinds = [' class="word"'] * (2 if folders else 1) + [""] * len(heads)
    first = headline(table)
    score = "accuracy" if first is None else first.curve
    about = {c.heading: f"<small>{score}, %</small>" for c in columns if c.kind == "percent"}
    sorts = ' aria-sort="descending"' if data.collected.best_first else ""
    kinds = [
        f' class="headline"{sorts}' if first and head == first.heading else kind
        for kind, head in zip(kinds, heads, strict=False)
    ]
    each_head = (
        (kind, f"{about.get(head, '')}{escape_html(head)}")
        for kind, head in zip(kinds, heads, strict=True)
    )
    cells = "".join(
        f'<th{kind}><button type="button">{head}</button></th>' for kind, head in each_head
    )
    drawn = {id(c): f' data-of="{i}"' for i, c in enumerate(data.drawn)}
    bodies = []
    block = object()
    for row in table:
        each = row.configuration
        if each.block != block:
            title = f'<th class="block" colspan="{len(heads)}">{escape_html(each.heading)}</th>'
            bodies.append(f"<tr>{title}</tr>" if each.heading else "")
            block = each.block
        of = "" if live is None else f" of {count_planned(live, row)}"
        bodies[-1] += _write_row(row, columns, folders, drawn.get(id(each), ""), of)
    empty = '<td data-value=""></td>' * (len(heads) - 2)
    rows = "".join(
        f'<tr class="waiting"><th>{escape_html(planned.name)}<small>{doing}</small></th>'
        f'<td data-value="0">0 of {len(planned.units)}</td>{empty}</tr>'
        for planned, doing in waiting
    )
    bodies += [rows] if waiting else []
    groups = "".join(f"<tbody>{body}</tbody>" for body in bodies)
    return f"<table><thead><tr>{cells}</tr></thead>{groups}</table>"


def _write_row(row: Row, columns: list[Column], folders: bool, drawn: str, planned: str) -> str:
    """Write a row of the table. `drawn`: an attribute that connects it with its curve. `planned`:
    words that follow the number of its runs."""
    each = row.configuration
    swatch = f'<i class="swatch"{drawn}></i>'
    settings = f"<small>{escape_html(each.settings)}</small>" if each.settings else ""
    cells = [
        f'<th title="{escape_html(each.name)}">{swatch}{escape_html(each.title)}{settings}</th>'
    ]
    if folders:
        cells.append(f'<td class="word">{escape_html(each.folder)}</td>')
    cells.append(f'<td data-value="{len(each.units)}">{escape_html(each.runs + planned)}</td>')
    for column in columns:
        cell = row.cells[column.key]
        value = f"{cell.mean:.9g}" if cell.n else ""
        mark = "&thinsp;≈" if cell.tied else ""
        best = " class=best" if cell.best else ""
        cells.append(
            f'<td data-value="{value}"{best}>{escape_html(format_cell(column, cell))}{mark}</td>'
        )
    return f"<tr>{''.join(cells)}</tr>"


def _list_troubles(units: list[Unit]) -> str:
    """Write the table of failed and diverged runs."""
    bad = [unit for unit in units if unit.status != "done"]
    if not bad:
        return "<p>None.</p>" if units else "<p>There are no runs.</p>"
    lines = []
    for unit in bad[:MOST_TROUBLES]:
        record = unit.record
        name = record.get("label", record["method"])
        options = " ".join(f"{k}={v}" for k, v in record["varies"].items())
        at = record.get("diverged_at")
        diverged = "a value became infinite or NaN" + ("" if at is None else f" in round {at}")
        why = record.get("error") if unit.status == "failed" else diverged
        lines.append(
            f"<tr><th>{escape_html(name)}</th><td "
            f'class="word">{escape_html(options)}</td><td>{unit.seed}</td>'
            f'<td class="word">{escape_html(unit.status)}</td><td '
            f'class="error">{escape_html(why or "")}</td></tr>'
        )
    more = (
        f'<p class="notes">and {len(bad) - MOST_TROUBLES} more</p>'
        if len(bad) > MOST_TROUBLES
        else ""
    )
    head = (
        '<tr><th>method</th><th class="word">options</th><th>seed</th><th '
        'class="word">status</th><th class="word">why</th></tr>'
    )
    return (
        "<div "
        f'class="scroll"><table><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table></div>'
        f"{more}"
    )


def _write_origin(data: ReportData) -> str:
    """Write where the results come from: folders, versions, devices, commits."""
    units = data.collected.units
    events = [event for store in data.collected.stores for event in store.events()]
    last = max((event["time"] for event in events if event["event"] == "done"), default=None)
    facts = {
        "command": _list_distinct(event.get("command") for event in events)[-1:],
        "date": [] if last is None else [time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last))],
        "versions": _list_distinct(_format_pairs(unit.record.get("versions")) for unit in units),
        "device": _list_distinct(unit.record.get("device") for unit in units),
        "git": _list_distinct(_format_commit(unit.record.get("git")) for unit in units),
        "plan": _list_distinct(unit.record.get("plan") for unit in units),
    }
    listed = "".join(
        f"<dt>{name}</dt><dd>{'<br>'.join(map(escape_html, _shorten(v, 5)))}</dd>"
        for name, v in facts.items()
        if v
    )
    written = [
        (f"Spec of {store.folder.absolute().name}", store.read_spec())
        for store in data.collected.stores
    ]
    specs = [
        f"<details open>{_preformat(title, spec)}</details>" for title, spec in written if spec
    ]
    if not specs and units:
        example = json.dumps(units[0].record["config"], indent=1, ensure_ascii=False, default=str)
        specs = [f"<details>{_preformat('Configuration of the first run', example)}</details>"]
    return f'<dl class="facts">{listed}</dl>{"".join(specs)}'


def _preformat(title: str, text: str) -> str:
    lines = "\n".join(map(escape_html, text.splitlines()))
    return f"<summary>{escape_html(title)}</summary><pre>{lines}</pre>"


def _format_pairs(table: object) -> str | None:
    return ", ".join(f"{k} {v}" for k, v in table.items()) if isinstance(table, dict) else None


def _format_commit(git: object) -> str | None:
    if not isinstance(git, dict):
        return None
    return f"{git.get('commit')}{', with uncommitted changes' if git.get('dirty') else ''}"


def _list_distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value))
