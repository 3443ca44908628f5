"""Compiles the programs of cfljax for accelerators that are not there: how many kernels a local step has, which loops return to
the host, the exchanges between devices, and memory.

    python -m benchmarks.aot --targets h200,v5e,v5e:2x2 --workloads W1,quickstart --json FILE

The compilers are packages of their own: see benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ALL = ("W1", "W2", "W3", "W4", "W5", "quickstart")


def methods() -> list[str]:
    """Of the quickstart, in its order."""
    import tomllib

    from cfljax.api import QUICKSTART

    return [each["name"] for each in tomllib.loads(Path(QUICKSTART).read_text(encoding="utf-8"))["method"]]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.aot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="h200,v5e", help="a100, h100, h200, v5e, v5p, or TPUs with a grid such as v5e:2x4")
    parser.add_argument("--workloads", default="W1,quickstart", help=", ".join(ALL))
    parser.add_argument("--methods", default="", help="of the quickstart; left out: all of its own")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args(arguments)
    if wrong := [name for name in given.workloads.split(",") if name not in ALL]:
        parser.error(f"--workloads {wrong[0]}: there are {', '.join(ALL)}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the compilers are asked for by name; nothing runs on their devices
    return 1 if any("error" in row for row in compile_all(given)) else 0


def compile_all(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows that the flags ask for; each is printed in short when it is there."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # so that compiling is timed
    from benchmarks.aot.measure import measure
    from benchmarks.aot.targets import target_of

    rows = []
    with tempfile.TemporaryDirectory(prefix="cfljax-aot-") as folder:
        for target in map(target_of, given.targets.split(",")):
            for workload in given.workloads.split(","):
                own = (given.methods.split(",") if given.methods else methods()) if workload == "quickstart" else [None]
                for method in own:
                    rows.append(measure(workload, method, target, Path(folder)))
                    row = rows[-1]
                    figures = {name: row[name] for name in ("compile_s", "launches_per_step", "needed_bytes") if name in row}
                    print(f"{workload} {row['method']} {target.name}: {row.get('error') or figures}", flush=True)
                    if given.json is not None:
                        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
                    jax.clear_caches()
    return rows


if __name__ == "__main__":
    sys.exit(main())
