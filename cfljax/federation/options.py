"""What a spec says about views and drift. Reading a spec imports this module, which needs no
JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from cfljax.errors import SpecError
from cfljax.registry.options import Options, Table, option, show


@dataclasses.dataclass(frozen=True)
class GroupView:
    """An entry of `data.views`."""

    name: str
    # Whether each of its groups divides all samples; False: they share them
    copies: bool
    # The labels whose samples it changes; none: all
    labels: tuple[int, ...]
    # An instance of the view's Options class
    options: Any = dataclasses.field(metadata={"beside": True})

    def to_table(self, plain: Callable[[Options], Table]) -> Table | str:
        """Return the entry as a spec writes it."""
        table: Table = {"name": self.name} | ({"copies": True} if self.copies else {})
        table |= {"labels": list(self.labels)} if self.labels else {}
        table |= plain(self.options)
        return table if len(table) > 1 else self.name


class Crossed(NamedTuple):
    """Views whose groups are crossed."""

    views: tuple[GroupView, ...]
    # The share of the clients in each combination; none: all have as many
    shares: tuple[float, ...]
    # The name of a view, or "partition"; None: the combinations
    true_groups: str | None
    # Whether clients have the combinations in turn, or draw one each
    draw: str = "turns"


@dataclasses.dataclass(frozen=True)
class DriftOptions:
    """Changes that are drawn (`at`), or read from a file."""

    kind: str = option(
        "sudden",
        "all at once; one after another between the two rounds of `at`; or away and back at "
        "each round of `at`",
        choices=("sudden", "incremental", "recurrent"),
    )
    at: tuple[int, ...] = option((), "rounds in which clients change", low=1)
    share: float = option(0.5, "share of the clients that change", above=0, high=1)
    what: str = option(
        "group",
        "what changes: a client's true group, all its labels, or its images (rotated by 90 "
        "degrees)",
        choices=("group", "labels", "rotation"),
    )
    file: str | None = option(
        None, "a CSV file of changes (round,client,group) instead of kind, at and share", file=True
    )

    def check(self, where: str) -> None:
        """Reject rounds that do not ascend, or that the kind cannot have."""
        if self.file is not None:
            return
        if not self.at or list(self.at) != sorted(set(self.at)):
            raise SpecError(
                f"{where}.at = {show(self.at)}: must be rounds in ascending order, as in [30, 60]"
            )
        if self.kind == "incremental" and len(self.at) != 2:
            raise SpecError(
                f'{where}.at = {show(self.at)}: kind = "incremental" needs two rounds, the '
                "first and the last"
            )

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(first, last round) of each change that is drawn; empty if they come from a file."""
        if self.kind == "incremental" and self.at:
            return [(self.at[0], self.at[1])]
        return [(begin, begin) for begin in self.at]
