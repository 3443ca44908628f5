"""Modules that are a command and a function: `python -m cfljax.sweep` and `cfljax.sweep(...)`."""

from __future__ import annotations

import sys
import types


class _CallableModule(types.ModuleType):
    def __call__(self, *args: object, **kwargs: object) -> object:
        from cfljax import api

        return getattr(api, self.__name__.rpartition(".")[2])(*args, **kwargs)


def command_or_function(name: str, command: str) -> None:
    """Make the module `name` what it is imported as: run the command if it is `__main__`, else let it be called like the
    function of `cfljax.api` that has its name."""
    if name == "__main__":
        from cfljax.commands import cli

        cli.run_module(command)
    else:
        sys.modules[name].__class__ = _CallableModule
