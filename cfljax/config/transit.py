"""The tables `train.privacy`, `compress`, `attack` and `robust`: from what a spec writes to checked
options. They say what happens to updates in transit from the participants into the clusters'
models, and mean the same for every method."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, get_type_hints

from cfljax.config.values import list_fields
from cfljax.errors import SpecError
from cfljax.local import compressors
from cfljax.local.aggregation import Robust
from cfljax.local.attacks import Attack
from cfljax.local.privacy import ChoiceTable, Privacy
from cfljax.registry.gone import check_gone
from cfljax.registry.options import (
    Table,
    Value,
    check,
    check_value,
    option,
    show,
)
from cfljax.round.config import MethodConfig


def _list_compress_options() -> type:
    """Return a class of the options of the package's compressors, as a spec's table may have
    them, for help and schema."""
    owned = [
        (
            field.name,
            hints[field.name],
            dataclasses.field(
                default=None,
                metadata=field.metadata | {"help": f"{name}: {field.metadata['help']}"},
            ),
        )
        for name in compressors.BUILT_IN
        for hints in [get_type_hints(compressors.COMPRESSORS.entry(name).options)]
        for field in dataclasses.fields(compressors.COMPRESSORS.entry(name).options)
        if field.name not in compressors.Compressor.__dataclass_fields__
    ]
    return dataclasses.make_dataclass(
        "Compress",
        [
            ("name", str, option(help="how", choices=compressors.BUILT_IN)),
            *owned,
            ("feedback", bool, compressors.Compressor.__dataclass_fields__["feedback"]),
        ],
    )


def _read_compressor(table: Table, where: str) -> compressors.Compressor:
    """Check the table of a compressor; a SpecError if an option belongs to another one."""
    if "name" not in table:
        raise SpecError(f"{where}.name: missing (how)")
    name = check_value(table["name"], str, {}, f"{where}.name")
    kind = compressors.COMPRESSORS.entry(name, f"{where}.name").options
    for key in table.keys() - {field.name for field in dataclasses.fields(kind)}:
        owners = [
            f'"{each}"'
            for each in compressors.BUILT_IN
            if key in list_fields(compressors.COMPRESSORS.entry(each).options)
        ]
        if owners:
            raise SpecError(
                f"{where}.{key} = {show(table[key])}: belongs to name = {' or '.join(owners)}"
            )
    made: compressors.Compressor = compressors.COMPRESSORS.check(name, table, where)
    return made


class Transit(NamedTuple):
    """The four tables of a run; None where the spec leaves one out."""

    privacy: Privacy | None
    compress: compressors.Compressor | None
    attack: Attack | None
    robust: Robust | None

    @property
    def choice(self) -> ChoiceTable | None:
        """How participants choose their cluster; None: as they would without privacy."""
        return None if self.privacy is None else self.privacy.choice


# Words that mean the same as leaving the table out. A list of values needs them: it cannot leave
# one out.
NONE_WORDS = ("none", "mean")
Compress = _list_compress_options()
TABLES: dict[str, type[Any]] = {
    "privacy": Privacy,
    "compress": Compress,
    "attack": Attack,
    "robust": Robust,
}


def read_table(value: Value, name: str, kind: type) -> Any:
    """Check `train.<name>`. A word stands for a table with only that name; "none" (for `robust`
    also "mean") for no table."""
    if value in (None, *NONE_WORDS):
        return None
    if isinstance(value, (kind, compressors.Compressor)):
        return value
    table = {"name": value} if isinstance(value, str) else dict(value)
    where = f"train.{name}"
    fields = list_fields(kind)
    for key, each in table.items():
        check_gone(where, key, each, where, fields[key].meta if key in fields else None)
    return _read_compressor(table, where) if name == "compress" else check(kind, table, where)


def uses_error_feedback(options: MethodConfig, transit: Transit) -> bool:
    """Return whether clients keep what compression drops of their updates."""
    return transit.compress is not None and transit.compress.feedback and options.sends
