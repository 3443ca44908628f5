"""Enters: the true groups of a run's clients at each evaluation (`data.drift`). Leaves: the picture of who is in which group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.report.curves import spaced

MOST_CLIENTS = 200
"""The most rows (clients) of pictures over rounds."""
MOST_ROUNDS = 128
"""The most columns (rounds) of such pictures."""


class GroupsOverRounds(NamedTuple):
    """The true groups over rounds; rows are clients, in the order of their first group, then of their second, and so on."""

    rounds: np.ndarray
    """i64[E]."""
    colours: np.ndarray
    """i32[rows, E]: the group, whose number is that of its colour; −1 unknown."""
    groups: np.ndarray
    """i32[rows]: the group at the first evaluation."""
    clients: int
    """The number of all clients, of which `rows` are drawn."""


def groups_over_rounds(rounds: np.ndarray, groups: np.ndarray | None) -> GroupsOverRounds | None:
    """The picture of groups i[E, C] at evaluations after `rounds` i64[E]; None where nobody changes."""
    if groups is None or groups.ndim != 2 or len(groups) != len(rounds) or (groups == groups[:1]).all():
        return None
    order = np.lexsort(groups[::-1])
    rows, columns = order[spaced(len(order), MOST_CLIENTS)], spaced(len(rounds), MOST_ROUNDS)
    return GroupsOverRounds(rounds[columns], groups[np.ix_(columns, rows)].T.astype(np.int32), groups[0, rows], len(order))
