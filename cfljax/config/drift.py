"""The table `data.drift`: how clients see the data as a function of the round."""

from __future__ import annotations

from cfljax.config.frozen import to_plain
from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.federation.options import DriftOptions, GroupView
from cfljax.registry.options import Options, Table, check, show

_IN_VIEWS = ("rotated", "label_swap", "label_permutation", "feature_shift")  # Partitions whose groups see the data differently
_DRAWN = ("kind", "at", "share")  # Options of changes that are drawn


def read_drift(table: Table, partition: str, parts: Options, views: tuple[GroupView, ...], where: str) -> DriftOptions:
    """Check the table for this partition with its options, and these views. Raises a SpecError."""
    made = check(DriftOptions, dict(table), where)
    if made.file is not None:
        for key in _DRAWN:
            if key in table:
                raise SpecError(f"{where}.{key} = {show(table[key])}: the file lists all changes; leave {key} out")
    if not PARTITIONS.ours(partition):
        return made
    groups = [getattr(parts, "groups" if partition in _IN_VIEWS else "rotate", 1)]
    groups += [each.options.groups for each in views if each.name in _IN_VIEWS]
    if made.what == "group" and max(groups) < 2:
        raise SpecError(
            f'{where}.what = "group": partition "{partition}" does not transform the data of its groups; '
            'take partition = "rotated" or similar, or what = "labels"'
        )
    viewed = any(each.name == "rotated" for each in views)
    if made.what == "rotation" and (viewed or partition == "rotated" or getattr(parts, "rotate", 1) > 1):
        turning = 'view "rotated"' if viewed else f'partition "{partition}"'
        raise SpecError(f'{where}.what = "rotation": {turning} rotates the images already; take what = "group"')
    return made


def write_drift(options: DriftOptions) -> Table:
    """Return the table as a spec writes it."""
    return {name: value for name, value in to_plain(options).items() if options.file is None or name not in _DRAWN}
