"""The numbers of the figures as JSON for the page's script: rounded, bounded, and harmless inside HTML."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from cfljax.report.compare import COLUMNS, mean_and_deviation
from cfljax.report.content import Content
from cfljax.report.curves import MOST_SEEDS, Band, Curves
from cfljax.report.detail import Matrix, shown
from cfljax.report.gather import Configuration

COLOURS, DASHES = 8, 4
PARTS = ("setup", "compile", "train", "eval")
"""Of a run's seconds."""
FIRST = ("accuracy", "accuracy_worst10", "loss", "ari", "nmi", "purity", "clusters", "bytes")
"""Quantities in the order in which they are offered; the rest follows."""
FINAL = ("accuracy_last10", "accuracy_max", "accuracy_last", "accuracy_worst10")


def embed(content: Content) -> str:
    """JSON in which nothing can end the script element that it stands in."""
    text = json.dumps(page_data(content), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def styles(content: Content) -> list[tuple[int, int]]:
    """(colour, dash) of every drawn configuration, no two alike: a colour per method, and dashes where colours come again."""
    labels = list(dict.fromkeys((c.folder, c.label) for c in content.drawn))
    every = [(colour, dash) for dash in range(DASHES) for colour in range(COLOURS)]
    free: list[tuple[int, int]] = []
    made = []
    for each in content.drawn:  # one method with many options: these have the colours
        free = free or list(every)
        own = labels.index((each.folder, each.label)) % COLOURS
        mine = [style for style in free if style[0] == own]
        nobodys = [style for style in free if style[0] >= len(labels)]
        made.append(((mine or nobodys or free) if len(labels) > 1 else free)[0])
        free.remove(made[-1])
    return made


def page_data(content: Content) -> dict[str, Any]:
    """Plain lists and dicts; None where there is no number."""
    drawn = content.drawn
    return {
        "configs": [{"name": c.name, "colour": s[0], "dash": s[1]} for c, s in zip(drawn, styles(content), strict=True)],
        "history": _bands(content.curves, lambda each: each.history, FIRST),
        "own": _bands(content.curves, lambda each: each.own, ("epsilon", "threshold")),
        "clusters": [_band(each.clusters) for each in content.curves],
        "clients": [_band(each.clients) for each in content.curves],
        "seconds": [number(each.seconds) for each in content.curves],
        "final": {name: [final(c, name) for c in drawn] for name in FINAL},
        "time": [[timing(c, part) for part in PARTS] for c in drawn],
        "pictures": [
            {
                "rounds": p.rounds.tolist(), "cells": _codes(p.colours), "groups": _codes(p.groups),
                "about": _of(len(p.groups), p.clients), **who,
            }
            for who, p in _each(content, lambda d: [d.picture])
        ],
        "trivial": [f"{c.name} ({d.trivial})" for c, d in zip(drawn, content.details, strict=True) if d is not None and d.trivial],
        "confusions": [
            {"table": p.table.tolist(), "clusters": p.clusters, "groups": p.groups, "colours": p.colours.tolist(), **who}
            for who, p in _each(content, lambda d: [d.confusion])
        ],
        "matrices": [{**_matrix(p), **who} for who, p in _each(content, lambda d: d.matrices)],
        "scatters": [
            {
                "name": p.name, "x": _numbers(p.points[:, 0]), "y": _numbers(p.points[:, 1]),
                "colours": _codes(p.colours), "groups": _codes(p.groups), **who,
            }
            for who, p in _each(content, lambda d: d.scatters)
        ],
    }  # fmt: skip


def _each(content: Content, parts: Callable[[Any], Sequence[Any]]) -> Iterable[tuple[dict[str, int], Any]]:
    """({config, seed}, picture) of every picture of a kind."""
    for i, found in enumerate(content.details):
        for each in shown([found]):
            for part in parts(each):
                if part is not None:
                    yield {"config": i, "seed": each.seed}, part


def _of(drawn: int, all_of_them: int) -> str:
    return f"{drawn} of {all_of_them} clients" if drawn < all_of_them else ""


def _bands(each: Sequence[Curves], pick: Callable[[Curves], dict[str, Band]], first: Sequence[str]) -> dict[str, list[Any]]:
    """name -> a band per configuration, or None; quantities without a finite number are left out."""
    names = dict.fromkeys(name for c in each for name, band in pick(c).items() if np.isfinite(band.mean).any())
    order = [name for name in first if name in names] + [name for name in names if name not in first]
    return {name: [_band(pick(c).get(name)) for c in each] for name in order}


def _band(band: Band | None) -> dict[str, Any] | None:
    if band is None or not np.isfinite(band.mean).any():
        return None
    return {"x": _numbers(band.round), "m": _numbers(band.mean), "s": _numbers(band.std)}


def final(configuration: Configuration, name: str) -> dict[str, Any]:
    """{mean, std, seeds}: a quantity of the summaries at the end of the runs."""
    column = next(c for c in COLUMNS if c.key == name)
    values = [v for unit in configuration.by_status("done") if math.isfinite(v := column.value(unit))]
    mean, std = mean_and_deviation(values)
    return {"mean": number(mean), "std": number(std), "seeds": _numbers(values[:MOST_SEEDS])}


def timing(configuration: Configuration, part: str) -> float | None:
    """Mean seconds of a run on one of PARTS."""
    values = [float(unit.record["timings"].get(part) or 0) for unit in configuration.units if unit.status != "failed"]
    return number(mean_and_deviation(values)[0])


def _matrix(p: Matrix) -> dict[str, Any]:
    codes, low, high = quantised(p.values)
    return {
        "name": p.name, "cells": _base64(codes), "low": number(low), "high": number(high), "colours": _codes(p.colours),
        "about": _of(len(p.values), p.clients) or ("" if p.ordered else "in the order of drawing"), "ordered": p.ordered,
    }  # fmt: skip


def quantised(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """(u8[n, n] with 255 for what is not finite, lowest, highest). The range is that beside the diagonal, which is the same
    for all clients."""
    beside = values[~np.eye(len(values), dtype=bool)]
    finite = beside[np.isfinite(beside)].astype(np.float64)
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    share = (values.astype(np.float64) - low) / (high - low or 1.0)
    codes = np.where(np.isfinite(share), np.clip(np.nan_to_num(share), 0, 1) * 254, 255)
    return codes.round().astype(np.uint8), low, high


def _codes(colours: np.ndarray) -> str:
    """Numbers of colours as bytes, 255 for none; there are but 250 colours."""
    return _base64(np.where(colours < 0, 255, colours % 250).astype(np.uint8))


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def number(value: float | None) -> float | None:
    """Five digits, or None."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_short(v) for v in values]


def _short(value: float) -> float | int | None:
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return int(value)
    return number(value)
