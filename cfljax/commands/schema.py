"""The schema command: the JSON Schema of specs, from the registries and the declarations of
options."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import typing
from collections.abc import Collection, Iterable
from typing import Any

from cfljax.commands import add_plugin_flag, as_json, parser_of
from cfljax.config import data, grid, train, train_tables, transit
from cfljax.config.layers import EXCLUSIVE
from cfljax.config.optimisers import list_optimisers
from cfljax.config.plugins import load
from cfljax.config.values import MAX_RUNS, Field, list_fields
from cfljax.data import SOURCES
from cfljax.data.prepare import COMMON_SETS, HUB_SETS
from cfljax.data.sources import FileOptions
from cfljax.federation import LABEL_VIEWS, PARTITIONS, VIEWS
from cfljax.federation.options import DriftOptions
from cfljax.federation.views import PRESETS
from cfljax.local.rates import FACTORS_OF, Schedule
from cfljax.methods import METHODS
from cfljax.models import MODELS
from cfljax.registry import Registry
from cfljax.registry.options import Hint, Meta, Table

TABLES: dict[str, type] = {
    "data.new_clients": data.NewClients,
    "data.drift": DriftOptions,
    **{f"train.{name}": options for name, options in train.TABLES.items()},
    "train.privacy.choice": transit.ChoiceTable,
    "train.server": train_tables.ServerTable,
    "train.server.lr_schedule": Schedule,
    "train.plan": train.PlanOptions,
    "search": grid.Search,
}
"""Where a table stands in a spec -> its options."""
BOUNDS = {"low": "minimum", "high": "maximum", "above": "exclusiveMinimum"}
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
TEXT: Table = {"type": "string", "minLength": 1}
# start:stop or start:stop:step. A range from a number to itself is empty, and a step is not 0
_REST_OF_RANGE = r"\s*:\s*-?\d+\s*(:\s*-?0*[1-9]\d*\s*)?$"
_NOT_EMPTY = r"^(?!\s*(-?\d+)\s*:\s*\1\s*(:|$))"
RANGE: Table = {"type": "string", "pattern": _NOT_EMPTY + r"\s*-?\d+" + _REST_OF_RANGE}
SEEDS: Table = {"type": "string", "pattern": _NOT_EMPTY + r"\s*\d+" + _REST_OF_RANGE}
SPACED: Table = {"type": "string", "pattern": r"^\s*(log|lin)\s*\([^()]*\)\s*$"}
NUMBER: Table = {"type": "number"}
SEED: Table = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}


def parser(prog: str = "python -m cfljax.schema") -> argparse.ArgumentParser:
    """Make the parser."""
    flags = parser_of("schema", prog)
    add_plugin_flag(flags, "know the methods, models, … of this file")
    flags.add_argument(
        "--of",
        choices=("spec", *as_json.SCHEMAS),
        default="spec",
        help="of a spec (default), or of what this command prints with --json",
    )
    return flags


def run(flags: argparse.Namespace) -> int:
    """Print the schema."""
    load(flags.plugin)
    made = make_schema() if flags.of == "spec" else as_json.SCHEMAS[flags.of]
    print(json.dumps(made, indent=1, ensure_ascii=False))
    return 0


def make_schema() -> Table:
    """Make the schema of a whole spec."""
    made = _Options()
    own = {"label": TEXT, "train": refer("train")}
    shared = one_of(
        made.of(each) for each in [*(SOURCES.entry(name).options for name in SOURCES), FileOptions]
    )
    names = {"anyOf": [{"enum": [*SOURCES, *COMMON_SETS, *HUB_SETS]}, TEXT]}
    shared |= {"name": one_or_more(names), **made.of(data.DataOptions, "data")}
    seeds = {"anyOf": [SEEDS, a_list({"anyOf": [SEED, SEEDS]})]}
    common = {
        "name": TEXT,
        "seeds": seeds,
        "samples": {"type": "integer", "minimum": 1, "maximum": MAX_RUNS},
        "search_seed": SEED,
        "defaults": a_table(made.of_any(METHODS)),
        "search": a_table({**made.of(grid.Search, "search"), "seeds": seeds}),
        "train": one_or_more(refer("train")),
    }
    whole = common | {"plugins": one_or_more(TEXT), "include": one_or_more(refer("override"))}
    whole["size"] = {"anyOf": [TEXT, {"type": "object", "additionalProperties": refer("override")}]}
    whole["exclude"] = one_or_more(
        a_table({}) | {"patternProperties": {r"^(data|model|train|method|seeds?)(\.|$)": {}}}
    )
    for kind, name in (
        ("data", names),
        ("model", {"enum": [*MODELS]}),
        ("method", {"enum": [*METHODS]}),
    ):
        whole[kind] = one_or_more({"anyOf": [name, refer(kind) | {"required": ["name"]}]})
    over = common | {
        kind: one_or_more({"anyOf": [TEXT, refer(kind)]}) for kind in ("data", "model", "method")
    }
    by_name = {"type": "object", "additionalProperties": a_table(own | made.of_any(METHODS))}
    over["method"] = {"anyOf": [over["method"], by_name]}
    definitions = {
        "data": made.tables(PARTITIONS, "partition", shared),
        "model": made.tables(MODELS, "name", {}),
        "method": made.tables(METHODS, "name", own),
        "train": a_table(made.of(train.Train, "train")) | {"not": {"required": [*EXCLUSIVE]}},
        "override": a_table(over)
        | {"patternProperties": {r"^(data|model|train|method|defaults|search)\.": {}}},
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A spec of cfljax"}
    return head | a_table(whole, ["data", "method"]) | {"$defs": definitions | made.definitions}


def refer(name: str) -> Table:
    """Refer to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def a_list(item: Table) -> Table:
    """Make the schema of a list with at least one of these."""
    return {"type": "array", "items": item, "minItems": 1}


def one_or_more(schema: Table) -> Table:
    """Make the schema of one of these, or a list of them."""
    return {"anyOf": [schema, a_list(schema)]}


def a_table(properties: Table, required: Collection[str] = (), more: bool = False) -> Table:
    """Make the schema of a table with these keys; `more`: and others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": more,
    }


def one_of(tables: Iterable[Table]) -> Table:
    """Merge the keys of several tables; one with several meanings may have any of them."""
    found: dict[str, list[Table]] = {}
    for key, schema in (item for table in tables for item in table.items()):
        found.setdefault(key, []).extend([] if schema in found.get(key, []) else [schema])
    return {key: each[0] if len(each) == 1 else {"anyOf": each} for key, each in found.items()}


def _list_required(cls: type) -> set[str]:
    """List the options that have no default."""
    return {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}


class _Options:
    """Makes the schemas of options. `definitions`: of each option that was asked for, one."""

    def __init__(self) -> None:
        self.definitions: Table = {}

    def of(self, cls: type, where: str = "") -> Table:
        """Make the schemas of the options of a class. `where`: the table of a spec that they stand
        in."""
        found = {}
        for name, field in list_fields(cls).items():
            text = json.dumps(schema := self.option(field, f"{where}.{name}"))
            key = f"{name}.{hashlib.sha256(text.encode()).hexdigest()[:6]}"
            self.definitions[key] = schema
            found[name] = refer(key)
        return {
            name: schema
            for name, schema in found.items()
            if not list_fields(cls)[name].meta.get("beside")
        }

    def of_any(self, registry: Registry[Any]) -> Table:
        """Make the schemas of the options of all entries."""
        return one_of(self.of(registry.entry(name).options) for name in registry)

    def tables(self, registry: Registry[Any], key: str, common: Table) -> Table:
        """Make the schema of a table with the options of its name, which stands under this key;
        with several names or none, of all."""
        found = []
        presets = PRESETS if registry is PARTITIONS else {}
        names = {name: name for name in registry} | {
            name: preset[key] for name, preset in presets.items()
        }
        for name, stands_for in names.items():
            own = self.of(registry.entry(stands_for).options)
            named = {key: {"const": name, "description": registry.entry(stands_for).summary}}
            found.append(a_table(named | common | own, [key]))
        several = {key: a_list({"enum": list(names)})} | common | self.of_any(registry)
        return {"anyOf": [*found, a_table(several)]}

    def option(self, field: Field, where: str) -> Table:
        """Make the schema of an option: its values, the ways to write several numbers, or a list of
        all this."""
        forms = self.special(where) or [
            form for kind in field.kinds for form in self.forms(kind, field.meta, where)
        ]
        forms += self.with_schedule(where, forms)
        table = where.rpartition(".")[0]
        drawn = []
        if table not in TABLES and {int, float} & set(field.kinds):
            forms += [SPACED, *([RANGE] if int in field.kinds else [])]
            drawn = (
                []
                if field.table
                else [
                    a_table(
                        {"low": NUMBER, "high": NUMBER, "log": {"type": "boolean"}}, ["low", "high"]
                    )
                ]
            )
        # The options of these tables take one value each: no grid goes over them
        if table not in ("search", "train.privacy.choice"):
            drawn.append(a_list({"anyOf": forms}))
        described = {"description": field.meta.get("help", "")} | (
            {} if field.default is None else {"default": field.default}
        )
        return described | {"anyOf": forms + drawn}

    def forms(self, kind: Hint, meta: Meta, where: str) -> list[Table]:
        """List the schemas of a value of this type."""
        if kind is type(None) or dataclasses.is_dataclass(kind):
            return []
        if typing.get_origin(kind) is tuple:
            return [
                {
                    "type": "array",
                    "items": {"anyOf": self.forms(typing.get_args(kind)[0], meta, where)},
                }
            ]
        cls = TABLES.get(where)
        if kind is dict or typing.get_origin(kind) is dict:
            own = [] if cls is None else dataclasses.fields(cls)
            required = [] if cls is None else sorted(_list_required(cls))
            more = cls is None or any(field.metadata.get("beside") for field in own)
            return [a_table({} if cls is None else self.of(cls, where), required, more)]
        if kind is str:
            name = None
            if cls is not None and not _list_required(cls) - {"name"}:
                # A word stands for a table with that name alone
                name = list_fields(cls).get("name")
            words = [
                *(meta.get("choices") or ()),
                *((name.meta.get("choices") if name else None) or ()),
            ]
            # A word in place of a whole table, such as train.plan = "auto"
            if cls is train.PlanOptions:
                words += ["auto"]
            elif cls is not None:
                words += transit.NONE_WORDS
            return [{"enum": list(dict.fromkeys(words))} if words else {"type": "string"}]
        bounds = (
            {word: meta[key] for key, word in BOUNDS.items() if meta.get(key) is not None}
            if kind in (int, float)
            else {}
        )
        return [{"type": TYPES[kind], **bounds} if kind in TYPES else {}]

    def with_schedule(self, where: str, forms: list[Table]) -> list[Table]:
        """List the schemas of a learning rate that is written together with its schedule; `forms`:
        those of its value."""
        if where not in {f"train.{rate}" for rate in FACTORS_OF}:
            return []
        options = self.of(Schedule, f"{where}_schedule")
        value = one_or_more({"anyOf": [*forms]})
        return [a_table({"value": value, "schedule": options.pop("name"), **options})]

    def special(self, where: str) -> list[Table]:
        """List the schemas of a value that the declaration of its option does not say."""
        if where == "data.arrive":
            late = self.of(data._ArriveKeys, where)
            return [
                a_table(
                    {"from" if name == "start" else name: schema for name, schema in late.items()}
                )
            ]
        if where == "data.views":
            tables = self.tables(VIEWS, "name", {"copies": {"type": "boolean"}})["anyOf"][:-1]
            for table in tables:
                if table["properties"]["name"]["const"] in LABEL_VIEWS:
                    labels = {"type": "array", "items": {"type": "integer", "minimum": 0}}
                    table["properties"]["labels"] = labels
            return [{"type": "array", "items": {"anyOf": [{"enum": list(VIEWS)}, *tables]}}]
        if where == "train.parts":
            return [
                {
                    "type": "object",
                    "additionalProperties": one_or_more({"enum": list(train.SHARING)}),
                }
            ]
        if where in ("train.optimizer", "train.server.name"):
            names: Table = {"enum": list(list_optimisers(server=where != "train.optimizer"))}
            return [names, a_table({"name": names}, ["name"], more=True)][
                : 2 if where == "train.optimizer" else 1
            ]
        return []
