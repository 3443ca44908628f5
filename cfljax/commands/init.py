"""The init command: from data to a spec that compares methods on them."""

from __future__ import annotations

import argparse
from pathlib import Path

from cfljax.commands import data, parser_of, read_starter
from cfljax.errors import SpecError
from cfljax.registry.options import Value, show

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
        spec = read_starter("spec.toml") + f'\n[[method]]\nname = "{PLUGIN[:-3]}"  # {PLUGIN}\n'
        spec = spec.replace("seeds =", f'plugins = ["{PLUGIN}"]\nseeds =')
        _write({PLUGIN: read_starter("my_method.txt"), "digits.toml": _filled(spec, DIGITS)})
        print(
            f"next: cfljax run {PLUGIN[:-3]} --plugin {PLUGIN} --set "
            "data.partition=rotated\nthen: cfljax sweep digits.toml"
        )
        return 0
    from cfljax.commands.describe import describe
    from cfljax.commands.samples import names_of
    from cfljax.data import load
    from cfljax.data.given import suggest_table
    from cfljax.data.importing import name_of

    where = Path(flags.source).expanduser()
    if not where.exists() and (
        where.suffix in (".csv", ".npz", ".parquet") or flags.source.endswith("/")
    ):
        raise SpecError(f"{flags.source}: there is no such file or folder")
    name = (flags.name or name_of(where)) if where.exists() else flags.source.replace("/", "-")
    file = Path(f"{name}.toml")
    _check_free(file)
    table = data.import_files(flags) if where.exists() else suggest_table(load(flags.source))
    if (name := str(table["name"])) and names_of(name, flags.dir).tokens is not None:
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
    return 0


def _filled(template: str, table: dict[str, Value]) -> str:
    name = str(table["name"]).replace("/", "-")
    return template.replace("NAME", name).replace("{ DATA", show(table).removesuffix(" }"))


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
