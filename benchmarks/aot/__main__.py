"""Compiles the programs of cfljax for accelerators that are not there: how many kernels a local step has, which loops return to
the host, the exchanges between devices, memory, and seconds per round as predicted from these.

    python -m benchmarks.aot --targets h200,v5e,v5e:2x2 --workloads W1,quickstart --json FILE
    python -m benchmarks.aot --workloads experiments/texts.toml         # a spec, all of its methods and seeds
    python -m benchmarks.aot --show FILE            # the table of an earlier file
    python -m benchmarks.aot --foresee FILE         # its column "foreseen" anew, as --dry-run says now; nothing is compiled

The compilers are packages of their own: see benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12")
_FORMS = ("native", "patches", "windows")
MODELS = (*(f"{name}-{form}" for name in ("resnet20", "mobilenet_v2") for form in _FORMS), "transformer")
"""Models of today, in all forms of convolution: a round of 20 clients of 250 samples at batch 50, as in `benchmarks.models`."""
ALL = ("W1", "W2", "W3", "W4", "sweep", "quickstart")
MORE = ("W5", *MODELS)
"""Workloads that take minutes to compile, and are so only where they are named."""


def versions() -> dict[str, str]:
    """Of the compilers."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def methods() -> list[str]:
    """Of the quickstart, in its order."""
    import tomllib

    from cfljax.api import QUICKSTART

    return [each["name"] for each in tomllib.loads(Path(QUICKSTART).read_text(encoding="utf-8"))["method"]]


def chosen(named: str, own: list[str]) -> list[str]:
    """The methods that `--methods` names: these, or all; those of the workload itself where it names none."""
    from cfljax.methods import METHODS

    if named == "all":
        return own + sorted(set(METHODS) - set(own))
    return named.split(",") if named else own


def is_spec(workload: str) -> bool:
    """Whether the workload is a spec in a file."""
    return workload.endswith(".toml") and Path(workload).is_file()


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["workload"], row["method"], row["target"], row.get("plan", "xla")


def write(file: Path | None, rows: list[dict[str, Any]]) -> None:
    """The file with these rows in place of those that it has of the same workload, method and target."""
    if file is None:
        return
    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []
    new = {key(row) for row in rows}
    kept = [row for row in before if key(row) not in new] + rows
    table = {"date": datetime.date.today().isoformat(), "versions": versions(), "rows": kept}
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.aot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="h200,v5e", help="a100, h100, h200, v5e, v5p, or TPUs with a grid such as v5e:2x4")
    parser.add_argument("--workloads", default=",".join(ALL), help=f"{', '.join((*ALL, *MORE))}, or specs, SPEC.toml")
    parser.add_argument("--methods", default="", help="of the quickstart or of specs: some, or all; left out: their own")
    parser.add_argument(
        "--kernels", default="auto", help="auto (one kernel where that is predicted to be faster), pallas, xla, or several"
    )
    parser.add_argument("--json", type=Path, help="rows are added to this file, in place of those of the same name")
    parser.add_argument("--show", type=Path, help="print the table of this file; nothing is compiled")
    parser.add_argument("--foresee", type=Path, help="write what --dry-run foresees now into this file; nothing is compiled")
    given = parser.parse_args(arguments)
    from benchmarks.aot.table import shown

    if given.show is not None:
        print(shown(json.loads(given.show.read_text(encoding="utf-8"))["rows"]))
        return 0
    if given.foresee is not None:
        print(shown(foresee(given.foresee)))
        return 0
    wrong = [name for name in given.workloads.split(",") if name not in (*ALL, *MORE) and not is_spec(name)]
    if wrong:
        parser.error(f"--workloads {wrong[0]}: there are {', '.join((*ALL, *MORE))}, and specs, SPEC.toml")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the compilers are asked for by name; nothing runs on their devices
    print(shown(compile_all(given)))
    return 0


def foresee(file: Path) -> list[dict[str, Any]]:
    """The rows of the file, with what is foreseen now."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from benchmarks.aot.foresee import anew

    kept = json.loads(file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="cfljax-aot-") as folder:
        kept["rows"] = anew(kept["rows"], Path(folder))
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    rows: list[dict[str, Any]] = kept["rows"]
    return rows


def compile_all(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows that the flags ask for; each is written when it is there."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # so that compiling is timed
    from benchmarks.aot.measure import measure, methods_of
    from benchmarks.aot.targets import target_of

    rows = []
    with tempfile.TemporaryDirectory(prefix="cfljax-aot-") as folder:
        for target in map(target_of, given.targets.split(",")):
            for workload in given.workloads.split(","):
                own = methods() if workload == "quickstart" else methods_of(workload) if is_spec(workload) else None
                every = [None] if own is None else chosen(given.methods, own)
                for method, kernel in itertools.product(every, given.kernels.split(",")):
                    rows.append(measure(workload, method, target, Path(folder), kernel))
                    line = rows[-1].get("error") or f"{rows[-1]['compile_s']} s"
                    print(f"{' '.join(key(rows[-1]))}: {line}", file=sys.stderr, flush=True)
                    write(given.json, rows)
                    jax.clear_caches()
    return rows


if __name__ == "__main__":
    sys.exit(main())
