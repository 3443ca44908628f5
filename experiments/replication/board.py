"""Enters: results folders, or CSV files of rows. Leaves: the rows of the board: what each method
has in each setting.

A row is a run. Of a method's runs on one data set and partition that differ in numbers such as the
learning rate, the rows have those with the highest mean validation accuracy, so that every method
is tuned in the same way by those who run it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.errors import DataError
from cfljax.registry.options import Table, show
from cfljax.report.configurations import Unit, collect
from cfljax.store.quantities import NEW_CLIENTS, number

TEXTS = ("method", "setting", "seed", "chosen", "run", "cfljax", "commit")
"""The first columns of a file of rows; the others are numbers."""
TELLING = ("alpha", "shards", "classes_per_client", "balance")
"""Options of partitions that are part of a setting's name."""
BALANCE = {"classes": "equal", "dirichlet": "shares"}
"""Default of `balance`, which names leave out: older records of `dirichlet` do not have it."""
NUMBERS = ("accuracy", "ari", "megabytes", "clock_s")


class Row(NamedTuple):
    """A run on the board."""

    method: str
    setting: str
    """The data set, the partition and the cut, as in `mnist dirichlet alpha=0.1 100x200`."""
    seed: int
    chosen: str
    """The numbers that were chosen by validation, as in `lr=0.05`."""
    run: str
    cfljax: str
    commit: str
    numbers: dict[str, float]
    """`accuracy` (test accuracy at the best validation), `ari`, `megabytes` (both ways), `clock_s`
    (simulated), and `accuracy_new_<steps>` of new clients, as far as they are known."""
    by: str = ""
    """The name of its file."""


def rows(folders: Iterable[str | Path]) -> list[Row]:
    """Read the rows of results folders; DataError where runs have no validation samples to choose
    by. Numbers at which more seeds diverged than at others are not chosen: the seeds that remain
    would flatter them."""
    groups: dict[tuple[str, str], list[tuple[int, float, str, list[Unit]]]] = {}
    for each in collect(folders).configurations:
        done = each.by_status("done")
        if done:
            config = done[0].record["config"]
            chosen = " ".join(
                f"{name}={value}" for name, value in each.options if (name, value) not in each.data
            )
            key = (each.label, _name_setting(config["data"]))
            chosen = chosen or f"lr={show(config['train'].get('lr'))}"
            groups.setdefault(key, []).append(
                (-len(each.by_status("diverged")), _mean_validation(done), chosen, done)
            )
    found = []
    for (method, setting), tried in groups.items():
        if len(tried) > 1 and any(math.isnan(score) for _, score, _, _ in tried):
            raise DataError(
                f"{method} on {setting}: nothing to choose by; the board needs "
                "data.validation, as in experiments/board.toml"
            )
        _, _, chosen, done = max(tried, key=lambda entry: entry[:2])
        found += [_make_row(method, setting, chosen, unit) for unit in done]
    return found


def _name_setting(data: Table) -> str:
    """Name a setting, whatever else the folder holds: so that rows of two folders meet. Another
    split of the data is another setting, `20x100` are 20 clients of 100 samples, and so is another
    scale of the samples than the default."""
    usual = {"balance": BALANCE.get(data["partition"])}
    more = [
        f"{name}={show(data[name])}"
        for name in TELLING
        if name in data and data[name] != usual.get(name)
    ]
    if (scale := data.get("normalise", "unit")) != "unit":
        more.append(f"normalise={scale}")
    cut = (
        [f"{data['clients']}x{data['samples_per_client']}"] if "samples_per_client" in data else []
    )
    return " ".join([str(data["name"]), str(data["partition"]), *more, *cut])


def _mean_validation(units: list[Unit]) -> float:
    """Return the mean over runs of the best validation accuracy; NaN without validation samples."""
    best = []
    for unit in units:
        curve = unit.store.read(unit.id, ("history/",))[1].get("history/val_accuracy")
        best.append(
            math.nan if curve is None or not np.isfinite(curve).any() else float(np.nanmax(curve))
        )
    return float(np.mean(best))


def _make_row(method: str, setting: str, chosen: str, unit: Unit) -> Row:
    summary, git = unit.record["summary"], unit.record.get("git") or {}
    accuracy = summary.get("accuracy_at_best_val", summary.get("accuracy_last10"))
    sent = (number(summary.get("bytes_up")) + number(summary.get("bytes_down"))) / 1e6
    known = {
        "accuracy": accuracy,
        "ari": summary.get("ari_last"),
        "megabytes": sent,
        "clock_s": summary.get("clock_s"),
    }
    known |= {name: value for name, value in summary.items() if name.startswith(NEW_CLIENTS)}
    numbers = {name: value for name, raw in known.items() if math.isfinite(value := number(raw))}
    made = (
        str(unit.record.get("versions", {}).get("cfljax", "")),
        str(git.get("commit", ""))[:12] + ("+" if git.get("dirty") else ""),
    )
    return Row(method, setting, unit.seed, chosen, unit.id, *made, numbers)


def to_csv(found: list[Row]) -> str:
    """Write the rows as a CSV file: one line per run."""
    names = list(dict.fromkeys([*NUMBERS, *(name for row in found for name in row.numbers)]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*TEXTS, *names])
    for row in sorted(found):
        writer.writerow(
            [
                *row[: len(TEXTS)],
                *(f"{row.numbers[name]:.6g}" if name in row.numbers else "" for name in names),
            ]
        )
    return text.getvalue()


def from_csv(path: Path) -> list[Row]:
    """Read the rows of a file; DataError of one line that names it and the line where something is
    wrong."""
    return list(_read(path))


def _read(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        if missing := [
            name for name in (*TEXTS, "accuracy") if name not in (lines.fieldnames or ())
        ]:
            raise DataError(
                f"{path}: has no column {show(missing[0])}; write it with python -m "
                "experiments.replication DIR --board"
            )
        for line in lines:
            try:
                numbers = {
                    name: float(text) for name, text in line.items() if name not in TEXTS and text
                }
                seed = int(line["seed"])
            except (TypeError, ValueError):
                raise DataError(
                    f"{path}: line {lines.line_num}: must have numbers after the run's name"
                ) from None
            if not 0 <= numbers.get("accuracy", math.nan) <= 1:
                raise DataError(
                    f"{path}: line {lines.line_num}: accuracy: must be a fraction from 0 to 1"
                )
            method, setting, chosen, run, version, commit = (
                line[name] for name in TEXTS if name != "seed"
            )
            yield Row(method, setting, seed, chosen, run, version, commit, numbers, path.stem)
