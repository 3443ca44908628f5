"""The table `data.drift`: how clients see the data as a function of the round."""

from __future__ import annotations

import dataclasses

from cfljax.config.frozen import to_plain
from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.registry.options import Options, Table, check, option, show

_IN_VIEWS = ("rotated", "label_swap", "label_permutation", "feature_shift")
"""Partitions whose groups see the data differently."""
_DRAWN = ("kind", "at", "share")
"""Options of changes that are drawn."""


@dataclasses.dataclass(frozen=True)
class DriftOptions:
    """Changes that are drawn (`at`), or read from a file."""

    kind: str = option(
        "sudden",
        "all at once; one after another between the two rounds of `at`; or away and back at each round of `at`",
        choices=("sudden", "incremental", "recurrent"),
    )
    at: tuple[int, ...] = option((), "rounds in which clients change", low=1)
    share: float = option(0.5, "share of the clients that change", above=0, high=1)
    what: str = option(
        "group",
        "what changes: a client's true group, all its labels, or its images (rotated by 90 degrees)",
        choices=("group", "labels", "rotation"),
    )
    file: str | None = option(None, "a CSV file of changes (round,client,group) instead of kind, at and share", file=True)

    def check(self, where: str) -> None:
        """Reject rounds that do not ascend, or that the kind cannot have."""
        if self.file is not None:
            return
        if not self.at or list(self.at) != sorted(set(self.at)):
            raise SpecError(f"{where}.at = {show(self.at)}: must be rounds in ascending order, as in [30, 60]")
        if self.kind == "incremental" and len(self.at) != 2:
            raise SpecError(f'{where}.at = {show(self.at)}: kind = "incremental" needs two rounds, the first and the last')

    def written(self) -> Table:
        """Return the table as a spec writes it."""
        return {name: value for name, value in to_plain(self).items() if self.file is None or name not in _DRAWN}

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(first, last round) of each change that is drawn; empty if they come from a file."""
        if self.kind == "incremental" and self.at:
            return [(self.at[0], self.at[1])]
        return [(begin, begin) for begin in self.at]


def read_drift(table: Table, partition: str, parts: Options, where: str) -> DriftOptions:
    """Check the table for this partition with its options. Raises a SpecError."""
    made = check(DriftOptions, dict(table), where)
    if made.file is not None:
        for key in _DRAWN:
            if key in table:
                raise SpecError(f"{where}.{key} = {show(table[key])}: the file lists all changes; leave {key} out")
    if not PARTITIONS.ours(partition):
        return made
    groups = getattr(parts, "groups" if partition in _IN_VIEWS else "rotate", 1)
    if made.what == "group" and groups < 2:
        raise SpecError(
            f'{where}.what = "group": partition "{partition}" does not transform the data of its groups; '
            'take partition = "rotated" or similar, or what = "labels"'
        )
    if made.what == "rotation" and (partition == "rotated" or getattr(parts, "rotate", 1) > 1):
        raise SpecError(f'{where}.what = "rotation": partition "{partition}" rotates the images already; take what = "group"')
    return made
