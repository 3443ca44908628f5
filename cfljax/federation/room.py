"""HOST. Pad federations to shapes that they share with others, so that runs on them share compiled
programs: `clients`, `samples`, `pool_samples`, `groups` and `phases` of `train.plan`."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.types import Array, Drift, Federation, Pool, Split, View, on_host
from cfljax.types.federation import NEVER


class Room(NamedTuple):
    """How large the arrays of a federation are made: the options of `train.plan` with these names;
    None: as large as they must be."""

    # Clients: dummies follow the others
    clients: int | None = None
    # Samples of each client in each split
    samples: int | None = None
    # Samples in the pool
    pool_samples: int | None = None
    # True groups, and views, each with all its tables
    groups: int | None = None
    # Phases of a drift
    phases: int | None = None


NO_ROOM = Room()


def make_room(federation: Federation, room: Room) -> Federation:
    """Return the federation with these shapes: nobody has or reads what is added. Results differ in
    the last bits at most."""
    clients = _find_size("clients", room.clients, federation.clients)
    size = len(federation.pool.y)
    of_clients = clients - federation.clients
    view, drift = federation.view, federation.drift
    views = [] if view is None else [len(table) for table in view[1:] if table is not None]
    groups = _find_size("groups", room.groups, max([federation.groups, *views]))
    if room.groups is not None:
        view = _complete_views(federation, groups)
    if room.phases is not None:
        drift = _add_phases(federation.group, view, drift, room.phases)
    splits = {
        name: _pad_split(split, of_clients, room.samples)
        for name, split in federation.splits.items()
    }
    return dataclasses.replace(
        federation.with_splits(splits),
        pool=_pad_pool(federation.pool, _find_size("pool_samples", room.pool_samples, size) - size),
        uid=_append(federation.uid, of_clients, -1),
        group=_append(federation.group, of_clients, -1),
        arrive=_append(federation.arrive, of_clients, 0),
        view=None if view is None else view._replace(of=_append(view.of, of_clients, 0)),
        drift=None
        if drift is None
        else drift._replace(
            group=_append(drift.group, of_clients, -1), view=_append(drift.view, of_clients, 0)
        ),
        groups=federation.groups if room.groups is None else room.groups,
    )


def _find_size(name: str, wanted: int | None, needed: int) -> int:
    """Return the wanted size; the needed one if none is wanted. Reject one that is too small."""
    if wanted is not None and wanted < needed:
        raise SpecError(
            f"train.plan.{name} = {wanted}: the data have {needed}; give {needed} or more, and as "
            "many as any of the data that are to share programs"
        )
    return needed if wanted is None else wanted


def _append(values: Array, number: int, value: int) -> Array:
    """Append this value so many times to the last axis."""
    known = np.asarray(values)
    around = [(0, 0)] * (known.ndim - 1) + [(0, number)]
    return on_host(np.pad(known, around, constant_values=value))


def _pad_pool(pool: Pool, number: int) -> Pool:
    """Add so many samples of zeros at the end."""

    def pad(values: Array) -> Array:
        known = np.asarray(values)
        return on_host(np.pad(known, [(0, number)] + [(0, 0)] * (known.ndim - 1)))

    return pool._replace(x=pad(pool.x), y=pad(pool.y))


def _pad_split(split: Split, clients: int, samples: int | None) -> Split:
    """Add dummies that hold nothing, and rows up to so many for each client. A split that all
    clients share keeps its rows: other draws have the same ones."""
    count = _append(split.count, clients, 0)
    rows = np.asarray(split.rows)
    longest = split.longest
    if samples is not None and not split.shared:
        longest = _find_size("samples", samples, longest)
        rows = np.pad(rows, (0, len(count) * samples - len(rows)))
    return dataclasses.replace(
        split,
        rows=on_host(rows),
        start=_append(split.start, clients, 0),
        count=count,
        longest=longest,
    )


def _add_phases(group: Array, view: View | None, drift: Drift | None, phases: int) -> Drift:
    """Return so many phases; those that are added never begin."""
    if view is None:
        raise SpecError(
            f"train.plan.phases = {phases}: clients drift between views; give room for them, too, "
            "by train.plan.groups"
        )
    if drift is None:
        drift = Drift(
            on_host(np.zeros(1, np.int32)),
            on_host(np.asarray(group)[None]),
            on_host(np.asarray(view.of)[None]),
        )
    more = _find_size("phases", phases, len(drift.begin)) - len(drift.begin)

    def repeat_last(rows: Array) -> Array:
        return on_host(np.pad(np.asarray(rows), ((0, more), (0, 0)), mode="edge"))

    return Drift(
        _append(drift.begin, more, NEVER), repeat_last(drift.group), repeat_last(drift.view)
    )


def find_phases(drift: Drift | None) -> Drift | None:
    """Return the phases that begin; None if there is one, so that nothing changes."""
    if drift is None:
        return None
    begins = np.asarray(drift.begin) < NEVER
    if begins.sum() == 1:
        return None
    if begins.all():
        return drift
    return Drift(*(on_host(np.asarray(each)[begins]) for each in drift))


def _complete_views(federation: Federation, groups: int) -> View:
    """Return so many views with all tables; a table that nobody needs changes nothing."""
    if federation.several or federation.continuous or federation.pool.table is not None:
        raise SpecError(
            f"train.plan.groups = {groups}: is for samples with one label each, which are no "
            "token ids; leave it out"
        )
    view = federation.view or View(on_host(np.zeros(federation.clients, np.int32)))

    def complete(table: Array | None, row: np.ndarray) -> Array:
        """Return the table with a row for each group; `row`: the one that changes nothing."""
        known = np.empty((0, *row.shape), row.dtype) if table is None else np.asarray(table)
        more = np.broadcast_to(row, (groups - len(known), *row.shape)).astype(known.dtype)
        return on_host(np.concatenate([known, more]))

    inputs = math.prod(federation.sample_shape)
    by_label = view.by_label
    if by_label is not None:
        # Nobody has the views that are added
        by_label = complete(by_label, np.zeros(federation.classes, np.int32))
    return View(
        view.of,
        complete(view.pixels, np.arange(inputs, dtype=np.int32)),
        complete(view.labels, np.arange(federation.classes, dtype=np.int32)),
        complete(view.gain, np.ones((), np.float32)),
        complete(view.offset, np.zeros((), np.float32)),
        by_label,
    )
