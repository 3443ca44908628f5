"""The list `data.views`: how groups of clients see what the partition gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from cfljax.errors import SpecError, suggest
from cfljax.federation import VIEWS
from cfljax.federation.common import Sized
from cfljax.registry.options import Options, Table, check, check_value, show


@dataclasses.dataclass(frozen=True)
class GroupView:
    """A view, and how many groups it makes."""

    name: str
    copies: bool
    """Whether each of its groups divides all samples; False: they share them."""
    options: Any = dataclasses.field(metadata={"beside": True})
    """An instance of the view's Options class."""

    def written(self, plain: Callable[[Options], Table]) -> Table:
        """Return the entry as a spec writes it."""
        return {"name": self.name, **({"copies": True} if self.copies else {}), **plain(self.options)}


class _Common(Protocol):
    """The options of the `data` table that are read here."""

    @property
    def views(self) -> tuple[Any, ...]:
        """Names, or tables with a name."""

    @property
    def true_groups(self) -> str | None:
        """The name of a view, or "partition"."""

    @property
    def view_shares(self) -> tuple[float, ...]:
        """Shares of the clients."""


def read_views(common: _Common, partition: str, parts: Options, where: str) -> tuple[GroupView, ...]:
    """Check the views for this partition with its options. Raises a SpecError."""
    found: dict[str, GroupView] = {}
    for each in common.views:
        view = _read_view(each, f"{where}.views")
        if view.name in found:
            raise SpecError(f'{where}.views: has "{view.name}" twice; give each view once')
        if view.copies and (not isinstance(parts, Sized) or getattr(parts, "holdout", 0)):
            why = "holds samples out" if isinstance(parts, Sized) else "says itself who the clients are"
            raise SpecError(f'{where}.views.{view.name}.copies = true: partition "{partition}" {why}; leave copies out')
        found[view.name] = view
    if found and partition in VIEWS:
        why = 'is a view itself; take another partition, as in partition = "iid", and add it to the views'
        raise SpecError(f'{where}.views: partition "{partition}" {why}')
    if common.true_groups is not None and common.true_groups not in (*found, "partition"):
        why = "no such view" + suggest(common.true_groups, (*found, "partition"))
        raise SpecError(f'{where}.true_groups = "{common.true_groups}": {why}')
    if not found and (common.view_shares or common.true_groups):
        key = "view_shares" if common.view_shares else "true_groups"
        raise SpecError(f"{where}.{key}: there are no views; give {where}.views, or leave it out")
    if common.view_shares and not sum(common.view_shares) > 0:
        raise SpecError(f"{where}.view_shares = {show(common.view_shares)}: must not all be 0")
    return tuple(found.values())


def _read_view(value: Any, where: str) -> GroupView:
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise SpecError(f'{where}: {show(value)}: must be a name, or a table with one, as in {{ name = "rotated", groups = 4 }}')
    name = table["name"]
    own = {key: each for key, each in table.items() if key not in ("name", "copies")}
    options = check(VIEWS.entry(name, where).options, own, f"{where}.{name}")
    return GroupView(name, check_value(table.get("copies", False), bool, {}, f"{where}.{name}.copies"), options)
