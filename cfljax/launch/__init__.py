"""Carrying out the batches of a sweep: on this machine, or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cfljax.registry import Registry

if TYPE_CHECKING:
    from cfljax.config import Spec
    from cfljax.launch.sweep import Outcome, SweepOptions
    from cfljax.store import Store


class Launcher(Protocol):
    """What carries a sweep out."""

    def __call__(
        self,
        spec: Spec,
        store: Store,
        options: SweepOptions,
        workers: int | None,
        arguments: list[str],
        /,
    ) -> Outcome:
        """Settle the plan file, have every batch that is not done computed, and keep the units. The
        options of the launcher are in `options.launcher`. `workers`: processes, or tasks, at a
        time; None: as many as suit. `arguments`: the command line that another process needs to
        work on the same sweep."""


LAUNCHERS: Registry[Launcher] = Registry(
    "launcher",
    {
        "local": "cfljax.launch.workers:carry_out_by_processes",
        "ray": "cfljax.launch.ray_cluster:RAY",
        "slurm": "cfljax.launch.slurm:SLURM",
    },
)
