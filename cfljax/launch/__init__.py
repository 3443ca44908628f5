"""Carrying out batches: here, or elsewhere.

A launcher is a function (spec, store, options, workers, arguments) -> Outcome: it lays down the plan, has every batch that is
not done computed, and keeps the units; `arguments` is the command line that a process of its own would need. Its own options
are in `options.launcher`.
"""

from collections.abc import Callable

from cfljax.registry import Registry

LAUNCHERS: Registry[Callable[..., object]] = Registry(
    "launcher", {"local": "cfljax.launch.workers:LOCAL", "ray": "cfljax.launch.ray_cluster:RAY"}
)
