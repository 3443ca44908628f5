"""From `[[exclude]]` tables to rules, which say whether a combination of options is left out: every
key of the rule must match it.

Keys are dotted (`train.lr`, `data.partition`, `method.clusters`, `method.ifca.clusters` for one
method only), nested tables mean the same; `method`, `data` and `model` alone are the name, `seed`
is the seed. A list matches any of its values, and so does an integer range such as "0:3". Options
that a combination leaves at their default match that default.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from cfljax.config.data import Data
from cfljax.config.tables import Point
from cfljax.config.train import Train, read_frozen
from cfljax.config.values import parse_range
from cfljax.errors import SpecError, suggest
from cfljax.methods import METHODS
from cfljax.registry.options import Options, Table, Value, show
from cfljax.round.config import MethodConfig

_PARTS = ("data", "model", "train", "method", "seed")
_ABSENT = object()


class Combination(NamedTuple):
    """The options of a run before they are checked as a whole."""

    data: Point
    model: Point
    train: Point
    method: Point
    label: str
    sample: int
    seed: int


class ExclusionRule:
    """One `[[exclude]]` table."""

    def __init__(self, table: Table, where: str):
        if not isinstance(table, dict) or not table:
            raise SpecError(
                f"{where}: must be a table of dotted keys and values, as in {{ method = "
                f'"ifca", "train.lr" = 0.5 }}'
            )
        self.where = where
        self.wanted = {
            key: _list_alternatives(value, f"{where}.{key}")
            for key, value in flatten(table).items()
        }
        for key in self.wanted:
            head = key.split(".")[0]
            if head not in (*_PARTS, "seeds"):
                raise SpecError(
                    f"{where}.{key}: the keys of a rule begin with {', '.join(_PARTS)}"
                    + suggest(head, _PARTS)
                )
        self.found: set[str] = set()
        self.used = False

    def matches(self, combination: Combination) -> bool:
        """Return whether the combination has one of the rule's values for every key."""
        hit = True
        for key, wanted in self.wanted.items():
            value = look_up(combination, key.split("."))
            if value is not _ABSENT:
                self.found.add(key)
            hit = (
                hit
                and value is not _ABSENT
                and any(
                    _is_same(v, w)
                    for v in (value if isinstance(value, set) else [value])
                    for w in wanted
                )
            )
        self.used = self.used or hit
        return hit

    def check(self, combinations: Collection[Combination]) -> None:
        """Reject a key that no combination has."""
        options = {
            f"{p.draft.kind}.{key}" for c in combinations for p in c[:4] for key in p.draft.fields
        }
        names = {name for c in combinations for name in (c.method.draft.names["name"], c.label)}
        for key in self.wanted.keys() - self.found:
            parts = key.split(".")
            if parts[0] == "method" and len(parts) > 1 and parts[1] in METHODS:
                # The rule is about a method that this sweep leaves out
                continue
            known = (
                options
                | {f"method.{n}" for n in names}
                | {"data.name", "data.partition", "model.name", "seed"}
            )
            raise SpecError(f"{self.where}.{key}: there is no such option" + suggest(key, known))


def flatten(table: Table, prefix: str = "") -> Table:
    """Flatten nested tables to one table of dotted keys."""
    flat: Table = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def look_up(c: Combination, path: list[str]) -> Value:
    """Return the value at a dotted path, or `_ABSENT`. For `method` it is the set of the method's
    label and name."""
    head, rest = path[0], path[1:]
    if head in ("seed", "seeds"):
        return c.seed if not rest else _ABSENT
    if head == "method":
        names = {c.label, c.method.draft.names["name"]}
        if not rest or rest == ["name"]:
            return names
        if rest == ["label"]:
            return c.label
        if rest[0] in names:
            return (
                look_up(c, ["train", *rest[2:]])
                if rest[1:2] == ["train"]
                else _look_up_option(c.method, rest[1:], c.sample)
            )
        return _look_up_option(c.method, rest, c.sample)
    point = getattr(c, head)
    return _look_up_option(point, rest or ["name"], c.sample)


def _look_up_option(point: Point, path: list[str], sample: int) -> Value:
    """Return the value of an option of a table at a path, its default if the combination does not
    give it, or `_ABSENT`."""
    if not path:
        return _ABSENT
    if path[0] in point.draft.names:
        return point.draft.names[path[0]] if len(path) == 1 else _ABSENT
    if path[0] not in point.draft.fields:
        return _ABSENT
    value = point.values_for(sample).get(path[0], point.draft.fields[path[0]].default)
    for key in path[1:]:
        if isinstance(value, str) and key == "name":
            return value
        value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def _list_alternatives(value: Value, where: str) -> list[Value]:
    """List the values that a key of a rule matches."""
    if value == [] or value == {}:
        raise SpecError(f"{where} = {show(value)}: matches nothing")
    # A list may be the value of an option that is a list, or several values of one that is not
    alternatives = [value]
    if isinstance(value, list):
        alternatives += value
    for item in list(alternatives):
        if isinstance(item, str):
            alternatives += parse_range(item, where) or []
    return alternatives


def _is_same(value: Value, wanted: Value) -> bool:
    """Compare two values as a rule does: lists by items, and true is not 1."""
    if isinstance(value, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return len(value) == len(wanted) and all(
            _is_same(v, w) for v, w in zip(value, wanted, strict=True)
        )
    if isinstance(value, bool) != isinstance(wanted, bool):
        return False
    return bool(value == wanted)


# (name of a part, who shares it) for each part that is named
Parts = tuple[tuple[str, str], ...]


def list_parts(options: MethodConfig, train: Train) -> Parts:
    """Return the parts of a run: from `train.parts` and `train.freeze`, or the method's own; () if
    models are shared whole."""
    return options.parts or (
        *(train.parts or {}).items(),
        *((name, "frozen") for name in read_frozen(train.freeze) or ()),
    )


def has_client_side_parts(options: MethodConfig, train: Train) -> bool:
    """Return whether parts of the models stay with the clients."""
    return any(kind == "client" for _, kind in list_parts(options, train))


def check_parts(label: str, options: MethodConfig, train: Train) -> None:
    """Reject a part that is both shared and frozen, and FedNova of what everybody shares."""
    for part, kind in list_parts(options, train):
        if kind == "all" and getattr(options, "average", "") == "nova":
            why = (
                f"a part that all clients share is not averaged by steps; make it {part} = "
                '"cluster", or take average = "samples"'
            )
            raise SpecError(
                f'method.{label}.average = "nova" with train.parts.{part} = "all": {why}'
            )
    if twice := (train.parts or {}).keys() & set(read_frozen(train.freeze) or ()):
        raise SpecError(
            f'train.freeze = "{min(twice)}": train.parts lists it too, but a frozen part is '
            "not shared; leave out one"
        )


def check_start(
    label: str, options: MethodConfig, model: Options, train: Train, data: Data
) -> None:
    """Reject a start from a file that is missing, or that parameters which do not train would
    need."""
    # Imported here because it imports JAX
    from cfljax.models.options import common_options

    common = common_options(model)
    weights = common.weights
    frozen = common.frozen
    if weights is not None and not Path(weights).expanduser().is_file():
        raise SpecError(f'model.weights = "{weights}": there is no such file')
    if frozen and not weights:
        raise SpecError(
            f'model.frozen = "{frozen}": freezes the body of a pretrained model; give '
            "model.weights, or take train.freeze"
        )
    if train.lora and not weights:
        raise SpecError("train.lora: adapts a pretrained model; give model.weights")
    if frozen and train.lora:
        raise SpecError(
            f'model.frozen = "{frozen}": train.lora freezes all but its adapters; leave out one'
        )
    if frozen and data.drift is not None:
        raise SpecError(
            f'model.frozen = "{frozen}": data.drift changes the inputs of its features; take '
            "train.freeze"
        )
    if frozen and getattr(model, "predict", "last") == "every":
        raise SpecError(
            f'model.frozen = "{frozen}": its features are of the last token; take '
            'model.predict = "last"'
        )
    if frozen and (train.divided_by or options.parts):
        what = train.divided_by or f"method.{label}"
        raise SpecError(
            f'model.frozen = "{frozen}": {what} needs the parts of the model, of which only '
            "the head is left; leave out one"
        )
    if common.jitter and not weights:
        raise SpecError(
            f"model.jitter = {common.jitter}: is noise on pretrained weights; give model.weights"
        )
