"""From a tidy spec to its runs: the grid of all combinations, without those that rules exclude,
each checked and once."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cfljax.config.data import Data
from cfljax.config.layers import EXCLUSIVE, SIBLINGS_KEY, lay_options, need_table
from cfljax.config.rules import Combination, ExclusionRule, check_parts, check_start
from cfljax.config.run import Run, merge_equal
from cfljax.config.tables import (
    RESERVED_KEYS,
    Draft,
    make_data_drafts,
    make_method_draft,
    make_model_drafts,
    make_train_drafts,
)
from cfljax.config.train import Train
from cfljax.config.train_tables import check_buffer, check_stop
from cfljax.config.values import MAX_RUNS, Field, expand_axis, list_fields, parse_range
from cfljax.errors import SpecError, join_errors, suggest
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.registry.gone import check_gone
from cfljax.registry.options import (
    Table,
    Value,
    check,
    check_value,
    list_files,
    option,
    show,
)
from cfljax.round.config import MethodConfig
from cfljax.round.refused import leave_out

_SEEDS = Field(int, {"low": 0, "high": 2**31 - 1}, None)


class Entrant(NamedTuple):
    """A method of the sweep, with the training tables it runs with."""

    label: str
    draft: Draft
    trains: list[Draft]
    # Dotted names of the options that the spec gives as lists, even of one value
    listed: frozenset[str] = frozenset()


class Grid(NamedTuple):
    """All drafts of one layer of a spec. Its runs are every combination of data, model, method,
    training and seed."""

    data: list[Draft]
    models: list[Draft]
    entrants: list[Entrant]
    seeds: list[int]
    samples: int | None

    @property
    def size(self) -> int:
        """The number of its runs before rules exclude some."""

        def count_both(drafts: list[Draft]) -> tuple[int, int]:
            """Count the points without a random option, and all points."""
            return sum(d.count for d in drafts if not d.random), sum(d.count for d in drafts)

        total = 0
        for entrant in self.entrants:
            pairs = [
                count_both(drafts)
                for drafts in (self.data, self.models, entrant.trains, [entrant.draft])
            ]
            # A combination with a random option is drawn `samples` times, any other runs once
            fixed = math.prod(f for f, _ in pairs)
            every = math.prod(e for _, e in pairs)
            total += fixed + (every - fixed) * (self.samples or 1)
        return total * len(self.seeds)


def make_grid(raw: Table) -> Grid:
    """Make the grid of a tidy spec; names, types and ranges are checked here."""
    search_seed = check_value(
        raw.get("search_seed", 0), int, {"low": 0, "high": 2**31 - 1}, "search_seed"
    )
    samples = raw.get("samples")
    if samples is not None:
        samples = check_value(samples, int, {"low": 1, "high": MAX_RUNS}, "samples")

    def list_with_keys(kind: str) -> Iterator[tuple[Table, str]]:
        """Yield the tables of a kind with their key in messages."""
        many = len(raw[kind]) > 1
        return ((table, f"{kind}[{i}]" if many else kind) for i, table in enumerate(raw[kind]))

    data = [
        d
        for table, where in list_with_keys("data")
        for d in make_data_drafts(table, where, search_seed)
    ]
    models = [
        d
        for table, where in list_with_keys("model")
        for d in make_model_drafts(table, where, search_seed)
    ]
    trains = [
        d
        for table, where in list_with_keys("train")
        for d in make_train_drafts(table, where, search_seed)
    ]
    defaults = need_table(raw.get("defaults", {}), "defaults")
    entrants = [
        _make_entrant(table, raw["train"], trains, defaults, search_seed) for table in raw["method"]
    ]
    _check_siblings(raw["method"])
    _check_defaults(defaults, entrants)
    _check_labels(raw["method"], entrants)
    grid = Grid(data, models, entrants, read_seeds(raw.get("seeds", [0])), samples)
    for draft in [*data, *models, *trains, *(d for e in entrants for d in (e.draft, *e.trains))]:
        if draft.random and samples is None:
            key = next(k for k, values in draft.axes.items() if hasattr(values[0], "draw"))
            raise SpecError(
                f"{draft.where}.{key}: is a random range, which needs the number of draws: "
                "add samples = 50 at the top"
            )
    return grid


def _make_entrant(
    table: Table, tables: list[Table], trains: list[Draft], defaults: Table, search_seed: int
) -> Entrant:
    """Make the entrant of a method's table. `tables`: the `train` tables of the spec, and `trains`
    their drafts; a method with a `train` table of its own lays it over each."""
    name = table["name"]
    if not isinstance(name, str):
        raise SpecError(f"method.name = {show(name)}: must be a name, or a list of names")
    label = table.get("label", name)
    if not isinstance(label, str) or not label.strip():
        raise SpecError(f"method.{name}.label = {show(label)}: must be a string that is not empty")
    if not all(c.isprintable() or c == "\xa0" for c in label):
        raise SpecError(
            f"method.{name}.label = {label!r}: has a line break or another control character; "
            "leave it out"
        )
    where = f"method.{label}"
    shared = frozenset(table) - {SIBLINGS_KEY} if SIBLINGS_KEY in table else frozenset()
    options = {key: value for key, value in table.items() if key != SIBLINGS_KEY}
    draft = make_method_draft(options, where, defaults, search_seed, shared)
    if "train" in table:
        over = need_table(table["train"], f"{where}.train")
        if all(key in over for key in EXCLUSIVE):
            raise SpecError(
                f"{where}.train.steps = {show(over['steps'])}: give epochs or steps, not both"
            )
        trains = [
            d
            for t in tables
            for d in make_train_drafts(lay_options(t, over), f"{where}.train", search_seed)
        ]
    given = {f"method.{key}": value for key, value in (defaults | table).items()}
    trained = (*tables, table["train"]) if "train" in table else tables
    given |= {f"train.{key}": value for each in trained for key, value in each.items()}
    listed = frozenset(key for key, value in given.items() if isinstance(value, list))
    return Entrant(label, draft, trains, listed)


def read_seeds(value: Value) -> list[int]:
    """Read the seeds of a spec; raise a SpecError if one is given twice."""
    if isinstance(value, int) and not isinstance(value, bool):
        many = max(value, 1)
        raise SpecError(
            f"seeds = {value}: must be a list or a range: [{value}] is seed {value}, "
            f'"0:{many}" makes {many}'
        )
    seeds = (
        expand_axis(value, _SEEDS, "seeds")
        if isinstance(value, list) or (isinstance(value, str) and parse_range(value, "seeds"))
        else []
    )
    if not seeds or any(hasattr(seed, "draw") for seed in seeds):
        raise SpecError(
            f'seeds = {show(value)}: must be a list of integers, or a range such as "0:5"'
        )
    if twice := [seed for seed, times in collections.Counter(seeds).items() if times > 1]:
        raise SpecError(f"seeds = {show(value)}: {twice[0]} is given twice")
    return seeds


def _check_siblings(methods: list[Table]) -> None:
    """Reject an option of a table for several names that none of them has."""
    for table in methods:
        names = table.get(SIBLINGS_KEY, [])
        options = {
            key for name in names for key in list_fields(METHODS.entry(name, "method.name").options)
        }
        for key in table:
            if names and key not in (*RESERVED_KEYS, SIBLINGS_KEY, *options):
                check_gone("method", key, table[key], "method", None)
                raise SpecError(
                    f"method.{key}: none of {', '.join(names)} has such an option"
                    + suggest(key, options)
                )


def _check_defaults(defaults: Table, entrants: list[Entrant]) -> None:
    """Require that an option in `[defaults]` belongs to some method, even one that this sweep
    leaves out, and to nothing else."""
    for key in sorted(set(defaults) & set(list_fields(Train))):
        shown = f"defaults.{key} = {show(defaults[key])}"
        raise SpecError(
            f"{shown}: train has an option of this name, too; write train.{key}, or give it "
            "in a [[method]] table"
        )
    left = set(defaults) - {key for e in entrants for key in e.draft.fields}
    if left:
        everything = {key for name in METHODS for key in list_fields(METHODS.entry(name).options)}
        for key in sorted(left - everything):
            check_gone("method", key, defaults[key], "defaults", None)
            raise SpecError(
                f"defaults.{key} = {show(defaults[key])}: no method has such an option"
                + suggest(key, everything)
            )


def _check_labels(methods: list[Table], entrants: list[Entrant]) -> None:
    """Reject a label of two methods. One method without a label may stand there twice."""
    owners: dict[str, str] = {}
    for table, entrant in zip(methods, entrants, strict=True):
        name = entrant.draft.names["name"]
        if entrant.label in owners and ("label" in table or owners[entrant.label] != name):
            raise SpecError(
                f'method.{name}.label = "{entrant.label}": another method has this label already'
            )
        owners[entrant.label] = name


def make_runs(grids: list[Grid], rules: list[ExclusionRule], warn: list[str]) -> list[Run]:
    """Make the runs of all grids, each once, in the order of the spec. Warnings are added to
    `warn`."""
    total = sum(grid.size for grid in grids)
    if total > MAX_RUNS:
        raise SpecError(f"the spec makes {total:,} runs; at most {MAX_RUNS:,}")
    trains = [d for grid in grids for e in grid.entrants for d in e.trains]
    if any(type(v) is int and v == 1 for d in trains for v in d.axes.get("participation", [])):
        warn.append("train.participation = 1: one client; all of them is 1.0")
    drafts = [
        d for grid in grids for d in (*grid.data, *grid.models, *(e.draft for e in grid.entrants))
    ] + trains
    if any(grid.samples for grid in grids) and not any(d.random for d in drafts):
        warn.append("samples: no option has a range to draw from at random")
    runs: list[Run] = []
    checked: set[tuple[int, ...]] = set()
    trimmed: dict[tuple[int, ...], Trimmed] = {}
    # One combination for each set of drafts: together they have all options of the sweep
    seen: dict[tuple[int, ...], Combination] = {}
    refused: list[str] = []
    for combination in itertools.chain.from_iterable(list_combinations(grid) for grid in grids):
        if rules:
            seen.setdefault(tuple(id(point.draft) for point in combination[:4]), combination)
            # Every rule is tested, because each records which of its keys exist
            hits = [rule.matches(combination) for rule in rules]
            if any(hits):
                continue
        runs.append(_make_run(combination, checked, trimmed, refused, warn))
    if refused:
        raise join_errors(refused)
    for rule in rules:
        rule.check(seen.values())
        if not rule.used:
            warn.append(f"{rule.where}: excludes nothing")
    if not runs:
        raise SpecError("exclude: leaves nothing to run")
    distinct = merge_equal(runs)
    if twice := len(runs) - len(distinct):
        warn.append(f"{twice} of {len(runs)} runs are the same as another and run once")
    return distinct


def list_combinations(grid: Grid) -> Iterator[Combination]:
    """Yield every combination, seeds innermost; options drawn at random count as one more axis
    beside the others."""
    models = [p for draft in grid.models for p in draft.points()]
    shared = {id(draft): list(draft.points()) for e in grid.entrants for draft in e.trains}
    entrants = [
        (e.label, [p for d in e.trains for p in shared[id(d)]], list(e.draft.points()))
        for e in grid.entrants
    ]
    for data in (p for draft in grid.data for p in draft.points()):
        for model, (label, trains, methods) in itertools.product(models, entrants):
            for train, method in itertools.product(trains, methods):
                random = data.random or model.random or train.random or method.random
                for sample in range((grid.samples or 1) if random else 1):
                    for seed in grid.seeds:
                        yield Combination(data, model, train, method, label, sample, seed)


class Trimmed(NamedTuple):
    """The training of a method, without what it refuses."""

    train: Train
    # Dotted name → value of what was left out
    left_out: Table
    # A line on each of these
    told: list[str]


def _trim(where: str, options: MethodConfig, train: Train, data: Data) -> Trimmed:
    """Leave out what the method refuses, if the spec asks for it. `where`: the name of the method's
    table."""
    if train.refused != "drop":
        return Trimmed(train, {}, [])
    reasons = options.refuse(train, data)
    kept, left_out = leave_out(train, reasons)
    told = [f"{name} with {where}: left out; {reasons[name[6:]]}" for name in left_out]
    # A run of the same options that were written by hand is the same
    return Trimmed(dataclasses.replace(kept, refused="error"), left_out, told)


def _make_run(
    c: Combination,
    checked: set[tuple[int, ...]],
    trimmed: dict[tuple[int, ...], Trimmed],
    refused: list[str],
    warn: list[str],
) -> Run:
    """Make the run of a combination, and check options that belong together.

    Args:
        c: The combination.
        checked: The sets of parts that have been checked.
        trimmed: What training became for sets of parts.
        refused: What is wrong with them, a line each, so that a user is told of all at once.
        warn: Lines on options that are taken, but do not do what one may expect.
    """
    data, model, train, method = (
        point.build(c.sample) for point in (c.data, c.model, c.train, c.method)
    )
    where = f"method.{c.label}"
    trains = (id(data), id(train), id(method))
    if trains not in trimmed:
        trimmed[trains] = _trim(where, method.options, train, data)
        warn += trimmed[trains].told
    train, left_out, _ = trimmed[trains]
    key = (id(data), id(model), id(train), id(method))
    # Many runs share their parts, so that each set of parts is checked once. The points keep the
    # parts alive, so that no `id` is used twice.
    if key not in checked:
        checked.add(key)
        options = method.options
        for check in (
            lambda: _check_together(data, train),
            lambda: check_stop(train.stop, data.validation, train.metrics),
            lambda: check_parts(c.label, options, train),
            lambda: check_start(c.label, options, model.options, train, data),
            lambda: _check_unlabelled(data, options, train, where),
            lambda: options.check_train(where, train),
            lambda: options.check_run(where, train, data, model),
        ):
            try:
                check()
            except SpecError as error:
                refused += error.lines
        if not refused:
            warn += options.warn_run(where, train, data)
    return Run(method.name, c.label, method.options, data, model, train, c.seed, left_out=left_out)


def _check_unlabelled(data: Data, options: MethodConfig, train: Train, where: str) -> None:
    """Require that the method, or `data.new_clients.rule`, can place clients without labels where
    there are some."""
    if data.new_clients is None or data.new_clients.shots or options.places_unlabelled:
        return
    if data.new_clients.rule is None or "client" in (train.parts or {}).values():
        fix = (
            'give data.new_clients.rule = "entropy" (without parts of clients), or shots = 1 or '
            "more"
        )
        raise SpecError(
            f"data.new_clients.shots = 0 with {where}: it places new clients by labels; {fix}"
        )


def _check_together(data: Data, train: Train) -> None:
    """Reject files of a partition that are not there, and options of `train` that do not fit the
    number of clients or the time of a drift."""
    if PARTITIONS.is_built_in(data.partition):
        for name, file in list_files(data.parts).items():
            if not file.is_file():
                raise SpecError(
                    f'data.{name} = "{file}": there is no such file in {Path.cwd()}; give its path'
                )
    if data.drift is not None:
        from cfljax.federation.drift import last_change

        drift = data.drift
        last = drift.at[-1] if drift.file is None else last_change(Path(drift.file).expanduser())
        if last >= train.rounds:
            given = f"at = {show(drift.at)}" if drift.file is None else f'file = "{drift.file}"'
            why = (
                f"train.rounds = {train.rounds} ends a run before the last change, in round {last}"
            )
            raise SpecError(f"data.drift.{given}: {why}")
        if train.plan_options.keep:
            raise SpecError(
                "train.plan.keep = true: Gram matrices cannot be kept if data.drift changes "
                "the data; leave it out"
            )
    clients = data.clients
    if clients is None:
        return
    if train.asynchronous is not None:
        check_buffer(train.asynchronous, train.participants(clients))
    if isinstance(train.participation, int) and train.participation > clients:
        raise SpecError(
            f"train.participation = {train.participation}: there are only {clients} clients "
            "(data.clients)"
        )
    if data.arrive is not None and data.arrive.clients > clients:
        raise SpecError(
            f"data.arrive.clients = {data.arrive.clients}: there are only {clients} clients "
            "(data.clients)"
        )


@dataclasses.dataclass(frozen=True)
class Search:
    """The `search` table."""

    method: str = option(
        "halving", "successive halving: the better settings continue", choices=("halving",)
    )
    reduce: int = option(
        3, "one setting in this many continues, for this many times the rounds", low=2, high=100
    )
    first: int = option(10, "rounds until the first choice", low=1, high=10**9)
    seeds: tuple[int, ...] = option(
        (10_000,), "seeds to tune with, instead of the spec's; compare on others"
    )


def read_search(value: object) -> Search:
    """Check the `search` table of a spec; its seeds may be a range, as the spec's seeds."""
    table: Table = need_table(value, "search")
    if "seeds" in table:
        table = {**table, "seeds": read_seeds(table["seeds"])}
    return check(Search, table, "search")
