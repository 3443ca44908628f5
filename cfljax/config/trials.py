"""The settings that `cfljax tune` tries where a spec has no ranges: of each method as many, from
the ranges that its options declare (`option(…, search=…)`)."""

from __future__ import annotations

import contextlib
import dataclasses
import zlib

import numpy as np

from cfljax.config.grid import Entrant, Grid
from cfljax.config.tables import Draft
from cfljax.config.train import Train
from cfljax.config.values import Field, list_fields
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.registry.options import Value, is_range

# With search.reduce = 3: 9, 3 and 1 of them go on
DEFAULT_TRIALS = 9
ADAPTIVE_LR = (1e-4, 1e-2, "log")
"""The learning rates of optimisers that divide by the size of the gradient, as Adam does."""
# Numbers of a range are written with three digits
DIGITS = 3


def has_ranges(grids: list[Grid]) -> bool:
    """Return whether a spec says itself which settings are tried: by a list or a range of an option
    of training, the model or a method, or by several tables of a method."""
    return any(
        len(grid.models) > 1
        or any(len(entrant.trains) > 1 for entrant in grid.entrants)
        or len({entrant.label for entrant in grid.entrants}) < len(grid.entrants)
        or any(
            draft.count > 1 or draft.random
            for entrant in grid.entrants
            for draft in (entrant.draft, *entrant.trains, *grid.models)
        )
        for grid in grids
    )


def add_trials(grid: Grid, seed: int) -> Grid:
    """Return the grid in which each method has its trials.

    Args:
        grid: of a spec without ranges.
        seed: deals the values of a method's options to its trials."""
    number = grid.samples or DEFAULT_TRIALS
    clients = _count_clients(grid.data)
    entrants = [
        trial for entrant in grid.entrants for trial in _list_trials(entrant, number, seed, clients)
    ]
    return grid._replace(entrants=entrants, samples=None)


def _count_clients(data: list[Draft]) -> int | None:
    """Return the fewest clients of a data set and partition; None if only the data tell."""
    found = []
    for point in (point for draft in data for point in draft.points()):
        # A combination that a rule excludes may be invalid
        with contextlib.suppress(SpecError):
            clients = point.build(0).clients_that_train
            if clients is not None:
                found.append(clients)
    return min(found, default=None)


def list_searched(method: str) -> dict[str, tuple[Value, ...]]:
    """Map the options that are tried for a method, as a spec calls them, to what is tried."""
    options = METHODS.entry(method).options
    found = {f"method.{name}": search for name, search in _read(list_fields(options)).items()}
    if getattr(options, "searches_lr", True):
        found = {"train.lr": list_fields(Train)["lr"].meta["search"]} | found
    return found


def _read(fields: dict[str, Field]) -> dict[str, tuple[Value, ...]]:
    return {name: search for name, f in fields.items() if (search := f.meta.get("search"))}


def _list_trials(entrant: Entrant, number: int, seed: int, clients: int | None) -> list[Entrant]:
    """List the trials of a method: a Latin hypercube, in which each option takes values that are
    spread evenly over its range. A number of the spec is what a sweep takes, and is replaced; a
    list of one value stays. More clusters than clients are not tried, nor clusterings after the
    last round."""
    (train,) = entrant.trains
    (rounds,) = train.axes.get("rounds", [Train.rounds])
    most = {"clusters": clients, "warmup_rounds": rounds - 1, "min_rounds": rounds - 1}
    searched = {
        option: _limit(search, most.get(option.partition(".")[2]))
        for option, search in list_searched(entrant.draft.names["name"]).items()
    }
    values = {
        option: deal_values(option, search, number, seed)
        for option, search in searched.items()
        if option not in entrant.listed and search
    }
    if "train.lr" in values and _is_adaptive(train):
        values["train.lr"] = deal_values("train.lr", ADAPTIVE_LR, number, seed)
    return [
        entrant._replace(
            draft=_set(entrant.draft, "method", {k: v[i] for k, v in values.items()}),
            trains=[_set(train, "train", {k: v[i] for k, v in values.items()})],
        )
        for i in range(number)
    ]


def _limit(search: tuple[Value, ...], most: int | None) -> tuple[Value, ...]:
    """Return what of a range or of values is at most this number; None: all of it."""
    if most is None:
        return search
    if is_range(search):
        low, high, kind = search
        return (low, min(high, most), kind) if low < most else ()
    return tuple(value for value in search if value <= most)


def _is_adaptive(train: Draft) -> bool:
    """Return whether the spec asks for another optimiser than SGD."""
    (optimiser,) = train.axes.get("optimizer", ["sgd"])
    return (optimiser["name"] if isinstance(optimiser, dict) else optimiser) != "sgd"


def _set(draft: Draft, kind: str, values: dict[str, Value]) -> Draft:
    """Return the draft with the values of its options among these dotted names."""
    own = {
        name: [value]
        for option, value in values.items()
        for section, _, name in [option.partition(".")]
        if section == kind
    }
    return dataclasses.replace(draft, axes=draft.axes | own)


def deal_values(option: str, search: tuple[Value, ...], number: int, seed: int) -> list[Value]:
    """Return the value of an option in each trial: all levels of a range, or each of the values
    about as often, in an order of its own."""
    order = np.random.default_rng([seed, zlib.crc32(option.encode())]).permutation(number)
    if not is_range(search):
        return [search[i % len(search)] for i in order]
    low, high, kind = search
    spaced = np.geomspace if kind == "log" else np.linspace
    levels = [float(f"{level:.{DIGITS}g}") for level in spaced(low, high, number)]
    whole = isinstance(low, int) and isinstance(high, int)
    return [round(levels[i]) if whole else levels[i] for i in order]
