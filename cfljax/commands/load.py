"""The load command: a results folder as a table, or as files for other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cfljax.commands import add_plugin_flag, load_plugins, parser_of
from cfljax.registry.options import Table

if TYPE_CHECKING:
    from cfljax.results.result import Results


def parser(prog: str = "python -m cfljax.load") -> argparse.ArgumentParser:
    """Make the parser."""
    flags = parser_of("load", prog)
    flags.add_argument("folder", metavar="DIR", help="a results folder")
    flags.add_argument(
        "--status", action="store_true", help="print how many runs are done, failed and left"
    )
    flags.add_argument(
        "--verify", action="store_true", help="check every file against its checksum"
    )
    flags.add_argument("--csv", metavar="FILE", help="write a row per run")
    flags.add_argument("--parquet", metavar="FILE", help="the same as Parquet")
    flags.add_argument(
        "--history", metavar="FILE", help="write a row per run and evaluation, as CSV"
    )
    flags.add_argument(
        "--export",
        metavar="OUT",
        help="write a small copy: no models, last labels, short diagnostics",
    )
    flags.add_argument(
        "--clusters", metavar="OUT", help="write one run's clusters and models (--keep models)"
    )
    flags.add_argument("--run", metavar="ID", help="--clusters: the run, if the folder has several")
    layout = "of --clusters: arrays as in JAX, or as in PyTorch (jax)"
    flags.add_argument("--layout", choices=("jax", "torch"), default="jax", help=layout)
    flags.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="SINK",
        help="log to jsonl, tensorboard or wandb",
    )
    add_plugin_flag(flags, "allow this plug-in of the runs, which --clusters needs")
    return flags


def run(flags: argparse.Namespace) -> int:
    """Do what the flags say."""
    from cfljax import store
    from cfljax.results.frames import to_csv
    from cfljax.results.result import Results
    from cfljax.store.atomic import write_bytes
    from cfljax.store.errata import describe_errata

    if flags.status:
        print(store.status(flags.folder))
        return 0
    if flags.verify:
        damaged = store.verify(flags.folder)
        print(
            "\n".join(f"{name}: {problem}" for name, problem in damaged.items())
            or "all files match their checksums"
        )
        return 3 if damaged else 0
    load_plugins(flags)
    results = Results(flags.folder)
    if line := describe_errata(flags.folder, results.records.values()):
        print(f"cfljax: {line}", file=sys.stderr)
    if flags.export:
        from cfljax.store.compact import compact

        print(
            f"{compact(flags.folder, flags.export, results.records)} runs copied to {flags.export}"
        )
        return 0
    if flags.clusters:
        return _clusters(flags, results)
    if flags.log:
        return _log(flags, results.named)
    if flags.csv:
        results.to_csv(flags.csv)
    if flags.parquet:
        results.to_parquet(flags.parquet)
    if flags.history:
        write_bytes(Path(flags.history), to_csv(results.history()).encode())
    for written in filter(None, (flags.csv, flags.parquet, flags.history)):
        print(f"written: {written}")
    if not (flags.csv or flags.parquet or flags.history):
        print(results.to_pandas().to_string(index=False, float_format=lambda v: f"{v:.4f}"))
    return 0


def _clusters(flags: argparse.Namespace, results: Results) -> int:
    """Export the models of the clusters of a run."""
    from cfljax.errors import SpecError

    if flags.run is None and len(results) != 1:
        which = f"choose one by --run ID, from the column run of `cfljax load {flags.folder}`"
        raise SpecError(
            f"--clusters {flags.clusters}: {flags.folder} has {len(results)} runs; {which}"
        )
    folder = results[flags.run or next(iter(results.records))].export_clusters(
        flags.clusters, flags.layout
    )
    print(
        f"{folder / 'clusters.json'}, and the models of {len(list(folder.glob('*.npz')))} clusters"
    )
    return 0


def _log(flags: argparse.Namespace, named: dict[str, Table]) -> int:
    """Send the runs to the sinks of `--log`, except for those that they have already."""
    from pathlib import Path

    from cfljax.sinks.feed import Feed
    from cfljax.store import Store

    plan = Store(flags.folder, read_only=True).read_plan() or {}
    sweep = {
        "name": plan.get("name") or Path(flags.folder).resolve().name,
        "units": plan.get("units"),
        "named": named,
    }
    feed = Feed(flags.folder, flags.log, sweep, lambda line: print(line, file=sys.stderr))
    count = feed.feed()
    feed.close()
    print(f"{count} run{'' if count == 1 else 's'} logged in {Path(flags.folder) / 'logs'}")
    return 0 if len(feed.sinks) == len(set(flags.log)) else 1
