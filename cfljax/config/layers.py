"""From a spec and the tables that change it to one tidy spec: `[[include]]`, `[size.NAME]` and
`--set` follow the same rules.

- A `data` or `model` table with a name replaces the one before; without, its options are laid over.
- `train` and `defaults` are laid over, option by option. Giving one of epochs and steps takes the
  other away.
- `method = "ifca"` or a list of names selects: tables of that name or label stay as they are, other
  names are added with their defaults. A list with tables replaces all. `method.ifca.clusters` (a
  table by name or label) changes an option.
- Everything else is replaced. What a method says in a `train` table of its own stands above the
  common one.
"""

from __future__ import annotations

from cfljax.config.values import to_list
from cfljax.errors import SpecError, suggest
from cfljax.local.rates import split_schedule
from cfljax.registry.options import Table, Value, show

EXCLUSIVE = ("epochs", "steps")
DEFAULT_MODEL = "mlp"
SIBLINGS_KEY = "\0names"
"""Key of a method table under which `split_names` keeps the list; no spec can have it, as control
characters are refused."""
SETTABLE_KEYS = (
    "name",
    "seeds",
    "data",
    "model",
    "train",
    "method",
    "defaults",
    "samples",
    "search_seed",
    "search",
)
TOP_KEYS = (*SETTABLE_KEYS, "include", "exclude", "size", "plugins")


def tidy(raw: Table) -> Table:
    """Normalise the spec: `data`, `model`, `train` and `method` become lists of tables, and names
    become tables."""
    for key in raw:
        if key not in TOP_KEYS:
            raise SpecError(
                f"{key}: there is no such table or key in a spec" + suggest(key, TOP_KEYS)
            )
    if "method" not in raw:
        raise SpecError(
            'method: missing; a spec needs a [[method]] table with a name, as in method = "fedavg"'
        )
    if "data" not in raw:
        raise SpecError('data: missing; a spec needs data = { name = "…" }')
    done = spell_rates(raw, "")
    for key in ("data", "model", "method"):
        if key in done:
            done[key] = list_tables(done[key], key)
    done.setdefault("model", [{"name": DEFAULT_MODEL}])
    done["train"] = list_tables(done.get("train", {}), "train", named=False)
    return done


def list_tables(value: Value, where: str, named: bool = True) -> list[Table]:
    """Convert one table or a list of them to a list.

    Args:
        value: as the spec has it.
        where: its key in messages.
        named: whether the tables have names; then a name stands for a table with only that name."""
    found: list[Table] = []
    for item in to_list(value, where):
        if isinstance(item, str) and named:
            item = {"name": item}
        if not isinstance(item, dict):
            raise SpecError(
                f"{where} = {show(item)}: must be a table" + (" or a name" if named else "")
            )
        if named and "name" not in item:
            raise SpecError(f"{where}.name: missing")
        found += split_names(item) if where.endswith("method") else [dict(item)]
    return found


def lay_over(base: Table, over: Table, where: str) -> Table:
    """Lay a table over the tidy spec."""
    done = dict(base)
    for key, value in spell_rates(nest_keys(over, where), f"{where}.").items():
        if key not in SETTABLE_KEYS:
            raise SpecError(
                f"{where}.{key}: there is no such table or key here" + suggest(key, SETTABLE_KEYS)
            )
        at = f"{where}.{key}"
        if key == "method":
            done[key] = lay_methods(base["method"], value, at)
        elif key in ("data", "model", "train") and isinstance(value, dict) and "name" not in value:
            done[key] = [lay_options(table, value) for table in base[key]]
        elif key in ("data", "model", "train"):
            done[key] = list_tables(value, at, named=key != "train")
        elif key in ("defaults", "search"):
            done[key] = {**need_table(base.get(key, {}), key), **need_table(value, at)}
        else:
            done[key] = value
    return done


def lay_methods(methods: list[Table], value: Value, where: str) -> list[Table]:
    """Select methods by name, replace them by tables, or change them by a table of tables."""
    if isinstance(value, dict) and "name" not in value:
        for name, options in value.items():
            methods = change_method(methods, name, need_table(options, f"{where}.{name}"), where)
        return methods
    items = to_list(value, where)
    if any(isinstance(item, dict) for item in items):
        return list_tables(value, where)
    chosen: list[Table] = []
    for item in items:
        if not isinstance(item, str):
            raise SpecError(f"{where} = {show(item)}: must be a method's name or table")
        found = [table for table in methods if has_name(table, item)] or [{"name": item}]
        # In ["ifca, lr 1.0", "ifca"] the name selects all tables of IFCA, the label one of them
        chosen += [table for table in found if table not in chosen]
    return chosen


def change_method(methods: list[Table], name: str, options: Table, where: str) -> list[Table]:
    """Lay options over the methods of that name or label."""
    if not any(has_name(table, name) for table in methods):
        raise SpecError(
            f"{where}.{name}: the spec has no such method" + suggest(name, list_names(methods))
        )

    def change(table: Table) -> Table:
        if "train" not in options:
            return {**table, **options}
        train = need_table(table.get("train", {}), f"method.{name}.train")
        return {
            **table,
            **options,
            "train": lay_options(train, need_table(options["train"], f"{where}.{name}.train")),
        }

    return [change(table) if has_name(table, name) else table for table in methods]


def split_names(table: Table) -> list[Table]:
    """Split a method table for several names into one table each. Each keeps the list; an option
    counts where it exists."""
    if not isinstance(table["name"], list):
        return [table]
    names = to_list(table["name"], "method.name")
    if len(names) > 1 and "label" in table:
        raise SpecError(
            f"method.label = {show(table['label'])}: names one method, but name is a list"
        )
    return [{**table, "name": name, SIBLINGS_KEY: names} for name in names]


def has_name(table: Table, name: str) -> bool:
    """Return whether the method table has that name or label."""
    return name in (table["name"], table.get("label"))


def list_names(methods: list[Table]) -> list[str]:
    """List the names and labels of the methods."""
    return sorted(
        {n for table in methods for n in (table["name"], table.get("label")) if isinstance(n, str)}
    )


def spell_rates(table: Table, where: str) -> Table:
    """Return a spec, or a table over it, with the schedules of learning rates in options of their
    own, so that another rate can be laid over.

    Args:
        table: The spec.
        where: What stands before its keys in messages.
    """

    def spell(value: Value, key: str) -> Value:
        if isinstance(value, list):
            return [spell(each, key) for each in value]
        if not isinstance(value, dict):
            return value
        name = key.rpartition(".")[-1]
        inside = {each: spell(value[each], f"{key}.{each}") for each in value}
        return split_schedule(inside, key) if name in ("train", "server") else inside

    return {
        key: spell(value, where + key) if key in ("train", "method") else value
        for key, value in table.items()
    }


def lay_options(table: Table, over: Table) -> Table:
    """Lay options over options; of epochs and steps the one given last stays."""
    done = dict(table)
    if sum(key in over for key in EXCLUSIVE) == 1:
        for key in EXCLUSIVE:
            done.pop(key, None)
    return {**done, **over}


def nest_keys(table: Table, where: str) -> Table:
    """Convert quoted dotted keys (`"train.lr" = 0.1`) to nested tables."""
    done: Table = {}
    for key, value in table.items():
        head, dot, rest = key.partition(".")
        if dot:
            value = nest_keys({rest: value}, f"{where}.{head}")
        done[head] = _join(done[head], value, f"{where}.{head}") if head in done else value
    return done


def _join(first: Value, second: Value, where: str) -> Value:
    """Join what two spellings of a key say; raise a SpecError if they differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = first.keys() & second.keys()
        shared = {key: _join(first[key], second[key], f"{where}.{key}") for key in both}
        return first | second | shared
    if first != second:
        raise SpecError(f"{where}: is given twice, as {show(first)} and as {show(second)}")
    return first


def need_table(value: Value, where: str) -> Table:
    """Return the value; raise a SpecError if it is not a table."""
    if not isinstance(value, dict):
        raise SpecError(f"{where} = {show(value)}: must be a table")
    return value
