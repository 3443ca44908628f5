"""cfljax: clustered federated learning, simulated fast.

`cfljax.run(method="fedgroup", data="digits", rounds=30, seed=0)` is one run,
`cfljax.sweep("spec.toml")` a comparison, and `cfljax.load(DIR)` reads its results. Nothing heavy is
imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.3.0"
__all__ = [
    "CfljaxError",
    "DataError",
    "Result",
    "Results",
    "SpecError",
    "StoreError",
    "__version__",
    "check",
    "import_data",
    "init",
    "load",
    "option",
    "register_compressor",
    "register_data",
    "register_loss",
    "register_method",
    "register_metric",
    "register_model",
    "register_partition",
    "run",
    "sweep",
    "tune",
]

_HOME = {
    "api": ("check", "import_data", "load", "run", "sweep", "tune"),
    "commands.init": ("init",),
    "errors": ("CfljaxError", "DataError", "SpecError", "StoreError"),
    "registry.options": ("option",),
    "config.plugins": (
        "register_compressor",
        "register_data",
        "register_loss",
        "register_method",
        "register_metric",
        "register_model",
        "register_partition",
    ),
    "report.results": ("Results",),
    "results.result": ("Result",),
}

if TYPE_CHECKING:
    from cfljax.api import check, import_data, load, run, sweep, tune
    from cfljax.commands.init import init
    from cfljax.config.plugins import (
        register_compressor,
        register_data,
        register_loss,
        register_method,
        register_metric,
        register_model,
        register_partition,
    )
    from cfljax.errors import CfljaxError, DataError, SpecError, StoreError
    from cfljax.registry.options import option
    from cfljax.report.results import Results
    from cfljax.results.result import Result


def __getattr__(name: str) -> object:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"cfljax.{module}"), name)
    raise AttributeError(f"module 'cfljax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
