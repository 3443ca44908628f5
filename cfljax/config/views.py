"""The table `data.drift` and the list `data.views`: how groups of clients see what the partition
gives them, and when."""

from __future__ import annotations

from typing import Any

from cfljax.config.frozen import to_plain
from cfljax.errors import SpecError, suggest
from cfljax.federation import INDEX_VIEWS, LABEL_VIEWS, PARTITIONS, VIEWS
from cfljax.federation.options import Crossed, DriftOptions, GroupView
from cfljax.registry.options import Options, Table, check, check_value, show


def read_views(
    crossed: Crossed, partition: str, parts: Options, where: str
) -> tuple[GroupView, ...]:
    """Check the views, names or tables, for this partition with its options. Raises a SpecError."""
    found: dict[str, GroupView] = {}
    for each in crossed.views:
        view = _read_view(each, f"{where}.views")
        if view.name in found:
            raise SpecError(f'{where}.views: has "{view.name}" twice; give each view once')
        if view.copies and (why := _explain_no_copies(parts)):
            raise SpecError(
                f'{where}.views.{view.name}.copies = true: partition "{partition}" {why}; '
                "leave copies out"
            )
        found[view.name] = view
    if found and partition in VIEWS:
        raise SpecError(
            f'{where}.views: partition "{partition}" is a view itself; take another, such as '
            '"iid", and add it to the views'
        )
    names = (*found, "partition")
    if crossed.true_groups is not None and crossed.true_groups not in names:
        raise SpecError(
            f'{where}.true_groups = "{crossed.true_groups}": no such view'
            + suggest(crossed.true_groups, names)
        )
    if crossed.draw == "random" and not found:
        raise SpecError(f'{where}.views_draw = "random": needs {where}.views; leave it out')
    if crossed.shares and not (found and sum(crossed.shares) > 0):
        raise SpecError(
            f"{where}.view_shares = {show(crossed.shares)}: needs {where}.views, and some "
            "share above 0"
        )
    return tuple(found.values())


def _explain_no_copies(parts: Options) -> str:
    """Say why the groups of a view cannot each divide all samples; "": they can."""
    from cfljax.federation.common import Sized

    if not isinstance(parts, Sized):
        return "defines the clients itself"
    if getattr(parts, "sizes", ()):
        return "has exact sizes"
    return "holds samples out" if getattr(parts, "holdout", 0) else ""


def _read_view(value: Any, where: str) -> GroupView:
    """Read a name or a table as a view."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise SpecError(
            f"{where}: {show(value)}: must be a name, or a table with one, as in {{ name = "
            f'"rotated", groups = 4 }}'
        )
    name = table["name"]
    entry = VIEWS.entry(name, where)
    beside = ("name", "copies", *(("labels",) if name in LABEL_VIEWS else ()))
    own = {key: each for key, each in table.items() if key not in beside}
    options: Any = check(entry.options, own, f"{where}.{name}")
    copies = check_value(table.get("copies", False), bool, {}, f"{where}.{name}.copies")
    labels = ()
    if "labels" in beside:
        labels = check_value(
            table.get("labels", []), tuple[int, ...], {"low": 0}, f"{where}.{name}.labels"
        )
    return GroupView(name, copies, labels, options)


# Options of changes that are drawn at random; a file lists its changes itself
_DRAWN = ("kind", "at", "share")


def read_drift(
    table: Table, partition: str, parts: Options, views: tuple[GroupView, ...], where: str
) -> DriftOptions:
    """Check the table for this partition with its options, and these views. Raises a SpecError."""
    made = check(DriftOptions, dict(table), where)
    if made.file is not None:
        for key in _DRAWN:
            if key in table:
                raise SpecError(
                    f"{where}.{key} = {show(table[key])}: the file lists all changes; leave "
                    f"{key} out"
                )
    # What clients see through the views of a file, or of a user's partition, only the data tell
    if not PARTITIONS.is_built_in(partition) or partition == "file":
        return made
    groups = [getattr(parts, "groups", 1) if partition in INDEX_VIEWS else 1]
    groups += [each.options.groups for each in views if each.name in INDEX_VIEWS]
    if made.what == "group" and max(groups) < 2:
        raise SpecError(
            f'{where}.what = "group": partition "{partition}" does not transform the data of '
            "its groups; "
            'take partition = "rotated" or similar, or what = "labels"'
        )
    viewed = any(each.name == "rotated" for each in views)
    if made.what == "rotation" and (viewed or partition == "rotated"):
        turning = 'view "rotated"' if viewed else f'partition "{partition}"'
        raise SpecError(
            f'{where}.what = "rotation": {turning} rotates the images already; take what = "group"'
        )
    return made


def write_drift(options: DriftOptions) -> Table:
    """Return the table as a spec writes it."""
    return {
        name: value
        for name, value in to_plain(options).items()
        if options.file is None or name not in _DRAWN
    }
