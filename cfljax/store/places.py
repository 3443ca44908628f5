"""Files have many places, and a place may have held several files: what was read is told apart by its contents, in tables, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Record = dict[str, Any]


class _Read(NamedTuple):
    """A file, or several, that a run has read."""

    section: str
    key: str
    """The option that says where."""
    found: str
    """Sum of the contents."""
    group: tuple[str, str, str]
    """Option and name of the table: files of one group are compared."""


def by_contents(*folders: Mapping[str, Record]) -> list[dict[str, Record]]:
    """The records of results folders with one place for each file, the first that they have for it: a run whose data lay elsewhere
    when it was computed differs in nothing. Places that had several contents are named with the sums of these."""
    first: dict[tuple[Any, str], Any] = {}
    held: dict[tuple[Any, Any], set[str]] = {}
    for record in (record for records in folders for record in records.values()):
        for read in _reads(record):
            place = record["config"][read.section].get(read.key)
            held.setdefault((read.group, place), set()).add(read.found)
            first.setdefault((read.group, read.found), place)

    def shown(record: Record) -> Record:
        config = dict(record["config"])
        for read in _reads(record):
            place = first[read.group, read.found]
            if len(held[read.group, place]) > 1:
                place = f"{place or ''} [{read.found[:8]}]".lstrip()
            rest = {name: value for name, value in config[read.section].items() if name != read.key}
            config[read.section] = rest if place is None else rest | {read.key: place}
        return record | {"config": config}

    return [{run: shown(record) for run, record in records.items()} for records in folders]


def _reads(record: Record) -> Iterator[_Read]:
    for what, found in record.get("contents", {}).items():
        section, _, key = ("data.path" if what == "data" else what).partition(".")
        table = record["config"].get(section)
        if key and isinstance(table, dict):
            yield _Read(section, key, found, (section, key, str(table.get("name"))))
