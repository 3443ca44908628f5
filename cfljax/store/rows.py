"""The labels of a results folder's runs and the options in which they differ, by their
configurations and plan.json. The labels and differences in the records are from the start that
computed them, and may be out of date. Files that runs have read are identified by their contents: a
file may have many paths, and a path may have had several contents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from cfljax.registry import Registry
from cfljax.registry.options import Table, Value

Record = Table
Key = tuple[str, str]  # (Group, dotted name): values of one group are compared

Files = tuple[
    str, str, str
]  # Section, option and name of a table that names files: the files of equal ones are compared

_SECTIONS = ("data", "model", "train", "method")
_SHARED = (
    "name",
    "partition",
    "path",
    "seed",
    "normalise",
    "arrive",
    "validation",
    "new_clients",
    "drift",
)
"""Options of `data` that every data set and partition has."""
_SIDES = ("source", "parts")


def unify_paths(*folders: Mapping[str, Record]) -> list[dict[str, Record]]:
    """Give each file one path, the first that the records have for it: a run whose data were
    elsewhere when it was computed then differs in nothing. Paths that had several contents are
    named with their checksums."""
    first: dict[tuple[Files, str], Value] = {}
    held: dict[tuple[Files, Value], set[str]] = {}
    for record in (record for records in folders for record in records.values()):
        for group, checksum in _list_files(record):
            section, option, _ = group
            path = option_of(record["config"], f"{section}.{option}")
            held.setdefault((group, path), set()).add(checksum)
            first.setdefault((group, checksum), path)

    def shown(record: Record) -> Record:
        config = dict(record["config"])
        for group, checksum in _list_files(record):
            section, option, _ = group
            path = first[group, checksum]
            if len(held[group, path]) > 1:
                path = f"{path or ''} [{checksum[:8]}]".lstrip()
            config[section] = _set_option(config[section], option, path)
        return record | {"config": config}

    return [{run: shown(record) for run, record in records.items()} for records in folders]


def make_rows(
    records: Mapping[str, Record], called: Iterable[Mapping[str, Value]] | None
) -> list[Record]:
    """Return the records with the plan's labels (`called`; None: no plan) and what differs; a run
    of two rows is there twice."""
    complete = _complete(list(records.values()))
    ids = dict(zip(records, complete, strict=True))
    asked = list(_label_by_plan(ids, called or (), called is None and _data_follow(complete)))
    views = [_list_options(record) for record in asked]
    differ = find_differing(views)
    return [
        record
        | {"varies": {name: value for (group, name), value in view if (group, name) in differ}}
        for record, view in zip(asked, views, strict=True)
    ]


def find_differing(views: Iterable[Iterable[tuple[Key, Value]]]) -> set[Key]:
    """Return the keys that have more than one value. 1 and 1.0 are two."""
    first: dict[Key, Value] = {}
    several: set[Key] = set()
    for view in views:
        for key, value in view:
            other = first.setdefault(key, value)
            if other is not value and (type(other) is not type(value) or other != value):
                several.add(key)
    return several


def _label_by_plan(
    records: Mapping[str, Record], called: Iterable[Mapping[str, Value]], follow: bool
) -> Iterator[Record]:
    """Yield the records in order, labelled by the plan where it lists them. `follow`: data are
    drawn from the runs' seeds."""
    names: dict[str, list[tuple[str, bool]]] = {}
    for entry in called:
        for run in entry["units"]:
            names.setdefault(run, []).append((entry["label"], entry.get("data_seed") == "run"))
    for run, record in records.items():
        for label, follows in names.get(run, [(label_of(record), follow)]):
            yield _relabel(record, label, follows)


def _data_follow(records: list[Record]) -> bool:
    """Return whether all data were drawn from the runs' own seeds, as far as records say it."""
    pairs = [
        (record["seed"], (record["config"].get("data") or {}).get("seed")) for record in records
    ]
    return len({seed for seed, _ in pairs}) > 1 and all(seed == drawn for seed, drawn in pairs)


def label_of(record: Record) -> str:
    """Return the label that the spec gives the run's method; the method's name if it gives none."""
    return str(record.get("label") or record["method"])


def _relabel(record: Record, label: str, follows: bool) -> Record:
    """Label the record as the plan does. `follows`: its data are drawn from the run's own seed."""
    config = record["config"]
    if follows and isinstance(config.get("data"), dict):
        config = config | {"data": config["data"] | {"seed": "run"}}
    return record | {"label": label, "config": config}


def _list_options(record: Record) -> list[tuple[Key, Value]]:
    options = []
    for section in _SECTIONS:
        table = record["config"].get(section)
        if not isinstance(table, dict):
            continue
        group = _group(section, table)
        for name, value in table.items():
            common = name in _SHARED if section == "data" else name == "name"
            if not (section == "method" and name == "name"):
                options.append((("" if common else group, f"{section}.{name}"), value))
    return options


def _group(section: str, table: Mapping[str, Value]) -> str:
    return (
        f"{section} {table.get('name')} {table.get('partition')}"
        if section == "data"
        else f"{section} {table.get('name')}"
    )


def _complete(records: list[Record]) -> list[Record]:
    """Give all records of a group the same options: a missing one is at its default, one of a side
    of the data apart in all."""
    from cfljax.config.gone import without_gone

    configs = [without_gone(record["config"]) for record in records]
    for section in _SECTIONS:
        groups: dict[str, list[Record]] = {}
        for config in configs:
            if isinstance(config.get(section), dict):
                groups.setdefault(_group(section, config[section]), []).append(config)
        for group in groups.values():
            tables = [config[section] for config in group]
            apart = {
                name
                for table in tables
                for side in _SIDES
                if section == "data"
                for name in table.get(side, ())
            }
            tables = [_separate_sides(table, apart) for table in tables] if apart else tables
            names: list[str] = []
            for keys in dict.fromkeys(map(tuple, tables)):
                _merge(names, keys)
            for config, table in zip(group, tables, strict=True):
                config[section] = {
                    name: table[name] if name in table else _find_default(section, table, name)
                    for name in names
                }
    return [record | {"config": config} for record, config in zip(records, configs, strict=True)]


def _separate_sides(table: Mapping[str, Value], names: set[str]) -> Table:
    """Move the options of these names in a table of data to `source.NAME` and `parts.NAME`."""
    both = {name: table[name] for name in names if name in table}
    sides = {side: both | dict(table.get(side, {})) for side in _SIDES}
    rest = {name: value for name, value in table.items() if name not in (*names, *_SIDES)}
    return rest | {
        f"{side}.{name}": sides[side].get(name) for side in _SIDES for name in sorted(names)
    }


def _merge(names: list[str], more: Iterable[str]) -> None:
    """Add the new names of `more` to `names`, each before the name that it precedes in `more`."""
    at = len(names)
    for name in reversed(list(more)):
        if name in names:
            at = names.index(name)
        else:
            names.insert(at, name)


def _find_default(section: str, table: Mapping[str, Value], name: str) -> Value:
    """Return the default of an option, which a record lacks if it was added since, or went; None if
    there is none."""
    from cfljax.config.gone import OPTIONS

    if (gone := OPTIONS.get(f"{section}.{name}")) is not None:
        return gone.usual
    for options in _option_classes(section, table):
        for field in dataclasses.fields(options):
            if field.name == name and field.default is not dataclasses.MISSING:
                return list(field.default) if isinstance(field.default, tuple) else field.default
    return None


def _option_classes(section: str, table: Mapping[str, Value]) -> Iterator[type]:
    from cfljax.config.data import DataOptions
    from cfljax.config.train import Train
    from cfljax.data import SOURCES
    from cfljax.federation import PARTITIONS
    from cfljax.methods import METHODS

    if section == "train":
        yield Train
    elif section == "method":
        yield from _entry_options(METHODS, table.get("name"))
    elif section == "data":
        yield DataOptions
        yield from _entry_options(SOURCES, table.get("name"))
        yield from _entry_options(PARTITIONS, table.get("partition"))
    else:
        from cfljax.models import MODELS

        yield from _entry_options(MODELS, table.get("name"))


def _entry_options(registry: Registry, name: object) -> Iterator[type]:
    if isinstance(name, str) and name in registry:
        yield registry.entry(name).options


def _list_files(record: Record) -> Iterator[tuple[Files, str]]:
    """Yield (group, checksum of the contents) of each file, or set of files, that a run has
    read."""
    for what, checksum in record.get("contents", {}).items():
        section, _, key = ("data.path" if what == "data" else what).partition(".")
        table = record["config"].get(section)
        if key and isinstance(table, dict):
            yield (section, key, str(table.get("name"))), checksum


def option_of(config: Table, name: str) -> Value:
    """Return the option of a run's configuration with this dotted name; None if it has no such
    option."""
    value: Value = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set_option(table: Mapping[str, Value], option: str, path: Value) -> Table:
    name, _, inner = option.partition(".")
    if inner:
        return {**table, name: _set_option(table.get(name, {}), inner, path)}
    rest = {key: value for key, value in table.items() if key != name}
    return rest if path is None else rest | {name: path}
