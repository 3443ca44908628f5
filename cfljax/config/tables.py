"""From the tables of a tidy spec to drafts: in a draft the names are settled, and each option has the list of its values."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from cfljax.config.data import SIDES, DataOptions, make_data, sides
from cfljax.config.run import Chosen
from cfljax.config.train import Train
from cfljax.config.values import Field, Range, axis, fields_of, items_of
from cfljax.errors import CfljaxError, SpecError, suggest
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.registry.options import Options, Table, Value, check, show

RESERVED = ("name", "label", "train")


class Point:
    """One choice of values for one table. It is checked when first used, so combinations that rules exclude may be invalid."""

    def __init__(self, draft: Draft, values: Table):
        self.draft, self.values = draft, values
        self.random = any(isinstance(v, Range) for v in values.values())
        self._made: dict[int, Any] = {}

    def at(self, sample: int) -> Table:
        """The values of the options, with random ranges drawn for that sample."""
        if not self.random:
            return self.values
        seed, kind = self.draft.search_seed, self.draft.kind
        return {k: v.draw(f"{kind}.{k}", seed, sample) if isinstance(v, Range) else v for k, v in self.values.items()}

    def made(self, sample: int) -> Any:
        """The checked options (a Data, Train or Chosen); the same object each time."""
        sample = sample if self.random else 0
        if sample not in self._made:
            self._made[sample] = self.draft.build(self.at(sample))
        return self._made[sample]


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
        """Every combination of the values of its options."""
        for values in itertools.product(*self.axes.values()):
            yield Point(self, dict(zip(self.axes, values, strict=True)))


Variant = tuple[dict[str, str], tuple[type, ...]]
"""(One choice of names, the classes that its options belong to.)"""


def _fields(variant: Variant) -> dict[str, Field]:
    """The options by name; for a data table, also those for one side alone (`source.clients`)."""
    names, classes = variant
    sides_of = zip(SIDES, classes, strict=False) if "partition" in names else ()
    prefixed = [("", cls) for cls in classes] + [(f"{side}.", cls) for side, cls in sides_of]
    return {prefix + key: field for prefix, cls in prefixed for key, field in fields_of(cls).items()}


def drafts(
    kind: str, where: str, table: Table, variants: list[Variant], build: Callable[..., object], search_seed: int,
    elsewhere: Callable[[str], str] = lambda _: "",
) -> list[Draft]:  # fmt: skip
    """A draft per variant. With several variants (a list of names) an option counts for those that have it."""
    own = list(map(_fields, variants))
    union = {key for fields in own for key in fields}
    for key in table:
        if key not in union:
            raise _unknown(kind, f"{where}.{key} = {show(table[key])}", key, union, elsewhere(key))
    found = []
    for (names, classes), fields in zip(variants, own, strict=True):
        axes = {key: axis(value, fields[key], f"{where}.{key}") for key, value in table.items() if key in fields}
        made = functools.partial(build, names, classes, where)
        found.append(Draft(kind, where, names, fields, axes, made, search_seed))
    return found


def _unknown(kind: str, shown: str, key: str, options: set[str], elsewhere: str) -> SpecError:
    reserved = {"data": ("name", "partition"), "method": RESERVED, "train": ()}.get(kind, ("name",))
    plain = {option for option in options if "." not in option}
    return SpecError(f"{shown}: there is no such option" + (elsewhere or suggest(key, plain | set(reserved))))


def data_drafts(table: Table, where: str, search_seed: int) -> list[Draft]:
    """The `data` table: every name with every partition."""
    from cfljax.data import options_for

    variants: list[Variant] = []
    for name in names_in(table, "name", where):
        _check_source(name, table.get("path"), where)
        source = options_for(name)
        partitions = names_in(table, "partition", where) if "partition" in table else [getattr(source, "default_partition", "iid")]
        for partition in partitions:
            parts = PARTITIONS.entry(partition, f"{where}.partition").options
            variants.append(({"name": name, "partition": partition}, (source, parts, DataOptions)))
    rest = sides({k: v for k, v in table.items() if k not in ("name", "partition")}, where)

    def elsewhere(key: str) -> str:
        owners = [p for p in PARTITIONS if key in fields_of(PARTITIONS.entry(p).options)]
        listed = "; ".join(dict.fromkeys(names["partition"] for names, _ in variants))
        return f" with partition {listed}; it belongs to {', '.join(owners)}" if owners else ""

    return drafts("data", where, rest, variants, make_data, search_seed, elsewhere)


def _check_source(name: str, path: Value, where: str) -> None:
    """Raise a SpecError for a name that is almost a registered one, unless there are data files of that name."""
    from cfljax.data import SOURCES, find

    near = difflib.get_close_matches(name, list(SOURCES), n=1, cutoff=0.75)
    if name in SOURCES or not near or not isinstance(path, (str, type(None))):
        return
    try:
        find(name, path)
    except CfljaxError:
        raise SpecError(f'{where}.name = "{name}": unknown data set; did you mean "{near[0]}"?') from None


def model_drafts(table: Table, where: str, search_seed: int) -> list[Draft]:
    """The `model` table."""
    from cfljax.models import MODELS

    names = names_in(table, "name", where)
    variants: list[Variant] = [({"name": n}, (MODELS.entry(n, f"{where}.name").options,)) for n in names]
    return drafts("model", where, {k: v for k, v in table.items() if k != "name"}, variants, _checked, search_seed)


def train_drafts(table: Table, where: str, search_seed: int) -> list[Draft]:
    """The `train` table."""
    return drafts("train", where, table, [({}, (Train,))], _checked, search_seed)


def method_draft(table: Table, where: str, defaults: Table, search_seed: int, shared: frozenset[str] = frozenset()) -> Draft:
    """A `[[method]]` table with one name; its `shared` keys come from a table for several names and options that it lacks are
    ignored."""
    name = table["name"]
    cls = METHODS.entry(name, "method.name").options
    own = fields_of(cls)
    given = {k: v for k, v in table.items() if k not in RESERVED and (k in own or k not in shared)}
    inherited = {k: v for k, v in defaults.items() if k in own and k not in given}
    return drafts("method", where, {**inherited, **given}, [({"name": name}, (cls,))], _checked, search_seed)[0]


def _checked(names: dict[str, str], classes: tuple[type, ...], where: str, values: Table) -> Chosen | Options:
    """The checked options of a table of one class; with the name, where the table has one."""
    options: Options = check(classes[0], values, where)
    return Chosen(names["name"], options) if names else options


def names_in(table: Table, key: str, where: str) -> list[str]:
    """The names under a key: one, or a list of them."""
    if key not in table:
        raise SpecError(f"{where}.{key}: missing")
    names = items_of(table[key], f"{where}.{key}")
    if not all(isinstance(name, str) and name for name in names):
        raise SpecError(f"{where}.{key} = {show(table[key])}: must be a name, or a list of names")
    return list(dict.fromkeys(names))
