"""Enters: configurations. Leaves: pictures of the first run of each: its clusters and true groups
over rounds, and mixtures of models. Runs on the same data have one order of clients, and matching
colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cfljax.engine.metrics import adjusted_rand
from cfljax.report.configurations import Configuration
from cfljax.report.curves import drawn_units, read, spaced
from cfljax.report.mixture_pictures import MOST_CLIENTS, MOST_ROUNDS, Mixture, mixtures

# The most rows and columns of a drawn confusion table; the last one sums up the rest
MOST_CLUSTERS = 24


class OverRounds(NamedTuple):
    """The clusters, or the true groups, of clients over rounds; a row per client."""

    # i64[E]
    rounds: np.ndarray
    # i32[rows, E]: the number of a colour, −1 unassigned
    colours: np.ndarray
    # i32[rows]: what the rows are ordered by, −1 unknown
    groups: np.ndarray
    # The number of all clients, of which `rows` are drawn
    clients: int
    # What `groups` are
    strip: str = "true group"


class Confusion(NamedTuple):
    """How many clients of a true group are in a cluster."""

    # i64[K, G]
    table: np.ndarray
    clusters: list[str]
    groups: list[str]
    # i32[K]
    colours: np.ndarray


class RunPictures(NamedTuple):
    """The pictures of a run; None or empty where the run has nothing of the kind."""

    seed: int
    assignment: OverRounds | None
    # Why there is no picture of the clusters; "" where there is one
    trivial: str
    confusion: Confusion | None
    mixtures: Sequence[Mixture] = ()
    groups: OverRounds | None = None


class _Run(NamedTuple):
    """What pictures of a run are made from."""

    # The name of its method in legends
    name: str
    seed: int
    # i64[E]
    rounds: np.ndarray
    # i32[E, C], or the last row alone; empty if no labels were kept
    labels: np.ndarray
    # i32[C]: the true groups, −1 unknown
    group: np.ndarray
    # The whole record, and what is before the names of its method's diagnostics
    arrays: dict[str, np.ndarray]
    prefix: str


class _Alignment(NamedTuple):
    """How runs on the same data are drawn alike."""

    # i32[C]: the true groups; if they are unknown, the clusters of one of the runs at the end
    base: np.ndarray
    # i64[C]: the clients in the order of the rows
    order: np.ndarray
    # What `base` is
    strip: str


def draw_pictures(
    configurations: Sequence[Configuration], problems: list[str]
) -> list[RunPictures | None]:
    """Make pictures of the first run of each that is done; None if no run can be read. Add a line
    to `problems` for each damaged file."""
    runs = [_read_run(each, problems) for each in configurations]
    keys = [_make_key(*each) for each in zip(configurations, runs, strict=True)]
    alike: dict[object, list[_Run]] = {}
    for key, run in zip(keys, runs, strict=True):
        if run is not None and run.labels.size:
            alike.setdefault(key, []).append(run)
    aligned = {key: _align(each) for key, each in alike.items()}
    return [
        None if run is None else _make_pictures(run, aligned.get(key))
        for key, run in zip(keys, runs, strict=True)
    ]


def _make_key(configuration: Configuration, run: _Run | None) -> object:
    """Return a key that runs share if they have the same clients."""
    if run is None:
        return None
    draws = (configuration.units[0].record["config"].get("data") or {}).get("seed") == "run"
    return configuration.block, run.seed if draws else None, run.group.tobytes()


def _read_run(configuration: Configuration, problems: list[str]) -> _Run | None:
    """Read the first run that is done and not damaged."""
    for unit in drawn_units(configuration):
        arrays = read(unit, ("history/round", "diag/", "labels", "group", "groups"), problems)
        if arrays is None:
            continue
        rounds = arrays.get("history/round", np.zeros(0, np.int64)).astype(np.int64)
        labels = np.atleast_2d(arrays.get("labels", np.zeros((0, 0)))).astype(np.int32)
        group = arrays.get("group")
        if group is None or group.shape != labels.shape[1:]:
            group = np.full(labels.shape[1], -1, np.int32)
        prefix = f"diag/{unit.record['method']}/"
        return _Run(configuration.legend, unit.seed, rounds, labels, group, arrays, prefix)
    return None


def _align(runs: Sequence[_Run]) -> _Alignment:
    """Choose what runs with the same clients are ordered and coloured by: the true groups, and
    within these, or if they are unknown, the clusters of the run that agrees best with the
    others."""
    clusterings = [run for run in runs if not explain_trivial(run.labels)]
    group = runs[0].group
    reference = np.full(len(group), -1, np.int32)
    name = ""
    if clusterings:
        finals = [run.labels[-1] for run in clusterings]
        agreements = [sum(agree(one, other) for other in finals) for one in finals]
        best = int(np.argmax(agreements))
        reference = _number_by_size(finals[best])
        name = clusterings[best].name
    known = bool((group >= 0).any())
    base = group if known else reference
    clients = np.arange(len(group))
    order = np.lexsort((clients, _unknown_last(reference), _unknown_last(base)))
    return _Alignment(base, order, "true group" if known else f"cluster of {name} at the end")


def agree(one: np.ndarray, other: np.ndarray) -> float:
    """Return the adjusted Rand index of two clusterings i32[C] of the same clients; 0 if no client
    is in both."""
    return float(np.nan_to_num(adjusted_rand(contingency(one, other)[0])))


def _number_by_size(labels: np.ndarray) -> np.ndarray:
    """Give the clusters of i32[C] the numbers from 0 on, the largest first; −1 stays."""
    known, sizes = np.unique(labels[labels >= 0], return_counts=True)
    found = np.full(len(labels), -1, np.int32)
    for number, cluster in enumerate(known[np.argsort(-sizes, kind="stable")]):
        found[labels == cluster] = number
    return found


def _unknown_last(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers < 0, numbers.max(initial=0) + 1, numbers)


def changes_once(pictures: list[RunPictures | None]) -> list[RunPictures | None]:
    """Leave out equal pictures of true groups but for the first: methods on the same data see the
    same changes."""
    seen: set[tuple[bytes, ...]] = set()
    kept = list(pictures)
    for i, each in enumerate(pictures):
        if each is not None and each.groups is not None:
            content = tuple(part.tobytes() for part in each.groups[:3])
            if content in seen:
                kept[i] = each._replace(groups=None)
            seen.add(content)
    return kept


def _make_pictures(run: _Run, aligned: _Alignment | None) -> RunPictures:
    """Make the pictures of a run. `aligned`: None if no labels were kept."""
    diagnostics = {
        name.removeprefix(run.prefix): values
        for name, values in run.arrays.items()
        if name.startswith(run.prefix)
    }
    group = run.arrays.get("group")
    labels = run.labels
    mixed = mixtures(
        diagnostics, run.rounds, group, _choose_colours, labels if labels.size else None
    )
    if aligned is None or not labels.size:
        return RunPictures(run.seed, None, "labels were not kept", None, mixed)
    colour = _choose_colours(labels, aligned.base)
    trivial = explain_trivial(labels)
    assignment = None if trivial else _draw_assignment(run.rounds, labels, aligned, colour)
    confusion = None if trivial else _count_confusion(labels[-1], run.group, colour)
    groups = _groups(run.rounds, run.arrays.get("groups"))
    return RunPictures(run.seed, assignment, trivial, confusion, mixed, groups)


def explain_trivial(labels: np.ndarray) -> str:
    """Return why a picture of these labels would show nothing; "" if it shows something."""
    known = np.unique(labels[labels >= 0])
    if len(known) <= 1:
        return "one model for all" if len(known) else "no client was assigned"
    final = labels[-1]
    alone = len(np.unique(final)) == len(final) and len(final) > 2 and (labels == final).all()
    return "a model per client" if alone else ""


def contingency(labels: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (i64[K, G] clients per cluster and true group, names of the clusters, names of the
    groups), without clients of label −1."""
    counted = (labels >= 0) & (group >= 0)
    clusters, row = np.unique(labels[counted], return_inverse=True)
    groups, column = np.unique(group[counted], return_inverse=True)
    table = np.zeros((len(clusters), len(groups)), np.int64)
    np.add.at(table, (row, column), 1)
    return table, clusters, groups


def _choose_colours(labels: np.ndarray, group: np.ndarray) -> dict[int, int]:
    """Cluster -> number of its colour. A cluster gets the colour of the group that most of its
    final clients belong to, if no other cluster has it; the other clusters get unused colours in
    the order of their sizes."""
    table, clusters, groups = contingency(labels[-1], group)
    colour: dict[int, int] = {}
    for at in np.argsort(-table, axis=None, kind="stable"):
        k, g = divmod(int(at), max(len(groups), 1))
        if table[k, g] and int(clusters[k]) not in colour and int(groups[g]) not in colour.values():
            colour[int(clusters[k])] = int(groups[g])
    known, sizes = np.unique(labels[labels >= 0], return_counts=True)
    unused = iter(number for number in range(len(known) + len(groups) + 1) if number not in groups)
    for k in known[np.argsort(-sizes, kind="stable")]:
        if int(k) not in colour:
            colour[int(k)] = next(unused)
    return colour


def _paint(labels: np.ndarray, colour: dict[int, int]) -> np.ndarray:
    """i32: the number of the colour of each cluster in `labels`, −1 for none."""
    known, at = np.unique(labels, return_inverse=True)
    return np.array([colour.get(int(k), -1) for k in known], np.int32)[at].reshape(labels.shape)


def _draw_assignment(
    rounds: np.ndarray, labels: np.ndarray, aligned: _Alignment, colour: dict[int, int]
) -> OverRounds:
    """Draw the cluster of each client over the rounds."""
    # Only the last labels were kept
    if len(rounds) != len(labels):
        rounds = rounds[-1:] if len(rounds) else np.zeros(1, np.int64)
        labels = labels[-1:]
    order = aligned.order
    rows = order[spaced(len(order), MOST_CLIENTS)]
    columns = spaced(len(rounds), MOST_ROUNDS)
    painted = _paint(labels[np.ix_(columns, rows)], colour).T
    return OverRounds(rounds[columns], painted, aligned.base[rows], len(order), aligned.strip)


def _groups(rounds: np.ndarray, groups: np.ndarray | None) -> OverRounds | None:
    """Return the true groups i[E, C] at evaluations after `rounds` i64[E], clients by group; None
    if nobody changes."""
    if (
        groups is None
        or groups.ndim != 2
        or len(groups) != len(rounds)
        or (groups == groups[:1]).all()
    ):
        return None
    order = np.lexsort(groups[::-1])
    rows = order[spaced(len(order), MOST_CLIENTS)]
    columns = spaced(len(rounds), MOST_ROUNDS)
    return OverRounds(
        rounds[columns],
        groups[np.ix_(columns, rows)].T.astype(np.int32),
        groups[0, rows],
        len(order),
        "true group at first",
    )


def _count_confusion(
    final: np.ndarray, group: np.ndarray, colour: dict[int, int]
) -> Confusion | None:
    """Count the clients by clusters at the end i32[C] and the true groups i32[C]; `colour`: cluster
    -> number of its colour."""
    table, clusters, groups = contingency(final, group)
    if not table.size:
        return None
    painted = np.array([colour[int(k)] for k in clusters])
    order = np.lexsort((-table.sum(axis=1), painted))
    # The largest, still in the order of their colours
    if len(order) > MOST_CLUSTERS:
        largest = set(np.argsort(-table.sum(axis=1), kind="stable")[: MOST_CLUSTERS - 1].tolist())
        order = np.array(
            [k for k in order if k in largest] + [k for k in order if k not in largest]
        )
    names = [str(k) for k in clusters[order]]
    table, names = _sum_up(table[order], names)
    turned, columns = _sum_up(table.T, [str(g) for g in groups])
    return Confusion(turned.T, names, columns, painted[order][: len(names)])


def _sum_up(table: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """Sum the last rows of a table up to one, if there are more than MOST_CLUSTERS."""
    if len(names) <= MOST_CLUSTERS:
        return table, names
    rest = table[MOST_CLUSTERS - 1 :].sum(axis=0, keepdims=True)
    kept = names[: MOST_CLUSTERS - 1]
    return np.concatenate([table[: MOST_CLUSTERS - 1], rest]), [
        *kept,
        f"{len(names) - len(kept)} more",
    ]
