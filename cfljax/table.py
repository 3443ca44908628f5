"""The comparison table: a row per configuration, mean ± standard deviation over its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from cfljax.options import show
from cfljax.result import Results

COLUMNS = {
    "max": "accuracy_max",
    "last 10": "accuracy_last10",
    "worst tenth": "accuracy_worst10",
    "ari": "ari_last",
    "clusters": "clusters_last",
}


def comparison(results: Results) -> str:
    """The table as text; accuracies in per cent, the best of each column starred."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for record in results.records.values():
        options = (f"{name.split('.', 1)[-1]}={show(v)}" for name, v in record["varies"].items())
        groups.setdefault((record["label"], *options), []).append(record)
    rows = [_row(key, records) for key, records in groups.items()]
    best = {c: max((r[c][0] for r in rows if c in r), default=math.nan) for c in ("max", "last 10", "worst tenth")}
    lines = [["", "runs", *COLUMNS, "seconds"]]
    for row in rows:
        cells = [_cell(c, row.get(c), best.get(c)) for c in COLUMNS]
        lines.append([row["name"], row["runs"], *cells, row["seconds"]])
    return align(lines)


def _row(key: tuple[str, ...], records: list[dict[str, Any]]) -> dict[str, Any]:
    good = [r for r in records if r["status"] == "done"]
    states = [f"{n} {s}" for s in ("diverged", "failed") if (n := sum(r["status"] == s for r in records))]
    row: dict[str, Any] = {"name": " ".join(key), "runs": " ".join([str(len(records)), *(f"({s})" for s in states)])}
    for column, quantity in COLUMNS.items():
        values = [float(r["summary"][quantity]) for r in good if r["summary"].get(quantity) is not None]
        values = [v for v in values if math.isfinite(v)]
        if values:
            row[column] = mean_and_deviation(values)
    seconds = [sum(float(v) for v in r["timings"].values()) for r in records]
    row["seconds"] = f"{sum(seconds):.1f}"
    return row


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float | None]:
    """Mean, and the standard deviation of a sample (None of fewer than two)."""
    values = list(values)
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _cell(column: str, value: tuple[float, float | None] | None, best: float | None) -> str:
    if value is None:
        return "–"
    percent = column in ("max", "last 10", "worst tenth")
    scale, digits = (100, 1) if percent else (1, 2 if column == "ari" else 1)
    text = f"{value[0] * scale:.{digits}f}"
    if value[1] is not None and column != "clusters":
        text += f" ± {value[1] * scale:.{digits}f}"
    return text + ("*" if best is not None and value[0] == best else " ")


def align(lines: list[list[str]]) -> str:
    """Columns under each other, the first to the left, the rest to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )
