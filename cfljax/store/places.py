"""Files that runs have read are told apart by their contents: a file may lie in many places, and a place may have held several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cfljax.registry.options import Table, Value

Record = Table
Group = tuple[str, str, str]
"""Section, option and name of a table: the files of one group are compared."""


class _Read(NamedTuple):
    """A file, or several, that a run has read."""

    section: str
    key: str
    """The option that says where."""
    checksum: str
    """Of the contents."""
    group: Group


def by_contents(*folders: Mapping[str, Record]) -> list[dict[str, Record]]:
    """The records of results folders with one place for each file, the first that they have for it: a run whose data lay elsewhere
    when it was computed differs in nothing. Places that had several contents are named with the sums of these."""
    first: dict[tuple[Group, str], Value] = {}
    held: dict[tuple[Group, Value], set[str]] = {}
    for record in (record for records in folders for record in records.values()):
        for read in _reads(record):
            place = record["config"][read.section].get(read.key)
            held.setdefault((read.group, place), set()).add(read.checksum)
            first.setdefault((read.group, read.checksum), place)

    def shown(record: Record) -> Record:
        config = dict(record["config"])
        for read in _reads(record):
            place = first[read.group, read.checksum]
            if len(held[read.group, place]) > 1:
                place = f"{place or ''} [{read.checksum[:8]}]".lstrip()
            rest = {name: value for name, value in config[read.section].items() if name != read.key}
            config[read.section] = rest if place is None else rest | {read.key: place}
        return record | {"config": config}

    return [{run: shown(record) for run, record in records.items()} for records in folders]


def _reads(record: Record) -> Iterator[_Read]:
    for what, checksum in record.get("contents", {}).items():
        section, _, key = ("data.path" if what == "data" else what).partition(".")
        table = record["config"].get(section)
        if key and isinstance(table, dict):
            yield _Read(section, key, checksum, (section, key, str(table.get("name"))))
