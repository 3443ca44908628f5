"""Files that runs have read are told apart by their contents: a file may lie in many places, and a place may have held several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfljax.registry.options import Table, Value

Record = Table
Group = tuple[str, str, str]
"""Section, option and name of a table: the files of one group are compared."""


def by_contents(*folders: Mapping[str, Record]) -> list[dict[str, Record]]:
    """The records of results folders with one place for each file, the first that they have for it: a run whose data lay elsewhere
    when it was computed differs in nothing. Places that had several contents are named with the sums of these."""
    first: dict[tuple[Group, str], Value] = {}
    held: dict[tuple[Group, Value], set[str]] = {}
    for record in (record for records in folders for record in records.values()):
        for group, checksum in _reads(record):
            section, option, _ = group
            place = record["config"][section].get(option)
            held.setdefault((group, place), set()).add(checksum)
            first.setdefault((group, checksum), place)

    def shown(record: Record) -> Record:
        config = dict(record["config"])
        for group, checksum in _reads(record):
            section, option, _ = group
            place = first[group, checksum]
            if len(held[group, place]) > 1:
                place = f"{place or ''} [{checksum[:8]}]".lstrip()
            rest = {name: value for name, value in config[section].items() if name != option}
            config[section] = rest if place is None else rest | {option: place}
        return record | {"config": config}

    return [{run: shown(record) for run, record in records.items()} for records in folders]


def _reads(record: Record) -> Iterator[tuple[Group, str]]:
    """(group, checksum of the contents) of each file, or set of files, that a run has read."""
    for what, checksum in record.get("contents", {}).items():
        section, _, key = ("data.path" if what == "data" else what).partition(".")
        table = record["config"].get(section)
        if key and isinstance(table, dict):
            yield (section, key, str(table.get("name"))), checksum
