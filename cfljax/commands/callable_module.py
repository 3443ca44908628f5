"""Packages that are commands and functions at once: `python -m cfljax.sweep` and `cfljax.sweep(...)`."""

from __future__ import annotations

import sys
import types
from typing import Any


class _CallableModule(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from cfljax import api

        return getattr(api, self.__name__.rpartition(".")[2])(*args, **kwargs)


def make_callable(name: str) -> None:
    """Let the module of this name be called like the function of the same name in `cfljax.api`."""
    sys.modules[name].__class__ = _CallableModule
