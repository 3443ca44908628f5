"""The options of the launchers. `cfljax sweep` makes its flags of them, so this module imports
nothing that takes time."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from cfljax.errors import SpecError
from cfljax.registry.options import Options, option


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """Options of the launchers that compute each batch in a task."""

    gpus_per_task: float = option(0.0, "GPUs per batch; of Ray also a share of one", low=0)
    cpus_per_task: int | None = option(None, "threads per batch (default: 1)", low=1)
    retries: int = option(3, "restarts of a batch, if its worker dies (3)", low=0)


@dataclasses.dataclass(frozen=True)
class RayOptions(TaskOptions):
    """Options of the launcher `ray`."""

    address: str | None = option(
        None, 'address of a running cluster, or "auto" (default: start Ray here)'
    )


@dataclasses.dataclass(frozen=True)
class SlurmOptions(TaskOptions):
    """Options of the launcher `slurm`."""

    # Each is KEY=VALUE; cluster=local runs the jobs on this machine
    slurm: tuple[str, ...] = option(
        (), "an option of sbatch, as partition=gpu or time=120 (minutes)"
    )

    def check(self, where: str) -> None:
        """Reject what sbatch cannot be given."""
        if self.gpus_per_task % 1:
            raise SpecError(f"{where}.gpus_per_task = {self.gpus_per_task}: must be a whole number")
        if not re.fullmatch("[1-9][0-9]{0,6}", found := str(self.flags()["time"])):
            raise SpecError(f"--slurm time={found}: must be a number of minutes, as in time=120")

    def flags(self) -> dict[str, Any]:
        """Return the options of sbatch; True stands for one without a value."""
        found: dict[str, Any] = {"time": "60", "cluster": "slurm"}
        for text in self.slurm:
            key, equals, value = map(str.strip, text.partition("="))
            key = key.lstrip("-").replace("-", "_")
            if not key.isidentifier() or bool(equals) != bool(value):
                raise SpecError(f"--slurm {text}: must be an option of sbatch, as in partition=gpu")
            found[key] = value or True
        return found


OPTIONS: dict[str, type[Options]] = {"ray": RayOptions, "slurm": SlurmOptions}
"""Launcher -> its options; others have none."""
