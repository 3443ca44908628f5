"""From a recipe to the functions of a method, and to what the registry of methods holds."""

from __future__ import annotations

from typing import Any

from cfljax.local.parts import divide_model
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.round import at_home, control, peers, soft
from cfljax.round.clustered import Clustered
from cfljax.round.clusters import ClusteredMethod
from cfljax.round.parts import PartlyShared
from cfljax.types import Method, Model

Recipe = Clustered | soft.Soft | at_home.AtHome | peers.Peers | control.Controlled


def method_of(name: str, config: Recipe, model: Model, solver: Solver) -> Method[Any]:
    """Return the functions of the method of this name."""
    if isinstance(config, soft.Soft):
        return soft.method_of(name, config, model, solver)
    if isinstance(config, at_home.AtHome):
        return at_home.method_of(config, model, solver)
    if isinstance(config, control.Controlled):
        return control.method_of(config, model, solver)
    if isinstance(config, peers.Peers):
        return peers.method_of(config, model, solver)
    if config.parts:
        apart = bool(config.head_epochs)
        solver = solver.with_parts(divide_model(model, config.parts, apart))
    parts = solver.parts
    kind = (
        ClusteredMethod
        if parts is None or not (parts.kept.size or parts.shared.size)
        else PartlyShared
    )
    return kind(name, config, model, solver).method()


def entry(name: str, recipe: type[Any]) -> Entry[Any]:
    """Return the entry of a method that is written as a recipe: the class is its options, too."""

    def make(config: Recipe, model: Model, solver: Solver) -> Method[Any]:
        return method_of(name, config, model, solver)

    make.__doc__, make.__module__ = recipe.__doc__, recipe.__module__
    make.__wrapped__ = recipe  # type: ignore[attr-defined]  # where its source is
    return Entry(recipe, make)
