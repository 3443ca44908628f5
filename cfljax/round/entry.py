"""From a recipe to what the registry of methods holds."""

from __future__ import annotations

from typing import Any, Protocol

from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.types import Method, Model


class Recipe(Protocol):
    """An instance of a subclass of `Clustered`, `Soft` or `AtHome`."""

    def method(self, name: str, model: Model, solver: Solver) -> Method[Any]:
        """The functions of the method of this name."""


def entry(name: str, recipe: type[Any]) -> Entry[Any]:
    """The entry of a method that is written as a recipe: the class is its options, too."""

    def make(config: Recipe, model: Model, solver: Solver) -> Method[Any]:
        return config.method(name, model, solver)

    make.__doc__, make.__module__ = recipe.__doc__, recipe.__module__
    make.__wrapped__ = recipe  # type: ignore[attr-defined]  # where its source is
    return Entry(recipe, make)
