"""Options that earlier versions had: the message for a spec that still has one, and the value by
which an old record may be read as if the option had never been there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cfljax.errors import SpecError
from cfljax.registry.options import Meta, Table, Value, show

_AUTO_CLUSTERS = (
    'clusters = "auto" went; `cfljax tune SPEC --set {0}.clusters=2,4,8` chooses by validation'
)
_ALTERNATING = (
    'schedule = "alternate" went; method = "fedrep" trains an own head for its head_epochs, then '
    "the body for train.epochs"
)
_STALENESS = "went; give exponent: an update t steps old counts (1 + t)^-exponent"


class Gone(NamedTuple):
    """An option that went."""

    # Its default: a record with this value means what one without the option means
    usual: Value
    # The message for a spec with it; {0} stands for its table
    instead: str


OPTIONS: Mapping[str, Gone] = {
    "method.auto": Gone("silhouette", _AUTO_CLUSTERS),
    "method.most": Gone(8, _AUTO_CLUSTERS),
    "method.groups": Gone(
        "one", 'groups = "true" went; method = "oracle" is FedAvg inside each true group'
    ),
    "method.fesem_init": Gone(
        "shared", "fesem_init went; a client that has not trained has w_0, as in the program"
    ),
    "method.newcomer_steps": Gone(10, "newcomer_steps went; a newcomer has ten E-steps"),
    "model.size": Gone("ifca", "size went; dense = [384] is the network of IFCA's paper"),
    "data.rotate": Gone(
        1,
        'rotate went; views = [{{ name = "rotated", groups = 2 }}] rotates the images of groups of '
        "clients, with any partition",
    ),
    "data.test_cut": Gone(
        "shards", 'test_cut went; partition = "classes" has test samples by each client\'s classes'
    ),
    "train.schedule": Gone(None, _ALTERNATING),
    "train.head_epochs": Gone(None, _ALTERNATING),
    "train.asynchronous.staleness": Gone("polynomial", f"staleness {_STALENESS}"),
    "train.asynchronous.slope": Gone(None, f"hinge {_STALENESS}"),
    "train.asynchronous.grace": Gone(None, f"hinge {_STALENESS}"),
}
"""Table and option, as in a spec -> what became of it."""

VALUES: Mapping[tuple[str, Value], str] = {
    ("method.clusters", "auto"): _AUTO_CLUSTERS,
    ("method.noise", "drop"): (
        'noise = "drop" went; noise = "isolate" makes each noise point a cluster of its own'
    ),
    ("method.merge_to", "auto"): (
        'merge_to = "auto" went; `cfljax tune SPEC --set {0}.merge_to=2,4,8` chooses by validation'
    ),
}
"""Table and option, and a value that it had -> the message for a spec with this value."""


RENAMED: Mapping[str, Mapping[str, str]] = {
    "synthetic": {
        "alpha": "model_spread",
        "beta": "feature_spread",
        "clients": "users",
        "total": "size",
    }
}
"""Data set -> the name of an option until 0.2.0 -> its name, which no partition has for another
option. Ids of runs keep the old names."""

RENAMED_OF_METHODS: Mapping[str, Mapping[str, str]] = {"feddrift": {"begin": "start"}}
"""Method -> the name of an option in an earlier version -> its name. The option itself says it, too
(`option(…, was=…)`); records are read where no method is known."""

_PARTITIONS_WITH_OPTION = {
    "alpha": ("quantity", "dirichlet", "pachinko"),
    "beta": ("pachinko",),
    "total": ("fedprox",),
}
"""Such a name -> the partitions that had an option of this name, too; all had `clients`."""


def check_gone(table: str, key: str, value: Value, where: str, meta: Meta | None) -> None:
    """Raise a SpecError for an option, or a value of an option, that went.

    Args:
        table: as in a spec, "method" or "train.asynchronous".
        key: the option.
        value: what the spec says, one value or a list.
        where: the table as a message names it.
        meta: what an option of this name accepts today, perhaps a plug-in's, or None."""
    name = f"{table}.{key}"
    if meta is None and name in OPTIONS:
        raise SpecError(f"{where}.{key} = {show(value)}: {OPTIONS[name].instead.format(where)}")
    accepted = () if meta is None else meta.get("choices") or ()
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str) and each not in accepted and (name, each) in VALUES:
            raise SpecError(f"{where}.{key} = {show(each)}: {VALUES[name, each].format(where)}")


def without_gone(config: Mapping[str, Value], table: str = "") -> Table:
    """Return the configuration of a record, or one `table` of it, with the names that options have
    now, and without the options that went, where they have their usual values."""
    kept: Table = {}
    for key, value in config.items():
        name = f"{table}.{key}" if table else key
        if name in OPTIONS and value == OPTIONS[name].usual:
            continue
        kept[key] = without_gone(value, name) if isinstance(value, dict) else value
    if table == "method":
        return _rename_method_options(kept)
    return _rename(kept) if table == "data" else kept


def _rename_method_options(table: Table) -> Table:
    """Return the `method` table of a record with the names that its options have now."""
    now = RENAMED_OF_METHODS.get(str(table.get("name")), {})
    return {now.get(key, key): value for key, value in table.items()}


def _rename(table: Table) -> Table:
    """Return the `data` table of a record with the names that options have now. Until 0.2.0 an
    option of a data set could have the name of one of the partition: the table has it once if they
    were equal, and otherwise in the tables `source` and `parts`."""
    renamed = RENAMED.get(str(table.get("name")), {})
    if not renamed or not set(renamed.values()).isdisjoint(table):
        return table

    shared = {key: value for key, value in table.items() if key not in ("source", "parts")}
    source = shared | table.get("source", {})
    parts = shared | table.get("parts", {})
    gone = {
        old
        for old in renamed
        if old != "clients" and table.get("partition") not in _PARTITIONS_WITH_OPTION[old]
    }
    now = {key: value for key, value in parts.items() if key not in gone}
    return now | {new: source[old] for old, new in renamed.items() if old in source}
