"""Stages around the rounds of any method. Each module of this package is one: its function `stage`
returns the stage, or None if a run does not ask for it."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from cfljax.errors import SpecError
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Tree

if TYPE_CHECKING:
    from cfljax.local.solver import Solver
    from cfljax.round.config import MethodConfig


class RunState(NamedTuple):
    """The state of a method with stages around its rounds."""

    # The method's own state
    method: Tree
    # What each stage keeps from round to round; None: nothing
    stages: tuple[Tree, ...]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage around the rounds of a method. Its fields are static; numbers that a grid varies are
    in `hyper`. `own` is what the stage keeps, `state` the state of the method."""

    def init(self, state: Tree, federation: Federation, hyper: Hyper) -> Tree:
        """Return what the stage keeps before the first round."""
        return None

    def before(self, own: Tree, state: Tree, cohort: Cohort, hyper: Hyper) -> tuple[Tree, Cohort]:
        """Return the state and the cohort that the method's round begins with."""
        return state, cohort

    def after(
        self, own: Tree, before: Tree, state: Tree, info: Info, hyper: Hyper
    ) -> tuple[Tree, Tree]:
        """Return what the stage keeps after the round, and the method's state. `before`: the state
        that the round began with."""
        return own, state

    def regroup(self, own: Tree, before: Tree, state: Tree, hyper: Hyper) -> Tree:
        """HOST. Return what the stage keeps after the method has made other clusters. `before`,
        `state`: without and with them."""
        return own


@dataclasses.dataclass(frozen=True)
class ModelStage(Stage):
    """A stage that changes the averaged models f32[K, d] of a method: the field `where` of its
    state, which is `MethodConfig.moved_by_server`. A method without such models is refused."""

    where: str


@dataclasses.dataclass(frozen=True)
class ClientRows(Stage):
    """A stage that keeps a row for each client, f32[C, n]: participants get theirs, and bring a new
    one back."""

    # The name of the rows in `ClientState.rows`
    field = ""
    # The option's dotted name, for errors
    option = ""
    method: str
    solver: Solver

    def before(self, own: Array, state: Tree, cohort: Cohort, hyper: Hyper) -> tuple[Tree, Cohort]:
        """Hand the rows over."""
        rows = cohort.kept.rows | {self.field: own}
        return state, cohort._replace(kept=cohort.kept._replace(rows=rows))

    def after(
        self, own: Array, before: Tree, state: Tree, info: Info, hyper: Hyper
    ) -> tuple[Array, Tree]:
        """Take the new rows back. SpecError if the round has brought none."""
        if (new := info.kept.rows.get(self.field)) is None:
            raise SpecError(
                f"train.{self.option}: method.{self.method} sends no updates of Solver.fit; "
                "leave it out for this method"
            )
        return new, state


def make_stages(name: str, train: Any, options: MethodConfig, solver: Solver) -> tuple[Stage, ...]:
    """Return the stages that the options of a run of the method of this name ask for. SpecError if
    one changes models that the method does not have."""
    made = []
    for found in pkgutil.iter_modules(__path__):
        stage = importlib.import_module(f"{__name__}.{found.name}").stage
        if (each := stage(name, train, options, solver)) is None:
            continue
        if isinstance(each, ModelStage) and not each.where:
            raise SpecError(
                f"train.{found.name} with method.{name}: {options.lacks_models}; "
                "leave it out for this method"
            )
        made.append(each)
    return tuple(made)


def add_stages(method: Method[Any], stages: tuple[Stage, ...]) -> Method[Any]:
    """Return the method with these stages around its rounds. Here alone a method's functions are
    passed on."""
    if not stages:
        return method

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> RunState:
        state = method.init(key, federation, hyper, setup)
        return RunState(state, tuple(stage.init(state, federation, hyper) for stage in stages))

    def round(
        key: Array, state: RunState, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[RunState, Info]:
        before, kept = state.method, []
        for stage, own in zip(stages, state.stages, strict=True):
            before, cohort = stage.before(own, before, cohort, hyper)
        done, info = method.round(key, before, federation, cohort, hyper)
        after = done
        for stage, own in zip(stages, state.stages, strict=True):
            new, after = stage.after(own, before, after, info, hyper)
            kept.append(new)
        if method.after_server_step is not None and after is not done:
            after = method.after_server_step(before, after, federation, hyper)
        return RunState(after, tuple(kept)), info

    def regroup(
        key: Array, state: RunState, federation: Federation, hyper: Hyper, round: int
    ) -> RunState:
        assert method.regroup is not None
        after = method.regroup(key, state.method, federation, hyper, round)
        pairs = zip(stages, state.stages, strict=True)
        return RunState(
            after, tuple(stage.regroup(own, state.method, after, hyper) for stage, own in pairs)
        )

    def follow(state: RunState, federation: Federation) -> RunState:
        assert method.follow is not None
        return state._replace(method=method.follow(state.method, federation))

    def read(function: Callable[..., Any] | None) -> Any:
        return None if function is None else lambda state, *more: function(state.method, *more)

    names = ("models", "score", "extras", "also", "mixture", "adapt", "shares")
    outer = {name: read(getattr(method, name)) for name in names} | {
        "init": init,
        "round": round,
        "after_server_step": None,
    }
    outer |= {f.__name__: f for f in (regroup, follow) if getattr(method, f.__name__) is not None}
    return method._replace(**outer)
