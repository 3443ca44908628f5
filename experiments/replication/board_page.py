"""Enters: the rows of the board. Leaves: its page in Markdown, and the picture of critical
differences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cfljax.errors import DataError
from cfljax.report.critical_difference import picture, svg
from cfljax.report.tested import describe_ranks
from cfljax.results.statistics import Ranks, mean_and_deviation, ranks
from cfljax.store.quantities import NEW_CLIENTS
from experiments.replication.board import Row, from_csv
from experiments.replication.tables import table

PAGE, PICTURE, ABOUT = "index.md", "ranks.svg", "about.txt"
"""The files of a board beside its rows; what stands in the last is written by hand, and is shown
above the ranks."""
FEWEST = 3
"""The fewest methods and settings for ranks."""
MORE = {"ari": "groups found (ARI)", "megabytes": "MB sent", "clock_s": "simulated time, s"}
"""Numbers beside accuracy -> their heading."""
SMALL, MEDIUM = "digits ", " 20x100"
"""How settings of the spec's small size begin, which need no data, and how settings of its medium
size end."""
SUBMIT = """## How to submit a row

1. Write your method as a file of its own (see "Add your own"), with options that you did not choose on test data. NAME is its
   registered name, FILE the file.
2. Run it on all settings and seeds of the spec, with its step sizes, of which the board takes the best by validation:
   `{command}`
3. `python -m experiments.replication results/mine --board {folder} --name YOURS` writes `{folder}/YOURS.csv`, a line per run with
   its id, version and commit, and updates this page.
4. Send both files. A reviewer who runs the same command finds the same ids.

A method has a rank if it has run on every setting that three methods or more have run on. {other}"""
SUBMIT_MEDIUM = """## How to submit a row

As on [the small board](../index.md#how-to-submit-a-row), with these commands:

`{command}`

`python -m experiments.replication results/mine --board {folder} --name YOURS`

{other}"""
COMMAND = (
    "CFLJAX_DATA=DATA python -m cfljax.sweep experiments/board.toml --plugin FILE --set "
    "method=NAME --out results/mine"
)
OTHER = {
    "small": "This board has the small size, whose images ship with scikit-learn. Rows of other sizes "
    "(`--set size=medium`, or\n"
    "no size) are listed, and get ranks when three methods have them.",
    "medium": "This board has the medium size: `20x100` are 20 clients of 100 samples. Rows of the "
    "full size (no\n"
    "`--set size=medium`) are listed, and get ranks when three methods have them.",
    "": "",
}
"""A size of the spec -> what the page says of the others."""


def board(folder: Path) -> dict[str, str]:
    """Name of a file -> its text: the page of a folder of row files, and its picture if there are
    ranks."""
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise DataError(f"{folder}: holds no file of rows (*.csv); give results folders and --name")
    about = folder / ABOUT
    text = about.read_text(encoding="utf-8").strip() if about.is_file() else ""
    return page([row for file in files for row in from_csv(file)], text)


def page(rows: Sequence[Row], about: str = "") -> dict[str, str]:
    """Write the board's pages from rows. `about`: what the settings are."""
    names, settings = _group_rows(rows), list(dict.fromkeys(row.setting for row in rows))
    scores = {
        (name, setting): _average(names[name], setting, "accuracy")
        for name in names
        for setting in settings
    }
    ranked = [
        setting
        for setting in settings
        if sum(scores[name, setting] is not None for name in names) >= FEWEST
    ]
    whole = [name for name in names if all(scores[name, setting] is not None for setting in ranked)]
    over = None
    if len(whole) >= FEWEST and len(ranked) >= FEWEST:
        over = ranks(
            whole, np.array([[scores[name, setting] for name in whole] for setting in ranked])
        )
    order = [
        *(over.names if over else []),
        *(name for name in names if over is None or name not in over.names),
    ]
    parts = ["# The board", _describe(rows, settings), *([about] if about else []), *_rank(over)]
    parts += [
        _write_overall(names, order, over, ranked),
        "## Accuracy, setting by setting",
        _write_settings(names, order, settings),
        _submit(ranked),
    ]
    found = {PAGE: "\n\n".join(parts) + "\n"}
    if over is not None:
        found[PICTURE] = _draw_ranks(over)
    return found


def _submit(ranked: list[str]) -> str:
    """How to submit a row on the settings that have ranks."""
    size = _find_size(ranked)
    command = COMMAND.replace(" --out", f" --set size={size} --out") if size else COMMAND
    folder = "docs/board/medium" if size == "medium" else "docs/board"
    if size == "small":
        command = command.removeprefix("CFLJAX_DATA=DATA ")
    return (
        (SUBMIT_MEDIUM if size == "medium" else SUBMIT)
        .format(command=command, folder=folder, other=OTHER[size])
        .strip()
    )


def _find_size(ranked: list[str]) -> str:
    """Return the size of the spec that has these settings; "" is the full one."""
    if ranked and all(setting.startswith(SMALL) for setting in ranked):
        return "small"
    return "medium" if ranked and all(setting.endswith(MEDIUM) for setting in ranked) else ""


def _draw_ranks(over: Ranks) -> str:
    """Draw the picture of critical differences as a file of its own, black on white."""
    head, inside = svg(picture(over)).split(">", 1)
    named = head.replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" color="#000" ', 1
    )
    return f'{named}><rect width="100%" height="100%" fill="#fff"/>{inside}\n'


def _group_rows(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Name of a method -> its rows. A name that several files have says which file it is of."""
    files: dict[str, set[str]] = {}
    rows = list(rows)
    for row in rows:
        files.setdefault(row.method, set()).add(row.by)
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(
            row.method if len(files[row.method]) == 1 else f"{row.method} ({row.by})", []
        ).append(row)
    return found


def _describe(rows: Sequence[Row], settings: list[str]) -> str:
    seeds = sorted(
        {
            sum(
                r.method == row.method and r.setting == row.setting and r.by == row.by for r in rows
            )
            for row in rows
        }
    )
    runs = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    files = ", ".join(f"`{name}.csv`" for name in dict.fromkeys(row.by for row in rows) if name)
    versions = sorted({row.cfljax for row in rows})
    commits = {
        each: ", ".join(sorted({row.commit or "no commit" for row in rows if row.cfljax == each}))
        for each in versions
    }
    made = "; ".join(f"cfljax {each} at {commits[each]}" for each in versions)
    data = list(dict.fromkeys(setting.split(" ")[0] for setting in settings))
    cuts = f"{len(settings)} partition{'s' if len(settings) > 1 else ''} of {_join(data)}"
    return (
        f"{len({row.method for row in rows})} methods on {cuts}, {runs} seeds each"
        f"{f', from {files}' if files else ''}. Accuracy is on the test samples at the "
        "evaluation with the best validation "
        "accuracy. Validation also chose hyperparameters such as the learning rate, among as "
        "many values for every method. "
        f"Made with {made}."
    )


def _rank(over: Ranks | None) -> list[str]:
    if over is None:
        return [
            "There are no ranks yet: they need three methods that have run on all of three "
            "settings or more."
        ]
    level = over.names[: next((last for first, last in over.level_groups if first == 0), 0) + 1]
    behind = [name for name in over.names if name not in level]
    others = (
        f"does not differ significantly from {len(level) - 1} of the {len(over.names) - 1} others"
    )
    best = f"{over.names[0]} has the best mean rank, {over.means[0]:.2f}, and {others}"
    worse = f": the ranks of {_join(behind)} are significantly worse" if behind else ""
    caution = (
        "The test assumes independent settings. Settings that share a data set are not, so it "
        "finds differences too easily."
    )
    return [
        f"**{best}{worse}.**",
        f"![Critical differences]({PICTURE})",
        f"{_without_ranks(describe_ranks(over))}. {caution}",
    ]


def _without_ranks(text: str) -> str:
    """Return sentences on ranks without the list of them, which is a column of the table."""
    return re.sub(r"The mean ranks are .*; mean ranks", "Mean ranks", text)


def _join(names: Sequence[str]) -> str:
    """Join the names as words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _write_overall(
    names: dict[str, list[Row]], order: list[str], over: Ranks | None, ranked: list[str]
) -> str:
    """Write a row for each method: its rank, and the means over its settings, with their number
    where it lacks some."""
    known = {name for rows in names.values() for row in rows for name in row.numbers}
    new = sorted(
        (name for name in known if name.startswith(NEW_CLIENTS)),
        key=lambda name: int(name.removeprefix(NEW_CLIENTS)),
    )
    heads = [f"new clients, {name.removeprefix(NEW_CLIENTS)} steps" for name in new]
    more = [name for name in MORE if name in known]
    lines = []
    for name in order:
        rank = (
            f"{over.means[over.names.index(name)]:.2f}"
            if over is not None and name in over.names
            else "–"
        )
        cells = [
            _format_number(_average(names[name], None, quantity), quantity)
            for quantity in ("accuracy", *new, *more)
        ]
        ran = {row.setting for row in names[name]}.intersection(ranked)
        part = f" ({len(ran)} of {len(ranked)} settings)" if 0 < len(ran) < len(ranked) else ""
        lines.append([name + part, rank, *cells])
    return table(
        ["method", "mean rank", "accuracy (%)", *heads, *(MORE[name] for name in more)], lines
    )


def _write_settings(names: dict[str, list[Row]], order: list[str], settings: list[str]) -> str:
    """Write a table for each data set, with a column for each of its partitions. What all of them
    share stands above it."""
    parts = []
    for data in dict.fromkeys(setting.split(" ")[0] for setting in settings):
        own = [setting for setting in settings if setting.split(" ")[0] == data]
        words = [setting.split(" ")[1:] for setting in own]
        shared = [word for word in words[0][1:] if all(word in each for each in words)]
        heads = [" ".join(word for word in each if word not in shared) for each in words]
        lines = [[name, *(_format_cell(names[name], setting) for setting in own)] for name in order]
        kept = [line for line in lines if any(cell != "–" for cell in line[1:])]
        parts.append(f"### {' '.join([data, *shared])}\n\n" + table(["method", *heads], kept))
    return "\n\n".join(parts)


def _format_cell(rows: Iterable[Row], setting: str) -> str:
    mean, deviation = mean_and_deviation(
        [100 * row.numbers["accuracy"] for row in rows if row.setting == setting]
    )
    return (
        "–"
        if mean != mean
        else f"{mean:.1f}" + (f" ± {deviation:.1f}" if deviation is not None else "")
    )


def _average(rows: Iterable[Row], setting: str | None, quantity: str) -> float | None:
    """Return the mean over runs in a setting; over the settings' means if none is given. None
    without any."""
    of: dict[str, list[float]] = {}
    for row in rows:
        if quantity in row.numbers and setting in (None, row.setting):
            of.setdefault(row.setting, []).append(row.numbers[quantity])
    return float(np.mean([np.mean(values) for values in of.values()])) if of else None


def _format_number(value: float | None, quantity: str) -> str:
    if value is None:
        return "–"
    if quantity.startswith("accuracy"):
        return f"{100 * value:.1f}"
    return (
        f"{value:.2f}" if quantity == "ari" else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    )
