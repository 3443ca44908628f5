"""From a spec and the tables that change it to one tidy spec: `[[include]]`, `[size.NAME]` and `--set` follow the same rules.

- A `data` or `model` table with a name replaces the one before; without, its options are laid over.
- `train` and `defaults` are laid over, option by option. Giving one of epochs and steps takes the other away.
- `method = "ifca"` or a list of names selects: tables of that name or label stay as they are, other names are added with
  their defaults. A list with tables replaces all. `method.ifca.clusters` (a table by name or label) changes an option.
- Everything else is replaced. What a method says in a `train` table of its own stands above the common one.
"""

from __future__ import annotations

from cfljax.config.values import items_of
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, Value, show

EITHER = ("epochs", "steps")
DEFAULT_MODEL = "mlp"
SIBLINGS = "\0names"
"""Key of a method table under which `each_name` keeps the list; no spec can have it, as control characters are refused."""
SETTABLE = ("name", "seeds", "data", "model", "train", "method", "defaults", "samples", "search_seed", "search")
TOP = (*SETTABLE, "include", "exclude", "size", "plugins")


def tidy(raw: Table) -> Table:
    """The spec with `data`, `model`, `train` and `method` as lists of tables, names in place of tables written out."""
    for key in raw:
        if key not in TOP:
            raise SpecError(f"{key}: there is no such table or key in a spec" + suggest(key, TOP))
    if "method" not in raw:
        raise SpecError('method: missing; a spec needs a [[method]] table with a name, as in method = "fedavg"')
    if "data" not in raw:
        raise SpecError('data: missing; a spec needs data = { name = "…" }')
    done = dict(raw)
    for key in ("data", "model", "method"):
        if key in raw:
            done[key] = tables(raw[key], key)
    done.setdefault("model", [{"name": DEFAULT_MODEL}])
    done["train"] = tables(raw.get("train", {}), "train", named=False)
    return done


def tables(value: Value, where: str, named: bool = True) -> list[Table]:
    """A list of tables from one table or a list of them. Where tables have names, a name stands for a table with it alone."""
    found: list[Table] = []
    for item in items_of(value, where):
        if isinstance(item, str) and named:
            item = {"name": item}
        if not isinstance(item, dict):
            raise SpecError(f"{where} = {show(item)}: must be a table" + (" or a name" if named else ""))
        if named and "name" not in item:
            raise SpecError(f"{where}.name: missing")
        found += each_name(item) if where.endswith("method") else [dict(item)]
    return found


def lay(base: Table, over: Table, where: str) -> Table:
    """The tidy spec with a table laid over it."""
    done = dict(base)
    for key, value in undotted(over, where).items():
        if key not in SETTABLE:
            raise SpecError(f"{where}.{key}: there is no such table or key here" + suggest(key, SETTABLE))
        at = f"{where}.{key}"
        if key == "method":
            done[key] = lay_methods(base["method"], value, at)
        elif key in ("data", "model", "train") and isinstance(value, dict) and "name" not in value:
            done[key] = [options_over(table, value) for table in base[key]]
        elif key in ("data", "model", "train"):
            done[key] = tables(value, at, named=key != "train")
        elif key in ("defaults", "search"):
            done[key] = {**need_table(base.get(key, {}), key), **need_table(value, at)}
        else:
            done[key] = value
    return done


def lay_methods(methods: list[Table], value: Value, where: str) -> list[Table]:
    """Methods selected by name, replaced by tables, or changed by a table of tables."""
    if isinstance(value, dict) and "name" not in value:
        for name, options in value.items():
            methods = change_method(methods, name, need_table(options, f"{where}.{name}"), where)
        return methods
    items = items_of(value, where)
    if any(isinstance(item, dict) for item in items):
        return tables(value, where)
    chosen: list[Table] = []
    for item in items:
        if not isinstance(item, str):
            raise SpecError(f"{where} = {show(item)}: must be a method's name or table")
        found = [table for table in methods if called(table, item)] or [{"name": item}]
        chosen += [table for table in found if table not in chosen]  # ["ifca, lr 1.0", "ifca"]: the name stands for all of them
    return chosen


def change_method(methods: list[Table], name: str, options: Table, where: str) -> list[Table]:
    """The methods with options laid over those of that name or label."""
    if not any(called(table, name) for table in methods):
        raise SpecError(f"{where}.{name}: the spec has no such method" + suggest(name, names_of(methods)))

    def changed(table: Table) -> Table:
        if "train" not in options:
            return {**table, **options}
        train = need_table(table.get("train", {}), f"method.{name}.train")
        return {**table, **options, "train": options_over(train, need_table(options["train"], f"{where}.{name}.train"))}

    return [changed(table) if called(table, name) else table for table in methods]


def each_name(table: Table) -> list[Table]:
    """A method table for a list of names as one table per name. Each keeps the list; options count for methods that have them."""
    if not isinstance(table["name"], list):
        return [table]
    names = items_of(table["name"], "method.name")
    if len(names) > 1 and "label" in table:
        raise SpecError(f"method.label = {show(table['label'])}: names one method, but name is a list")
    return [{**table, "name": name, SIBLINGS: names} for name in names]


def called(table: Table, name: str) -> bool:
    """Whether the method table has that name or label."""
    return name in (table["name"], table.get("label"))


def names_of(methods: list[Table]) -> list[str]:
    """Names and labels of the methods."""
    return sorted({n for table in methods for n in (table["name"], table.get("label")) if isinstance(n, str)})


def options_over(table: Table, over: Table) -> Table:
    """Options laid over options; of epochs and steps the one given last stays."""
    done = dict(table)
    if sum(key in over for key in EITHER) == 1:
        for key in EITHER:
            done.pop(key, None)
    return {**done, **over}


def undotted(table: Table, where: str) -> Table:
    """Quoted dotted keys (`"train.lr" = 0.1`) as nested tables."""
    done: Table = {}
    for key, value in table.items():
        head, dot, rest = key.partition(".")
        if not dot:
            if isinstance(done.get(key), dict) and isinstance(value, dict):
                value = {**done[key], **value}
            done[key] = value
            continue
        inner = done.setdefault(head, {})
        if not isinstance(inner, dict):
            raise SpecError(f"{where}.{key}: {head} is given twice, once as a value")
        done[head] = undotted({**inner, rest: value}, f"{where}.{head}")
    return done


def need_table(value: Value, where: str) -> Table:
    """The value; a SpecError if it is not a table."""
    if not isinstance(value, dict):
        raise SpecError(f"{where} = {show(value)}: must be a table")
    return value
