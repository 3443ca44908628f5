"""HOST. `data.drift`: which client changes its true group in which round, drawn or from a file. No
sample changes hands."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.errors import DataError, SpecError
from cfljax.federation.groups import add_view, count_views, rotations
from cfljax.federation.options import DriftOptions
from cfljax.types import Drift, Parts, Source, on_host

# Degrees by which `what = "rotation"` turns the images of a client that has changed,
# counter-clockwise
TURN_DEGREES = 90.0
# The first line of a file of changes
CHANGE_COLUMNS = ["round", "client", "group"]
# Beside the seed, so that no other draw of a run has the same numbers
_SEED_TAG = 0x64726966


class Change(NamedTuple):
    """A client is in this true group from this round on."""

    round: int
    client: int
    group: int


def _has_one_class(source: Source) -> bool:
    """Return whether each sample has one label, a class."""
    return source.y_train.ndim == 1 and source.y_train.dtype.kind != "f"


def apply_drift(
    options: DriftOptions, parts: Parts, source: Source, seed: int
) -> tuple[Parts, Drift]:
    """Add the views and groups that clients may change to, and find which client is in which group
    from which round on."""
    if options.what == "labels" and not _has_one_class(parts.source or source):
        raise SpecError(
            f'data.drift.what = "labels": samples of {source.name} have not one class each; take '
            '"group" or "rotation"'
        )
    parts, views = _add_views(options.what, parts, source)
    first = np.asarray(parts.group)
    groups = len(views)
    if options.file is None:
        changes = list(draw_changes(options, first, groups, seed))
    else:
        changes = read_changes(Path(options.file).expanduser(), len(first), groups)
    begin, group = phases(first, changes)
    return parts, Drift(
        on_host(begin),
        on_host(group),
        on_host(np.take_along_axis(views, group, axis=0).astype(np.int32)),
    )


def _add_views(what: str, parts: Parts, source: Source) -> tuple[Parts, np.ndarray]:
    """Add all views to the parts, and find each client's view in each group, i32[groups, C]; group
    g has a counterpart g + G."""
    clients = len(parts.train)
    source = parts.source or source
    group = np.asarray(parts.group, np.int32)
    if what == "group":
        return parts, _views_of_groups(parts, group, clients)
    # Unknown groups are one
    group = group if len(group) and group.min() >= 0 else np.zeros(clients, np.int32)
    of = np.zeros(clients, np.int32) if parts.view is None else np.asarray(parts.view, np.int32)
    views = count_views(parts)
    groups = int(group.max(initial=0)) + 1
    if what == "labels":
        plain = np.arange(source.classes, dtype=np.int32)
        table = {"labels": np.stack([plain, (plain + 1) % source.classes])}
    else:
        if parts.pixels is not None or source.table is not None:
            if source.table is None:
                why, other = "clients see rotated images already", "group"
            else:
                why, other = f"{source.name} has no images", "labels"
            raise SpecError(f'data.drift.what = "rotation": {why}; take what = "{other}"')
        table = {"pixels": rotations(source.x_train.shape[1:], (0.0, TURN_DEGREES))}
    parts = add_view(dataclasses.replace(parts, group=group, view=of), np.zeros_like(of), **table)
    return parts, np.repeat([of, of + views], groups, axis=0)


def _views_of_groups(parts: Parts, group: np.ndarray, clients: int) -> np.ndarray:
    """Find each client's view in each group, i32[groups, C], if a group is a view."""
    if parts.by_group is not None and len(parts.by_group) > 1:
        return parts.by_group
    groups = int(group.max(initial=-1)) + 1
    pairs = np.unique(
        np.stack([group, group if parts.view is None else parts.view], axis=1), axis=0
    )
    alike = parts.by_group is not None or parts.view is None or len(np.unique(pairs[:, 1])) < 2
    if groups < 2 or group.min() < 0 or alike or len(pairs) != groups:
        raise SpecError(
            'data.drift.what = "group": this partition does not transform the data of groups; take '
            'data.partition = "rotated" or similar, or what = "labels"'
        )
    return np.repeat(pairs[:, 1:], clients, axis=1)


def draw_changes(
    options: DriftOptions, first: np.ndarray, groups: int, seed: int
) -> Iterator[Change]:
    """Draw changes of clients in groups `first` i32[C]: with "group" to any other group, otherwise
    to the counterpart."""
    rng = np.random.default_rng([seed, _SEED_TAG])
    number = max(1, round(options.share * len(first)))
    group = first.copy()

    def draw_other_groups(clients: np.ndarray) -> np.ndarray:
        step = rng.integers(1, groups, len(clients)) if options.what == "group" else groups // 2
        new: np.ndarray = (group[clients] + step) % groups
        return new

    # At each point other clients change
    if options.kind == "sudden":
        for begin in options.at:
            who = rng.permutation(len(first))[:number]
            group[who] = draw_other_groups(who)
            yield from (Change(begin, int(c), int(group[c])) for c in who)
        return
    who = rng.permutation(len(first))[:number]
    away = draw_other_groups(who)
    # The same clients change there and back
    if options.kind == "recurrent":
        for turn, begin in enumerate(options.at):
            new = first[who] if turn % 2 else away
            yield from (Change(begin, int(c), int(g)) for c, g in zip(who, new, strict=True))
        return
    begin, end = options.at
    rounds = np.floor(np.linspace(begin, end, number) + 0.5).astype(int)
    yield from (Change(int(t), int(c), int(g)) for t, c, g in zip(rounds, who, away, strict=True))


def read_changes(file: Path, clients: int, groups: int) -> list[Change]:
    """Read a CSV file of changes with the columns round, client and group; raises DataError for an
    invalid line."""
    found: dict[tuple[int, int], Change] = {}
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            lines = csv.reader(stream)
            if [name.strip() for name in next(lines, [])] != CHANGE_COLUMNS:
                raise DataError(f"{file}: its first line must be {','.join(CHANGE_COLUMNS)}")
            for cells in lines:
                if cells:
                    change = _parse_change(f"{file}, line {lines.line_num}", cells, clients, groups)
                    if (change.round, change.client) in found:
                        raise DataError(
                            f"{file}, line {lines.line_num}: client {change.client} has two "
                            f"groups in round {change.round}"
                        )
                    found[change.round, change.client] = change
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise DataError(f"{file}: cannot be read ({getattr(e, 'strerror', None) or e})") from e
    if not found:
        raise DataError(f"{file}: has no changes")
    return sorted(found.values())


def last_change(file: Path) -> int:
    """Return the round of the last change in a file, whatever its clients and groups."""
    return read_changes(file, 2**31, 2**31)[-1].round


def _parse_change(where: str, cells: list[str], clients: int, groups: int) -> Change:
    """Return the change in the cells of a line, or raise a DataError that begins with `where`."""
    try:
        change = Change(*(int(cell) for cell in cells))
    except (TypeError, ValueError):
        raise DataError(
            f"{where}: {','.join(cells)[:60]}: must be three whole numbers: "
            f"{','.join(CHANGE_COLUMNS)}"
        ) from None
    for name, value, low, high in (
        ("round", change.round, 1, 2**31 - 2),
        ("client", change.client, 0, clients - 1),
        ("group", change.group, 0, groups - 1),
    ):
        if not low <= value <= high:
            raise DataError(f"{where}: {name} = {value}: must be from {low} to {high}")
    return change


def phases(first: np.ndarray, changes: list[Change]) -> tuple[np.ndarray, np.ndarray]:
    """Return (i32[P] the round in which each phase begins, i32[P, C] the groups in it), from the
    groups i32[C] of round 0."""
    begin = np.unique([0, *(change.round for change in changes)]).astype(np.int32)
    group = np.tile(first.astype(np.int32), (len(begin), 1))
    for change in sorted(changes):
        group[np.searchsorted(begin, change.round) :, change.client] = change.group
    return begin, group
