"""The init command: from data to a spec that compares methods on them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cfljax.commands import data, parser_of, read_starter
from cfljax.errors import SpecError
from cfljax.registry.options import Value, is_range, show

if TYPE_CHECKING:
    from cfljax.api import Data

PLUGIN = "my_method.py"
DIGITS = {"name": "digits", "partition": "rotated", "groups": 4, "clients": 20, "normalise": "unit"}


def parser(prog: str = "python -m cfljax.init") -> argparse.ArgumentParser:
    """Return the flags: the ones of `data import`, with a source that may be left out."""
    flags = parser_of("init", prog)
    data.add_import_flags(flags, nargs="?")
    return flags


def run(flags: argparse.Namespace) -> int:
    """Import the data if they are files, write the spec, and say what is next."""
    if flags.source is None:
        write_first_spec()
        return 0
    from cfljax.data import load
    from cfljax.data.given import suggest_table
    from cfljax.data.importing import name_of

    where = Path(flags.source).expanduser()
    check_source(where, flags.source)
    file = name_spec(flags.name or name_of(where) if where.exists() else flags.source)
    table = data.import_files(flags) if where.exists() else suggest_table(load(flags.source))
    write_spec(file, table, flags.dir)
    return 0


def init(
    source: Data | os.PathLike[str] | None = None,
    name: str | None = None,
    *,
    kind: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    replace: bool = False,
    **columns: Value,
) -> Path:
    """Write a spec that compares 17 methods on your data, as `cfljax init` does, and return its
    path: `cfljax.sweep(cfljax.init("visits.csv", label="sick", user="hospital"))`. The data are
    imported and described. Without a source the spec is about the digits, with a plug-in for a
    method of your own.

    Args:
        source, name, kind, folder, replace, columns: as for `import_data`; `source` may be the name
            of a data set that is there already, too."""
    from cfljax.api import import_data
    from cfljax.data import given, importing, load

    if source is None:
        return write_first_spec()
    where = Path(source).expanduser() if isinstance(source, str | os.PathLike) else None
    if where is not None and not where.exists() and not importing.is_hub_name(str(source)):
        check_source(where, str(source))
        for key in columns:
            raise SpecError(f"{key}: is for an import, and {source} is a data set; leave it out")
        file = name_spec(name or str(source))
        table = given.suggest_table(load(str(source)))
    else:
        held = source.get("name") if isinstance(source, dict) else None
        named = name or held or (where and importing.name_of(where))
        file = name_spec(given.need_name(named))
        table = import_data(source, name, kind=kind, folder=folder, replace=replace, **columns)
    write_spec(file, table, None if folder is None else os.fspath(folder))
    return file


def write_first_spec() -> Path:
    """Write a spec on the digits with a plug-in for a method of one's own, and return its path."""
    spec = read_starter("spec.toml") + f'\n[[method]]\nname = "{PLUGIN[:-3]}"  # {PLUGIN}\n'
    spec = spec.replace("seeds =", f'plugins = ["{PLUGIN}"]\nseeds =')
    _write({PLUGIN: read_starter("my_method.txt"), "digits.toml": _filled(spec, DIGITS)})
    print(
        f"next: cfljax run {PLUGIN[:-3]} --plugin {PLUGIN} --set "
        "data.partition=rotated\nthen: cfljax sweep digits.toml"
    )
    return Path("digits.toml")


def check_source(where: Path, source: str) -> None:
    """Raise a SpecError if a path is meant, and there is nothing. Another word is the name of a
    data set."""
    if not where.exists() and (
        where.suffix in (".csv", ".npz", ".parquet") or source.endswith("/")
    ):
        raise SpecError(f"{source}: there is no such file or folder")


def name_spec(name: str) -> Path:
    """Return the file of the spec on these data; a SpecError if it exists."""
    file = Path(f"{name.replace('/', '-')}.toml")
    _check_free(file)
    return file


def write_spec(file: Path, table: dict[str, Value], folder: str | None) -> None:
    """Describe the data, write the spec that compares methods on them, and estimate its time.
    `table`: of the spec's data; `folder`: the one that they were imported to, if it was given."""
    from cfljax.commands.describe import describe
    from cfljax.commands.samples import names_of

    name = str(table["name"])
    if names_of(name, folder).tokens is not None:
        raise SpecError(
            f"{name}: its samples are texts, which need another model; write the spec "
            "yourself (docs/data.md)"
        )
    print(
        describe(
            name, [f"data.{key}={show(value)}" for key, value in table.items() if key != "name"]
        )
    )
    _write(
        {
            str(file): _filled(
                read_starter("spec.toml"), {**table, "normalise": table.get("normalise", "unit")}
            )
        }
    )
    print(f"{_time(file)}\nnext: cfljax sweep {file}")


def _filled(template: str, table: dict[str, Value]) -> str:
    name = str(table["name"]).replace("/", "-")
    filled = template.replace("NAME", name).replace("{ DATA", show(table).removesuffix(" }"))
    return add_ranges(filled)


def add_ranges(spec: str) -> str:
    """Add to the text of a spec, as comments, what `cfljax tune` tries of training and of each
    method."""
    from cfljax.config.trials import list_searched
    from cfljax.methods import METHODS

    lines = []
    for line in spec.splitlines():
        lines.append(line)
        method = line.removeprefix("name = ").split("#")[0].strip().strip('"')
        if line.startswith("train = "):
            lr = list_searched("fedavg")["train.lr"]
            lines.append(f"# cfljax tune tries lr = {write_search(lr)}")
        elif line.startswith("name = ") and lines[-2:-1] == ["[[method]]"] and method in METHODS:
            lines += [
                f"# cfljax tune tries {option.partition('.')[2]} = {write_search(search)}"
                for option, search in list_searched(method).items()
                if option != "train.lr"
            ]
    return "\n".join([*lines, ""])


def write_search(search: tuple[Value, ...]) -> str:
    """Write what is worth trying as a spec would."""
    if not is_range(search):
        return show(search)
    low, high, kind = search
    return f'"{kind[:3]}({low:g}, {high:g})"'


def _check_free(file: Path) -> None:
    if file.exists():
        raise SpecError(f"{file}: exists already; rename or remove it")


def _write(texts: dict[str, str]) -> None:
    """Write new files; a SpecError if one exists."""
    from cfljax.store.atomic import store_errors

    for name in texts:
        _check_free(Path(name))
    for name, text in texts.items():
        with store_errors(Path(name)), Path(name).open("x", encoding="utf-8") as file:
            file.write(text)
        print(f"written: {name}")


def _time(file: Path) -> str:
    """Estimate the time that the spec will take here. If nothing like it has run yet, two rounds
    are tried first."""
    from cfljax.api import one_run
    from cfljax.commands.preview import time_of
    from cfljax.config import read_spec

    if "unknown" in (said := time_of(spec := read_spec(file))):
        print("trying two rounds …", flush=True)
        one_run(file, ["method=fedavg", "seeds=0:1", "train.rounds=2"])
        said = time_of(spec)
    return said
