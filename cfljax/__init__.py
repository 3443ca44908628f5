"""cfljax: clustered federated learning, simulated fast.

`cfljax.run(method="fedgroup", data="digits", rounds=30, seed=0)` is one run, `cfljax.sweep("spec.toml")` a comparison, and
`cfljax.load(DIR)` reads its results. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load", "run", "sweep"]

if TYPE_CHECKING:
    from cfljax.api import load, run, sweep


def __getattr__(name: str) -> Any:
    if name in ("load", "run", "sweep"):
        from cfljax import api

        return getattr(api, name)
    raise AttributeError(f"module 'cfljax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
