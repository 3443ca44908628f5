"""Which options no spec of the repository sets, and what docs/ledger.md says of them."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cfljax.commands.schema import TABLES
from cfljax.config import plugins, read, read_spec, train_tables
from cfljax.config.data import DataOptions, _ArriveKeys
from cfljax.config.tables import Draft
from cfljax.config.train import Train
from cfljax.config.values import list_fields
from cfljax.data import SOURCES
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS
from experiments.board.settings import list_settings
from tests import blocks

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "ledger.md"
REGISTRIES = {"method": METHODS, "model": MODELS, "data set": SOURCES, "partition": PARTITIONS}
SHARED = {"data": DataOptions, "train": Train, "data.arrive": _ArriveKeys, **TABLES}
"""Tables whose options do not depend on a name, and their classes."""


class Option(NamedTuple):
    """An option of a spec."""

    kind: str
    """"method", "model", "data set" or "partition", or the table, such as "train.clock"."""
    owner: str
    """The name that has it; "" of an option of a table."""
    name: str


def specs() -> Iterator[tuple[str, dict, Path]]:
    """(where, spec, folder) of the repository's files, of the pages' blocks and of the board's
    settings, but not of records, which say what was typed then."""
    files = [
        *(ROOT / "experiments").rglob("*.toml"),
        *(ROOT / "docs").rglob("*.toml"),
        *(ROOT / "cfljax/config").glob("*.toml"),
    ]
    texts = [
        (str(file.relative_to(ROOT)), file.read_text(), file.parent)
        for file in files
        if ROOT / "experiments" / "records" not in file.parents
    ]
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        texts += [
            (f"{page.name}:{b.line}", b.text, ROOT) for b in blocks.blocks(page) if b.lang == "toml"
        ]
    for where, text, folder in texts:
        table = tomllib.loads(text)
        found = all(
            (folder / name).is_file() for name in table.get("plugins", []) if name.endswith(".py")
        )
        # the plug-ins of a page are written beside its specs
        if found and "method" in table and "data" in table:
            yield where, table, folder
    for setting in list_settings():
        methods = [setting.make_method(name) for name in setting.methods]
        yield f"board {setting.name}", setting.spec | {"method": methods}, ROOT


def declared() -> set[Option]:
    """All options that the package has."""
    found = {
        Option(kind, owner, name)
        for kind, registry in REGISTRIES.items()
        for owner in registry
        if registry.is_built_in(owner)
        for name in list_fields(registry.entry(owner).options)
    }
    return found | {
        Option(table, "", name)
        for table, cls in SHARED.items()
        for name, field in list_fields(cls).items()
        if not field.meta.get("beside")
    }


def given(monkeypatch: pytest.MonkeyPatch) -> set[Option]:
    """All options that some spec of the repository gives, whatever the value."""
    grids: list = []
    # the trace of a page is written beside its spec
    monkeypatch.setattr(train_tables, "read_trace", lambda path: None)
    monkeypatch.setattr(read, "make_runs", lambda made, rules, warn: grids.extend(made) or [])
    found: set[Option] = set()
    for _, table, folder in specs():
        names = table.get("plugins", [])
        plugins.load(names, folder)
        read_spec({key: value for key, value in table.items() if key != "plugins"})
        found |= set(_in_tables("search", table.get("search", {})))
    for grid in grids:
        drafts = [*grid.data, *grid.models]
        for entrant in grid.entrants:
            drafts += [entrant.draft, *entrant.trains]
        for draft in drafts:
            found |= set(_of_draft(draft))
    return found


def _of_draft(draft: Draft) -> Iterator[Option]:
    names = draft.names
    owners = {
        "method": [("method", names.get("name"))],
        "model": [("model", names.get("name"))],
        "data": [("data set", names.get("name")), ("partition", names.get("partition"))],
    }.get(draft.kind, [])
    for key, values in draft.axes.items():
        yield from (Option(kind, owner, key.rpartition(".")[2]) for kind, owner in owners)
        if draft.kind in ("data", "train"):
            yield Option(draft.kind, "", key)
            for value in values:
                yield from _in_tables(f"{draft.kind}.{key}", value)


def _in_tables(where: str, value: object) -> Iterator[Option]:
    """The options in a table's value, and in tables in it; a view has those of its partition."""
    if where == "data.views":
        for view in value:
            if isinstance(view, dict):
                yield from (Option("partition", view["name"], key) for key in view)
    elif isinstance(value, str) and where in SHARED:
        yield Option(where, "", "name")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield Option(where, "", "start" if where == "data.arrive" and key == "from" else key)
            yield from _in_tables(f"{where}.{key}", inner)


def unset(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], set[str]]:
    """(kind, option) of those that no spec gives -> who has it."""
    found = defaultdict(set)
    for kind, owner, name in declared() - given(monkeypatch):
        found[kind, name].add(owner)
    return dict(found)


class Line(NamedTuple):
    """A line of the ledger."""

    owners: set[str]
    reason: str


HEADS = {"Methods": "method", "Models": "model", "Data sets": "data set", "Partitions": "partition"}


def ledger(text: str) -> dict[tuple[str, str], Line]:
    """The lines of the ledger, by (kind, option). An option of a table is written
    `train.clock.speed`; of others the second column says who has it."""
    found, kind = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            kind = HEADS.get(line.removeprefix("## "), "table")
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        option, owners = cells[0].strip("`"), set(re.findall(r"`(\w+)`", cells[1]))
        of = (kind, option) if kind in REGISTRIES else tuple(option.rsplit(".", 1))
        assert of not in found, f"{line}: is there twice"
        found[of] = Line(owners if kind in REGISTRIES else {""}, cells[-1])
    return found
