"""From a TOML file or a dict, and flags, to a checked Spec with its runs. Any mistake in them is
one SpecError of one line."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path

from cfljax.config.flags import Flag, apply_sets, check_sets, choose_size, parse_set
from cfljax.config.grid import Search, make_grid, make_runs, read_search
from cfljax.config.layers import lay_over, need_table, tidy
from cfljax.config.plugins import load as load_plugins
from cfljax.config.rules import ExclusionRule
from cfljax.config.run import Run
from cfljax.config.toml import load, sanitise
from cfljax.config.trials import add_trials, has_ranges
from cfljax.errors import SpecError, join_errors
from cfljax.registry.options import Table, show

_MAX_SHOWN_END = 240


@dataclasses.dataclass(frozen=True)
class Spec:
    """A checked spec."""

    name: str
    # Where it was read from; "" for a dict
    file: str
    # The spec as written, before flags
    table: Table
    sets: tuple[str, ...]
    warnings: tuple[str, ...]
    _runs: tuple[Run, ...] = dataclasses.field(repr=False, default=())
    # How the spec is tuned (`cfljax.tune`)
    search: Search = Search()

    def runs(self) -> list[Run]:
        """List every run once, in the order of the spec, without reading the data."""
        return list(self._runs)

    def units(self) -> list[Run]:
        """List every run once by its id: of two paths that hold the same data, the first."""
        found: dict[str, Run] = {}
        for run in self._runs:
            found.setdefault(run.id, run)
        return list(found.values())

    def describe_sweep(self) -> Table:
        """Return what a results folder's plan stores of the sweep for its tables and pages: its
        name, the ids of its runs in order, and the rows of its table, each with its runs and the
        options that vary in them. A run that two rows share is in both."""
        rows: dict[tuple[str, bool], dict[str, Run]] = {}
        for run in self._runs:
            for name in run.rows:
                rows.setdefault(name, {}).setdefault(run.id, run)
        asked = [(follows, run) for (_, follows), row in rows.items() for run in row.values()]
        several = len({seed_of(run, follows) for follows, run in asked}) > 1
        labels = [
            {
                "label": label,
                "data_seed": "run" if follows else None,
                "units": list(row),
                "varies": [
                    run.varies | ({"data.seed": seed_of(run, follows)} if several else {})
                    for run in row.values()
                ],
            }
            for (label, follows), row in rows.items()
        ]
        return {
            "name": self.name,
            "units": list(dict.fromkeys(run.id for run in self._runs)),
            "labels": labels,
        }

    def labels_by_id(self) -> dict[str, Table]:
        """Return the label and the varying options of each run, by id. A record of an earlier spec
        may have other ones."""
        return {run.id: {"label": run.label, "varies": dict(run.varies)} for run in self._runs}


def seed_of(run: Run, follows: bool) -> int | str:
    """Return the option `data.seed` of a run in a row of the table. `follows`: it is "run" there,
    which for another row that has the same run may be a number."""
    return "run" if follows else run.data_seed


def read_spec(
    source: str | os.PathLike[str] | Table,
    sets: Iterable[str] = (),
    plugins: Iterable[str] = (),
    tuned: bool = False,
) -> Spec:
    """Read the spec in a TOML file or a dict, with `--set` flags laid over it, checked to the last
    option, with these plug-ins. `tuned`: if it has no ranges, its runs are of the settings that its
    methods declare to be worth trying."""
    file = "" if isinstance(source, dict) else os.fspath(source)
    flags: tuple[str, ...] = ()
    try:
        flags = tuple(sets)
        table = load(Path(file)) if not isinstance(source, dict) else source
        clean: Table = sanitise(table)
        loaded = load_plugins(plugins)
        if "plugins" in clean:
            named = clean["plugins"]
            loaded += load_plugins(
                named if isinstance(named, list) else [named], Path(file).parent, "plugins"
            )
        if loaded:
            clean["plugins"] = loaded
        parsed = [parse_set(flag) for flag in flags]
        parsed = [(path, sanitise(value, ".".join(path))) for path, value in parsed]
        warn: list[str] = []
        runs, search = build_runs(clean, parsed, warn, tuned)
        name = next(
            (v for p, v in reversed(parsed) if p == ["name"]),
            clean.get("name", Path(file).stem or "sweep"),
        )
        if not isinstance(name, str) or not name.strip():
            raise SpecError(f"name = {show(name)}: must be a string that is not empty")
    except SpecError as error:
        raise join_errors(one_line(line, file, flags) for line in error.lines) from None
    return Spec(
        name, file, copy.deepcopy(clean), flags, tuple(dict.fromkeys(warn)), tuple(runs), search
    )


def build_runs(
    raw: Table, sets: list[Flag], warn: list[str], tuned: bool = False
) -> tuple[list[Run], Search]:
    """Build the runs and the search options. The chosen size is laid over base and includes, the
    flags over the result. `tuned`: as for `read_spec`."""
    check_sets(sets, warn)
    chosen, size, sets = choose_size(raw, sets)
    whole = {path[0]: value for path, value in sets if len(path) == 1}
    base = tidy({**{key: whole[key] for key in ("data", "method") if key in whole}, **raw})
    layers = [base]
    for i, table in enumerate(_list_tables(raw, "include")):
        layers.append(lay_over(base, table, f"include[{i}]"))
    rules = [
        ExclusionRule(table, f"exclude[{i}]")
        for i, table in enumerate(_list_tables(raw, "exclude"))
    ]
    layers = [apply_sets(lay_over(layer, size, f"size.{chosen}"), sets) for layer in layers]
    search = read_search(layers[0].get("search", {}))
    grids = [make_grid(layer) for layer in layers]
    if tuned and not has_ranges(grids):
        seeds = [layer.get("search_seed", 0) for layer in layers]
        grids = [add_trials(grid, seed) for grid, seed in zip(grids, seeds, strict=True)]
        trials = max(len(grid.entrants) // len({e.label for e in grid.entrants}) for grid in grids)
        warn.append(
            f"the spec has no ranges: each method tries {trials} settings of the ranges that its "
            "options declare, in place of the spec's numbers (samples = … for another number of "
            "settings; a list of one value, as [0.1], stays)"
        )
    return make_runs(grids, rules, warn), search


def _list_tables(raw: Table, key: str) -> list[Table]:
    value = raw.get(key, [])
    return [need_table(item, key) for item in (value if isinstance(value, list) else [value])]


def one_line(message: str, file: str, flags: Iterable[str]) -> str:
    """Format the message on one line of bounded length, after the file or the flag that it is
    about."""
    text = " ".join(message.split())
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if len(text) > 2 * _MAX_SHOWN_END:
        text = f"{text[:_MAX_SHOWN_END]} … {text[-_MAX_SHOWN_END:]}"
    if text.startswith("--set"):
        return text
    key = re.split(r"[\s:=]", text, maxsplit=1)[0]
    for flag in flags:
        named = flag.partition("=")[0].strip() if isinstance(flag, str) else None
        if named is not None and key in (named, f"{named}.name"):
            return f"--set {text}"
    match = re.match(r"line (\d+): ", text)
    if match and file:
        return f"{file}:{match[1]}: {text[match.end() :]}"
    return f"{file}: {text}" if file else text
