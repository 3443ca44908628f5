"""The labels of a results folder's runs and the options in which they differ, by their
configurations and plan.json. The labels and differences in the records are from the start that
computed them, and may be out of date. Files that runs have read are identified by their contents: a
file may have many paths, and a path may have had several contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfljax.registry.options import Key, Table, Value, find_differing

Record = Table

# The section, the option and the name of a table that names a file. Only files of equal keys are
# compared.
Files = tuple[str, str, str]

_SECTIONS = ("data", "model", "train", "method")
_COMMON_DATA_OPTIONS = (
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

    def unify(record: Record) -> Record:
        """Return the record with the first path of each of its files."""
        config = dict(record["config"])
        for group, checksum in _list_files(record):
            section, option, _ = group
            path = first[group, checksum]
            if len(held[group, path]) > 1:
                path = f"{path or ''} [{checksum[:8]}]".lstrip()
            config[section] = _set_option(config[section], option, path)
        return record | {"config": config}

    return [{run: unify(record) for run, record in records.items()} for records in folders]


def make_rows(
    records: Mapping[str, Record], plan_rows: Iterable[Mapping[str, Value]] | None
) -> list[Record]:
    """Return the records, labelled, with the options in which they differ. A run of two rows is
    there twice.

    Args:
        records: Of each run, by its id.
        plan_rows: The rows of the plan; None: there is no plan. If they list all runs with the
            options that vary, these count: a start writes them since version 0.3.0. Otherwise the
            configurations in the records are compared.
    """
    from cfljax.registry.gone import without_gone

    now = {
        run: record | {"config": without_gone(record["config"])} for run, record in records.items()
    }
    rows = list(_label_by_plan(now, plan_rows or (), plan_rows is None and _data_follow_seeds(now)))
    known = [varies for _, varies in rows if varies is not None]
    if len(known) < len(rows):
        known = _compare([_list_options(record) for record, _ in rows])
    return [record | {"varies": varies} for (record, _), varies in zip(rows, known, strict=True)]


def _compare(views: list[dict[Key, Value]]) -> list[Table]:
    """Return the options of each view in which it differs from another with the same groups. An
    option that a record lacks is None there, whatever its default is; one that went has its
    default."""
    from cfljax.registry.gone import OPTIONS

    names: dict[str, dict[Key, None]] = {}
    for view in views:
        for key in view:
            names.setdefault(key[0], {})[key] = None
    missing = {
        key: OPTIONS[key[1]].usual if key[1] in OPTIONS else None
        for group in names.values()
        for key in group
    }
    whole = [
        {
            key: view.get(key, missing[key])
            for group in dict.fromkeys(group for group, _ in view)
            for key in names[group]
        }
        for view in views
    ]
    differ = find_differing(whole)
    return [{key[1]: value for key, value in view.items() if key in differ} for view in whole]


def _label_by_plan(
    records: Mapping[str, Record], plan_rows: Iterable[Mapping[str, Value]], follow: bool
) -> Iterator[tuple[Record, Table | None]]:
    """Yield the records in order, labelled by the plan where it lists them, with the options that
    vary by the plan (None: it does not say). `follow`: data are drawn from the runs' seeds."""
    rows: dict[str, list[tuple[str, bool, Table | None]]] = {}
    for entry in plan_rows:
        follows = entry.get("data_seed") == "run"
        varies = entry.get("varies") or [None] * len(entry["units"])
        for run, each in zip(entry["units"], varies, strict=True):
            rows.setdefault(run, []).append((entry["label"], follows, each))
    for run, record in records.items():
        for label, follows, varies in rows.get(run, [(label_of(record), follow, None)]):
            yield _relabel(record, label, follows), varies


def _data_follow_seeds(records: Mapping[str, Record]) -> bool:
    """Return whether all data were drawn from the runs' own seeds, as far as records say it."""
    pairs = [
        (record["seed"], (record["config"].get("data") or {}).get("seed"))
        for record in records.values()
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


def _list_options(record: Record) -> dict[Key, Value]:
    """Map (group, dotted name) to the options of a run; the group of options of all runs is ""."""
    options: dict[Key, Value] = {}
    for section in _SECTIONS:
        table = record["config"].get(section)
        if not isinstance(table, dict):
            continue
        group = _name_group(section, table)
        for name, value in table.items():
            common = name in _COMMON_DATA_OPTIONS if section == "data" else name == "name"
            if not (section == "method" and name == "name"):
                options["" if common else group, f"{section}.{name}"] = value
    return options


def _name_group(section: str, table: Mapping[str, Value]) -> str:
    """Name what the options of a table are compared within: the same data set and partition, or the
    same model or method."""
    if section == "data":
        return f"{section} {table.get('name')} {table.get('partition')}"
    return f"{section} {table.get('name')}"


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
    """Copy the table with a path at a dotted option; None removes the option."""
    name, _, inner = option.partition(".")
    if inner:
        return {**table, name: _set_option(table.get(name, {}), inner, path)}
    rest = {key: value for key, value in table.items() if key != name}
    return rest if path is None else rest | {name: path}
