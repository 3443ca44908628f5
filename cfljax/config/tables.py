"""From the tables of a tidy spec to drafts: in a draft the names are fixed, and each option has the
list of its values."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cfljax.config.data import DataOptions, make_data
from cfljax.config.run import NamedOptions
from cfljax.config.train import Train
from cfljax.config.values import Field, Range, expand_axis, list_fields, to_list
from cfljax.errors import CfljaxError, SpecError, suggest
from cfljax.federation import PARTITIONS
from cfljax.federation.views import PRESETS
from cfljax.methods import METHODS
from cfljax.registry.gone import RENAMED, check_gone
from cfljax.registry.options import Options, Table, Value, check, show

RESERVED_KEYS = ("name", "label", "train")


class Point:
    """One choice of values for one table. It is checked when it is first built, so that
    combinations which rules exclude may be invalid."""

    def __init__(self, draft: Draft, values: Table):
        self.draft = draft
        self.values = values
        self.random = any(isinstance(v, Range) for v in values.values())
        self._built: dict[int, Any] = {}

    def values_for(self, sample: int) -> Table:
        """Return the values of the options, with random ranges drawn for that sample."""
        if not self.random:
            return self.values
        seed = self.draft.search_seed
        kind = self.draft.kind
        return {
            k: v.draw(f"{kind}.{k}", seed, sample) if isinstance(v, Range) else v
            for k, v in self.values.items()
        }

    def build(self, sample: int) -> Any:
        """Check the options and make a Data, Train or NamedOptions; the same object each time."""
        sample = sample if self.random else 0
        if sample not in self._built:
            self._built[sample] = self.draft.build(self.values_for(sample))
        return self._built[sample]


@dataclasses.dataclass(frozen=True)
class Draft:
    """A table of the spec for one choice of names."""

    kind: str
    where: str
    names: dict[str, str]
    fields: dict[str, Field]
    axes: dict[str, list[Value]]
    build: Callable[[Table], object]
    search_seed: int = 0

    @property
    def count(self) -> int:
        """The number of its points."""
        return math.prod(map(len, self.axes.values()))

    @property
    def random(self) -> bool:
        """Whether some option is drawn at random."""
        return any(isinstance(values[0], Range) for values in self.axes.values())

    def points(self) -> Iterator[Point]:
        """Yield every combination of the values of its options."""
        for values in itertools.product(*self.axes.values()):
            yield Point(self, dict(zip(self.axes, values, strict=True)))


class Variant(NamedTuple):
    """One choice of names, the classes that its options belong to, and the values of options that
    the spec does not give."""

    names: dict[str, str]
    classes: tuple[type, ...]
    preset: Table = {}


def _list_fields(variant: Variant) -> dict[str, Field]:
    """Return the options by name."""
    return {key: field for cls in variant.classes for key, field in list_fields(cls).items()}


def make_drafts(
    kind: str,
    where: str,
    table: Table,
    variants: list[Variant],
    build: Callable[..., object],
    search_seed: int,
    explain: Callable[[str], str] = lambda _: "",
) -> list[Draft]:
    """Make a draft per variant. With several variants (a list of names) an option counts for those
    that have it.

    Args:
        kind: of the table: "data", "model", "train" or "method".
        where: its key in messages.
        table: the options that the spec gives, without names.
        variants: the choices of names.
        build: makes the checked options from (names, classes, where, values).
        search_seed: seeds the draws from random ranges.
        explain: says of an unknown key what became of it, or what it belongs to; "": nothing."""
    own = list(map(_list_fields, variants))
    union = {key for fields in own for key in fields}
    renamed = {field.meta.get("was"): name for fields in own for name, field in fields.items()}
    for key in table:
        meta = next((fields[key].meta for fields in own if key in fields), None)
        check_gone(kind, key, table[key], where, meta)
        if key not in union:
            reserved = {"data": ("name", "partition"), "method": RESERVED_KEYS, "train": ()}.get(
                kind, ("name",)
            )
            was = f"; {key} is called {renamed[key]} now" if key in renamed else ""
            near = was or explain(key) or suggest(key, union | set(reserved))
            raise SpecError(f"{where}.{key} = {show(table[key])}: there is no such option{near}")
    found = []
    for (names, classes, preset), fields in zip(variants, own, strict=True):
        given = {key: value for key, value in table.items() if key in fields}
        axes = {
            key: expand_axis(value, fields[key], f"{where}.{key}")
            for key, value in (preset | given).items()
        }
        made = functools.partial(build, names, classes, where)
        found.append(Draft(kind, where, names, fields, axes, made, search_seed))
    return found


def make_data_drafts(table: Table, where: str, search_seed: int) -> list[Draft]:
    """Make the drafts of the `data` table: every name with every partition."""
    from cfljax.data import options_for

    variants: list[Variant] = []
    for name in list_names(table, "name", where):
        _check_source(name, table.get("path"), where)
        source = options_for(name)
        partitions = (
            list_names(table, "partition", where)
            if "partition" in table
            else [getattr(source, "default_partition", "iid")]
        )
        for each in partitions:
            preset = {} if each in PARTITIONS else dict(PRESETS.get(each, {}))
            partition = preset.pop("partition", each)
            if partition not in PARTITIONS:
                raise SpecError(
                    f'{where}.partition = "{each}": unknown partition'
                    + suggest(each, (*PARTITIONS, *PRESETS))
                )
            parts = PARTITIONS.entry(partition).options
            _check_names(name, source, partition, parts, table, where)
            variants.append(
                Variant(
                    {"name": name, "partition": partition}, (source, parts, DataOptions), preset
                )
            )
    rest = {key: value for key, value in table.items() if key not in ("name", "partition")}

    def explain(key: str) -> str:
        renamed = {
            old: f"{old} of data set {name} is {new} now"
            for name in {each.names["name"] for each in variants}
            for old, new in RENAMED.get(name, {}).items()
        }
        if key in renamed:
            return f"; {renamed[key]}"
        if key in ("source", "parts"):
            words = ["write what is in it beside the other options of data", *renamed.values()]
            return f" any more; {'; '.join(words)}"
        owners = [p for p in PARTITIONS if key in list_fields(PARTITIONS.entry(p).options)]
        listed = "; ".join(dict.fromkeys(each.names["partition"] for each in variants))
        return f" with partition {listed}; it belongs to {', '.join(owners)}" if owners else ""

    return make_drafts("data", where, rest, variants, make_data, search_seed, explain)


def _check_names(
    name: str, source: type, partition: str, parts: type, table: Table, where: str
) -> None:
    """Reject an option that could be meant for the data set as well as for the partition."""
    for key in list_fields(parts):
        if key in list_fields(source):
            raise SpecError(
                f'{where}.{key}: data set "{name}" and partition "{partition}" both have this '
                "option; rename it in the plug-in that has one of them"
            )
        new = RENAMED.get(name, {}).get(key)
        if key in table and new is not None and new not in table:
            raise SpecError(
                f'{where}.{key} = {show(table[key])}: is for partition "{partition}" alone; '
                f'give data set "{name}" its {new}, too'
            )


def _check_source(name: str, path: Value, where: str) -> None:
    """Reject a name that is almost a registered one, unless there are data files of that name."""
    from cfljax.data import SOURCES, find

    near = difflib.get_close_matches(name, list(SOURCES), n=1, cutoff=0.75)
    if name in SOURCES or not near or not isinstance(path, (str, type(None))):
        return
    try:
        find(name, path)
    except CfljaxError:
        raise SpecError(
            f'{where}.name = "{name}": unknown data set; did you mean "{near[0]}"?'
        ) from None


def make_model_drafts(table: Table, where: str, search_seed: int) -> list[Draft]:
    """Make the drafts of the `model` table."""
    from cfljax.models import MODELS

    names = list_names(table, "name", where)
    variants = [Variant({"name": n}, (MODELS.entry(n, f"{where}.name").options,)) for n in names]
    return make_drafts(
        "model",
        where,
        {k: v for k, v in table.items() if k != "name"},
        variants,
        _check_table,
        search_seed,
    )


def make_train_drafts(table: Table, where: str, search_seed: int) -> list[Draft]:
    """Make the drafts of the `train` table."""
    return make_drafts("train", where, table, [Variant({}, (Train,))], _check_table, search_seed)


def make_method_draft(
    table: Table,
    where: str,
    defaults: Table,
    search_seed: int,
    shared: frozenset[str] = frozenset(),
) -> Draft:
    """Make the draft of a `[[method]]` table with one name; it may lack `shared` keys, those of a
    table for several names."""
    name = table["name"]
    cls = METHODS.entry(name, "method.name").options
    own = list_fields(cls)
    given = {
        k: v for k, v in table.items() if k not in RESERVED_KEYS and (k in own or k not in shared)
    }
    inherited = {k: v for k, v in defaults.items() if k in own and k not in given}
    return make_drafts(
        "method",
        where,
        {**inherited, **given},
        [Variant({"name": name}, (cls,))],
        _check_table,
        search_seed,
        lambda key: "; given clusters are labels of one_shot" if key == "labels" else "",
    )[0]


def _check_table(
    names: dict[str, str], classes: tuple[type, ...], where: str, values: Table
) -> NamedOptions | Options:
    options: Options = check(classes[0], values, where)
    return NamedOptions(names["name"], options) if names else options


def list_names(table: Table, key: str, where: str) -> list[str]:
    """List the names under a key: one, or a list of them."""
    if key not in table:
        raise SpecError(f"{where}.{key}: missing")
    names = to_list(table[key], f"{where}.{key}")
    if not all(isinstance(name, str) and name for name in names):
        raise SpecError(f"{where}.{key} = {show(table[key])}: must be a name, or a list of names")
    return list(dict.fromkeys(names))
