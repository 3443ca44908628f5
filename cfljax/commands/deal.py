"""Write who holds which rows as a file, for any data table of a spec: `cfljax data deal`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cfljax.config import read_spec
from cfljax.config.data import Data
from cfljax.config.frozen import to_essential
from cfljax.errors import SpecError
from cfljax.federation.from_file import FromFile
from cfljax.federation.row_files import write_rows
from cfljax.registry.options import Table, list_files, show


def deal(spec: str, sets: list[str], plugins: list[str], out: str) -> str:
    """Divide the data of a spec, write who holds which rows, and return what to say: the `data`
    table that reads the file.

    Args:
      spec: The file of the spec.
      sets: `--set` flags, as in a sweep.
      plugins: files of plug-ins.
      out: The file to write, which ends in .json, .csv or .npz.
    """
    config = _read_data(spec, sets, plugins)
    source = config.load()
    parts = config.divide(source)
    write_rows(Path(out).expanduser(), parts, source)
    clients = len(parts.train)
    rows = sum(map(len, parts.train))
    said = f"{out}: {clients} clients with {rows} training rows of {source.name}"
    return f"{said}\nuse it with: data = {show(_make_table(config, out))}"


def _read_data(spec: str, sets: list[str], plugins: list[str]) -> Data:
    """Return the one way in which the runs of a spec divide their data."""
    found = {
        data.identity: data
        for run in read_spec(spec, sets, plugins).runs()
        for data in (run.data.with_seed(run.seed),)
    }
    if len(found) != 1:
        raise SpecError(
            f"{spec}: has {len(found)} ways to divide data; choose one, as with --set "
            "data.partition=iid or --set seeds=0"
        )
    return next(iter(found.values()))


def _make_table(config: Data, out: str) -> Table:
    """Return the `data` table of a spec that divides the data as the file says."""
    from_file = dataclasses.replace(
        config,
        partition="file",
        parts=FromFile(file=out),
        views=(),
        view_shares=(),
        views_draw="turns",
        true_groups=None,
    )
    files = {name: getattr(config.source, name) for name in list_files(config.source)}
    return from_file.to_table(to_essential) | files | {"file": out}
