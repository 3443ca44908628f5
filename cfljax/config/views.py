"""The list `data.views`: how groups of clients see what the partition gives them."""

from __future__ import annotations

from typing import Any

from cfljax.errors import SpecError, suggest
from cfljax.federation import VIEWS, common
from cfljax.federation.views import Crossed, GroupView
from cfljax.registry.options import Options, check, check_value, show


def read_views(crossed: Crossed, partition: str, parts: Options, where: str) -> tuple[GroupView, ...]:
    """Check the views, names or tables, for this partition with its options. Raises a SpecError."""
    found: dict[str, GroupView] = {}
    for each in crossed.views:
        view = _read_view(each, f"{where}.views")
        if view.name in found:
            raise SpecError(f'{where}.views: has "{view.name}" twice; give each view once')
        if view.copies and (not isinstance(parts, common.Sized) or getattr(parts, "holdout", False)):
            why = "holds samples out" if isinstance(parts, common.Sized) else "defines the clients itself"
            raise SpecError(f'{where}.views.{view.name}.copies = true: partition "{partition}" {why}; leave copies out')
        found[view.name] = view
    if found and partition in VIEWS:
        raise SpecError(
            f'{where}.views: partition "{partition}" is a view itself; take another, such as "iid", and add it to the views'
        )
    names = (*found, "partition")
    if crossed.true_groups is not None and crossed.true_groups not in names:
        raise SpecError(f'{where}.true_groups = "{crossed.true_groups}": no such view' + suggest(crossed.true_groups, names))
    if crossed.shares and not (found and sum(crossed.shares) > 0):
        raise SpecError(f"{where}.view_shares = {show(crossed.shares)}: needs {where}.views, and some share above 0")
    return tuple(found.values())


def _read_view(value: Any, where: str) -> GroupView:
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise SpecError(f'{where}: {show(value)}: must be a name, or a table with one, as in {{ name = "rotated", groups = 4 }}')
    name = table["name"]
    own = {key: each for key, each in table.items() if key not in ("name", "copies")}
    options: Any = check(VIEWS.entry(name, where).options, own, f"{where}.{name}")
    return GroupView(name, check_value(table.get("copies", False), bool, {}, f"{where}.{name}.copies"), options)
