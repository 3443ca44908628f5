"""Enters: ReportData. Leaves: the numbers of the page's figures as JSON for its script, rounded and
bounded."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypedDict

import numpy as np

from cfljax.quantity import Quantity
from cfljax.report import critical_difference, over_settings, profile_picture, tested
from cfljax.report.cells import printable
from cfljax.report.comparison import (
    MAXIMUM,
    Column,
    Row,
    headline_of,
    list_columns,
    list_scores,
    window_of,
)
from cfljax.report.configurations import Configuration
from cfljax.report.critical_difference import MAX_DRAWN_METHODS, svg
from cfljax.report.curves import MOST_SEEDS, Band, Curves
from cfljax.report.mixture_pictures import Mixture
from cfljax.report.notes import explain_untested
from cfljax.report.quantities import describe_diagnostic, describe_history, key_diagnostics
from cfljax.report.report_data import ReportData
from cfljax.report.run_pictures import OverRounds, RunPictures
from cfljax.report.styles import choose_styles
from cfljax.results.statistics import mean_and_deviation

# Parts of the seconds of a run
PARTS_OF_SECONDS = ("setup", "compile", "train", "eval")
QUANTITIES_FIRST = (
    "accuracy",
    "accuracy_worst10",
    "loss",
    "ari",
    "nmi",
    "purity",
    "clusters",
    "bytes",
)
"""The first quantities of the page's menu, in this order; the others follow."""


class Final(TypedDict):
    """A quantity over the runs of a configuration."""

    mean: float | None
    std: float | None
    # The number of each run
    seeds: list[float | None]


def page_json(data: ReportData) -> str:
    """Write the page's JSON, in which no text can end the script element that it stands in."""
    text = json.dumps(page_data(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(data: ReportData) -> dict[str, object]:
    """Collect the numbers of all figures of the page; None for a number that is missing."""
    drawn = data.drawn
    score = headline_of(drawn).curve
    first = [name.replace("accuracy", score) for name in QUANTITIES_FIRST]
    history = _list_bands(data.curves, lambda each: each.history, first)
    own, names_of_own = _list_own(data)
    final = finals_of(drawn)
    scores = list_scores(drawn)
    headings = {
        each.key: each.heading if scores != ["accuracy"] else f"accuracy, {each.heading}"
        for each in list_columns(scores=scores)
    }
    names = {
        "history": {name: _name(describe_history(name, scores)) for name in history},
        "own": names_of_own,
        "final": {name: _name(Quantity(headings[name], "share")) for name in final},
    }
    return {
        "score": score,
        "configs": [
            {"name": c.legend, "stopped": list(each.stopped), **style._asdict()}
            for c, style, each in zip(drawn, choose_styles(drawn), data.curves, strict=True)
        ],
        "history": history,
        "own": own,
        "names": names,
        "changes": [list(each.changes) for each in data.curves],
        "clusters": [_make_band(each.clusters) for each in data.curves],
        "clients": [_make_band(each.clients) for each in data.curves],
        "newcomers": [_make_band(each.newcomers) for each in data.curves],
        "seconds": [number(each.seconds) for each in data.curves],
        "waited": [_list_numbers(each.waited) for each in data.curves],
        "final": final,
        "time": [[timing(c, part) for part in PARTS_OF_SECONDS] for c in drawn],
        "pictures": _list_grids(data, lambda d: [d.assignment], "cluster"),
        "groups": _list_grids(data, lambda d: [d.groups], "true group then"),
        "agreements": [
            {
                "heading": each.heading,
                "members": each.members,
                "table": [_list_numbers(line) for line in each.table],
            }
            for each in data.agreements
        ],
        "mixtures": _list_grids(data, lambda d: d.mixtures, "model"),
        "trivial": [
            f"{c.legend} ({d.trivial})"
            for c, d in zip(drawn, data.pictures, strict=True)
            if d is not None and d.trivial
        ],
        "confusions": [
            {
                "table": p.table.tolist(),
                "clusters": p.clusters,
                "groups": p.groups,
                "colours": p.colours.tolist(),
                **who,
            }
            for who, p in _list_pictures(data, lambda d: [d.confusion])
        ],
    }


def _list_own(data: ReportData) -> tuple[dict[str, list[object]], dict[str, list[str]]]:
    """Return the bands of the methods' own diagnostics, and what these are called."""
    methods = [c.method for c in data.drawn]
    keys = key_diagnostics(
        (method, name)
        for method, each in zip(methods, data.curves, strict=True)
        for name in each.diagnostics
    )
    renamed = [
        each._replace(
            diagnostics={keys[method, name]: band for name, band in each.diagnostics.items()}
        )
        for method, each in zip(methods, data.curves, strict=True)
    ]
    bands = _list_bands(renamed, lambda each: each.diagnostics, ())
    names = {
        key: _name(describe_diagnostic(method, name))
        for (method, name), key in keys.items()
        if key in bands
    }
    return bands, names


def _name(quantity: Quantity) -> list[str]:
    """Return what the page's script gets: the words, and how numbers are written."""
    return [quantity.words, quantity.unit]


def _list_pictures(
    data: ReportData, kind: Callable[[RunPictures], Sequence[Any]]
) -> Iterator[tuple[dict[str, object], Any]]:
    """Yield ({config: number, seed}, picture) for every picture of a kind."""
    for config, each in enumerate(data.pictures):
        if each is None:
            continue
        for picture in kind(each):
            if picture is not None:
                yield {"config": config, "seed": each.seed}, picture


def _list_grids(
    data: ReportData,
    kind: Callable[[RunPictures], Sequence[OverRounds | Mixture | None]],
    shade: str,
) -> list[dict[str, object]]:
    """Return the pictures that have a row for each client and a colour for each cell, which stands
    for a `shade`."""
    p: OverRounds | Mixture
    found: list[dict[str, object]] = []
    for who, p in _list_pictures(data, kind):
        own: dict[str, object] = (
            {"strip": p.strip}
            if isinstance(p, OverRounds)
            else {"strip": "true group", "name": p.name, "xlabel": p.xlabel}
        )
        at, drawn = (p.rounds, len(p.groups)) if isinstance(p, OverRounds) else (p.at, p.drawn)
        about = f"{drawn} of {p.clients} clients" if drawn < p.clients else ""
        grid = {
            "rounds": at.tolist(),
            "cells": _encode(p.colours),
            "groups": _encode(p.groups),
            "shade": shade,
            "about": about,
        }
        found.append(grid | own | who)
    return found


def _list_bands(
    each: Sequence[Curves], pick: Callable[[Curves], dict[str, Band]], first: Sequence[str]
) -> dict[str, list[object]]:
    """Map each quantity to a band for each configuration, None if it has none. Quantities without
    any finite number are left out."""
    names = dict.fromkeys(
        name for c in each for name, band in pick(c).items() if np.isfinite(band.mean).any()
    )
    order = [name for name in first if name in names] + [
        name for name in names if name not in first
    ]
    return {name: [_make_band(pick(c).get(name)) for c in each] for name in order}


def _make_band(band: Band | None) -> dict[str, list[float | None]] | None:
    """Return a band as the page's script gets it; None without a finite number."""
    if band is None or not np.isfinite(band.mean).any():
        return None
    return {
        "x": _list_numbers(band.round),
        "m": _list_numbers(band.mean),
        "s": _list_numbers(band.std),
    }


def finals_of(drawn: Sequence[Configuration]) -> dict[str, list[Final]]:
    """Return the accuracies of the table's window, the headline first, and the maximum."""
    window = window_of(drawn)
    columns = list_columns(scores=list_scores(drawn))
    chosen = [each for each in columns if each.window == window and each.kind == "percent"]
    chosen += [each for each in columns if each.key.endswith(MAXIMUM)]
    return {column.key: [final(c, column) for c in drawn] for column in chosen}


def final(configuration: Configuration, column: Column) -> Final:
    """Return a quantity of the summaries at the end of the runs."""
    values = [v for unit in configuration.by_status("done") if math.isfinite(v := column.of(unit))]
    mean, std = mean_and_deviation(values)
    return {"mean": number(mean), "std": number(std), "seeds": _list_numbers(values[:MOST_SEEDS])}


def timing(configuration: Configuration, part: str) -> float | None:
    """Return the mean seconds that a run spent on one of PARTS_OF_SECONDS."""
    values = [
        float(unit.record["timings"].get(part) or 0)
        for unit in configuration.units
        if unit.status != "failed"
    ]
    return number(mean_and_deviation(values)[0])


def _encode(colours: np.ndarray) -> str:
    """Encode numbers of colours as bytes in base64: 255 for none, and the numbers modulo 250 for
    the others."""
    return base64.b64encode(
        np.where(colours < 0, 255, colours % 250).astype(np.uint8).tobytes()
    ).decode()


def number(value: float | None) -> float | None:
    """Round the number to five digits; None if it is missing or not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _list_numbers(values: Iterable[float]) -> list[float | None]:
    return [int(v) if float(v).is_integer() and abs(v) < 1e15 else number(v) for v in values]


def escape_html(words: object) -> str:
    """Escape the text for HTML."""
    return html.escape(printable(str(words)))


def list_advice(lines: Sequence[str]) -> str:
    """Write the box of what is worth a look; "" for nothing."""
    if not lines:
        return ""
    items = "".join(f"<li>{escape_html(line)}</li>" for line in lines)
    return f'<div class="warning"><b>Worth a look</b><ul>{items}</ul></div>'


def tests(table: Sequence[Row]) -> str:
    """Write the sentences for a paper, the differences from the best, and the critical-difference
    picture; "" where there is nothing."""
    parts = []
    if said := tested.summarise(table):
        parts.append(f"<h3>For a paper</h3>{_write_copyable('brief', said)}")
        parts.append(
            "<details><summary>All that was "
            f"tested</summary>{_write_copyable('long', tested.write_paragraph(table))}</details>"
        )
    if untested := explain_untested(table):
        parts.append(f'<p class="notes">{escape_html(untested)}</p>')
    if (compared := over_settings.compare_over_settings(table)) is not None:
        # The profiles test nothing
        parts.append(_write_over_settings(compared))
    if (over := tested.compute_mean_ranks(table)) is not None:
        about = (
            "Mean ranks over the data sets and partitions, by the means over the seeds; bars: no "
            "significant difference."
        )
        more = (
            f" The best {MAX_DRAWN_METHODS} of {len(over.names)} methods."
            if len(over.names) > MAX_DRAWN_METHODS
            else ""
        )
        parts.append(
            '<figure id="fig-ranks"><figcaption><h3>Critical '
            f"differences</h3><p>{about}{more}</p></figcaption>"
        )
        parts.append(
            f'<div class="plot scroll">{svg(critical_difference.picture(over))}</div></figure>'
        )
    if blocks := tested.compare_with_best(table):
        inside = "".join(_write_block(*block) for block in blocks)
        head = "".join(
            f"<th{'' if i else _WORD}>{escape_html(name)}</th>"
            for i, name in enumerate(tested.HEADINGS)
        )
        about = (
            f"Points of {tested.score_name(table)} over the n shared seeds; effect: Hedges’ g of "
            "the paired differences; intervals: Student’s, at the level of their step of Holm’s "
            "procedure."
        )
        parts.append(
            "<details><summary>Differences from the best</summary><p "
            f'class="notes">{about}</p><div class="scroll">'
        )
        parts.append(
            f'<table class="plain"><thead><tr>{head}</tr></thead>{inside}</table></div></details>'
        )
    return "".join(parts)


def _write_copyable(name: str, words: str) -> str:
    button = f'<button type="button" class="plain" data-copy="#{name}">copy</button>'
    return f'<p class="paper" id="{name}">{escape_html(words)}</p>{button}'


_WORD = ' class="word"'


def _write_over_settings(over: over_settings.OverSettings) -> str:
    """Write the methods over all settings as a table."""
    head = "".join(f"<th>{escape_html(name)}</th>" for name in over_settings.HEADINGS)
    rows = "".join(
        f"<tr><th>{escape_html(name)}</th>"
        f"{''.join(f'<td>{escape_html(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in over_settings.list_lines(over)
    )
    about = escape_html(over_settings.describe(over))
    drawn = svg(profile_picture.picture(over), "performance profiles")
    return (
        f'<h3>Over the settings</h3><p class="notes">{about}.</p><div class="scroll" '
        f'id="over-settings"><table class="plain"><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><figure id="fig-profiles"><figcaption><h3>Performance '
        "profiles</h3><p>The share of the settings on which a method is at most so many points "
        'behind the best one there.</p></figcaption><div class="plot '
        f'scroll">{drawn}</div></figure>'
    )


def _write_block(heading: str, best: str, lines: list[tested.Line]) -> str:
    """Write the differences from the best on one data set as a body of the table."""
    title = escape_html(f"against {best}{f', {heading}' if heading else ''}")
    shown = lines[: tested.MOST_ROWS]
    cells = ["".join(f"<td>{escape_html(cell)}</td>" for cell in line[1:]) for line in shown]
    rows = "".join(
        f"<tr><th>{escape_html(line[0])}</th>{numbers}</tr>"
        for line, numbers in zip(shown, cells, strict=True)
    )
    more = (
        f'<tr><th colspan="7">and {len(lines) - len(shown)} more; table.csv has all</th></tr>'
        if len(lines) > len(shown)
        else ""
    )
    return f'<tbody><tr><th class="block" colspan="7">{title}</th></tr>{rows}{more}</tbody>'
