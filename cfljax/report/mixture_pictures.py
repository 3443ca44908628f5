"""Enters: the weights of a run's clients in models. Leaves: pictures of them, as grids of colours.

Where clients mix each other's models, each has a model of its own; then the models of each true
group are taken together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from cfljax.report.curves import spaced

# Of more clients, rounds or true groups, only these many are drawn
MOST_CLIENTS = 200
MOST_ROUNDS = 128
MOST_GROUPS = 20
# Columns that the weights of a client are spread over, from 0 to 100 per cent
WEIGHT_COLUMNS = 101
# Rows that the true groups share out between them
GROUP_ROWS = 200
CLIENTS, ROUNDS = "clients at the end", "groups over rounds"


class Mixture(NamedTuple):
    """A picture of weights. For clients, each row is a client, and its columns from the left belong
    to the models by weight; for rounds, each column is a round, and the rows of a true group belong
    to them by its mean weight."""

    name: str
    # i64[columns]: percent, or rounds
    at: np.ndarray
    # i32[rows, columns]: the number of a model's colour, −1 unknown
    colours: np.ndarray
    # i32[rows]: the true group, −1 unknown
    groups: np.ndarray
    # The number of all clients
    clients: int
    # Of how many of them there is something in the picture
    drawn: int

    @property
    def xlabel(self) -> str:
        """What the columns are."""
        return "weight, %" if self.name == CLIENTS else "round"


def last_weights(diagnostics: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """f32[C, K]: the weights of the clients at the end; None: the clients mix nothing, or it was
    not kept."""
    each = diagnostics.get("mixture_of_clients")
    last = diagnostics.get("mixture")
    found = each[-1] if each is not None and each.ndim == 3 and len(each) else last
    return found if found is not None and found.ndim == 2 and found.size else None


def mixtures(
    diagnostics: Mapping[str, np.ndarray],
    rounds: np.ndarray,
    group: np.ndarray | None,
    colours: Callable[[np.ndarray, np.ndarray], dict[int, int]],
    labels: np.ndarray | None = None,
) -> list[Mixture]:
    """Return the pictures of clients and rounds, as far as the record has them. `group` i32[C]: the
    true groups; None: unknown. `colours`: (labels i32[1, C], group i32[C]) -> label -> index of its
    colour. `labels` i32[E, C]: the run's; None: they were not kept, and as many models as clients
    are taken for the clients' own."""
    last = last_weights(diagnostics)
    if last is None:
        return []
    clients, models = last.shape
    known = group is not None and len(group) == clients and bool((group >= 0).any())
    group = group if known and group is not None else np.full(clients, -1, np.int32)
    over = diagnostics.get("mixture_of_groups") if known else None
    others = models == clients and (labels is None or _owns_all(labels))
    if others:
        if not known:
            return []
        of_group = (group[:, None] == np.arange(group.max() + 1)).astype(np.float64)
        last = last @ of_group
        over = None if over is None else over @ of_group
    painted = np.arange(last.shape[1], dtype=np.int32)
    if not others:
        colour = colours(last.argmax(axis=1)[None].astype(np.int32), group)
        unused = (
            number
            for number in range(models + len(colour) + 1)
            if number not in set(colour.values())
        )
        painted = np.array(
            [colour[k] if k in colour else next(unused) for k in range(models)], np.int32
        )
    order = np.argsort(painted, kind="stable")
    found = [_draw_clients(last[:, order], group, painted[order])]
    if (
        over is not None
        and over.ndim == 3
        and len(over) == len(rounds)
        and over.shape[1] <= MOST_GROUPS
    ):
        found.append(_draw_rounds(over[:, :, order], rounds, painted[order], clients))
    return found


def _owns_all(labels: np.ndarray) -> bool:
    """Return whether each client that has a label has the model with its own index, as if clients
    mix each other's models."""
    # Newcomers have none
    known = labels >= 0
    return bool(known.any() and (labels == np.arange(labels.shape[1]))[known].all())


def _draw_clients(weights: np.ndarray, group: np.ndarray, painted: np.ndarray) -> Mixture:
    """Clients are ordered by true group, then by the model of which they have most, then by how
    much of it they have."""
    last = np.where(group < 0, group.max(initial=0) + 1, group)
    order = np.lexsort((-weights.max(axis=1), weights.argmax(axis=1), last))
    rows = order[spaced(len(order), MOST_CLIENTS)]
    at = (np.arange(WEIGHT_COLUMNS) + 0.5) / WEIGHT_COLUMNS
    return Mixture(
        CLIENTS,
        np.arange(WEIGHT_COLUMNS),
        _fill(weights[rows], at, painted),
        group[rows],
        len(group),
        len(rows),
    )


def _draw_rounds(
    over: np.ndarray, rounds: np.ndarray, painted: np.ndarray, clients: int
) -> Mixture:
    """Make a lane for each true group, over f[E, G, K]."""
    columns = spaced(len(rounds), MOST_ROUNDS)
    lane = max(4, GROUP_ROWS // over.shape[1])
    at = (np.arange(lane) + 0.5) / lane
    lanes = [_fill(over[columns, g], at, painted).T for g in range(over.shape[1])]
    groups = np.repeat(np.arange(over.shape[1], dtype=np.int32), lane)
    return Mixture(ROUNDS, rounds[columns], np.concatenate(lanes), groups, clients, clients)


def _fill(weights: np.ndarray, at: np.ndarray, painted: np.ndarray) -> np.ndarray:
    """i32[n, len(at)]: the colour at each position `at` in (0, 1) when weights f[n, K] lie end to
    end; −1: not known."""
    ends = np.cumsum(weights.astype(np.float64), axis=1)
    which = (ends[:, :, None] < at * ends[:, -1:, None]).sum(axis=1)
    known = np.isfinite(ends[:, -1:])
    return np.where(known, painted[np.minimum(which, len(painted) - 1)], -1).astype(np.int32)
