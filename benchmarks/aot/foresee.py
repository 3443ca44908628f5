"""What `--dry-run --target` says now of the programs of a kept file: nothing is compiled, so no compiler is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfljax.devices.chips import machine_of

from benchmarks.aot.measure import runs_of
from benchmarks.aot.targets import Target
from cfljax.devices.mesh import Shape
from cfljax.experiment import assemble, needs
from cfljax.experiment.batching import batches


def foreseen(row: dict[str, Any], folder: Path) -> int:
    """Bytes of a device's memory that the batch of this row takes, by `experiment.needs`. `folder`: for stand-ins of data."""
    spec, name = "total_s" in row, row["workload"]
    method = row["method"] if spec or name == "quickstart" else None
    target = target_without_compiler(row["target"])
    runs = runs_of(f"experiments/{name}.toml" if spec else name, method, target, folder, row.get("plan", "xla"))
    (batch,) = batches(runs[: row["runs"]], row["runs"])
    federation = assemble.host_federation(batch.first)
    return needs.bytes_of(batch, federation, assemble.model_of(batch.first, federation), target.machine)


def target_without_compiler(name: str) -> Target:
    """The chip or the grid of chips of this name."""
    machine = machine_of(name)
    mesh = Shape(2, machine.devices // 2) if machine.devices > 1 else None
    return Target(name, name.partition(":")[0], machine_of(name, mesh), ())


def anew(rows: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The rows with the foreseen bytes of now."""
    return [row if "error" in row else row | {"predicted_bytes": foreseen(row, folder)} for row in rows]
