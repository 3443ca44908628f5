"""HOST. The compiled programs of a batch: from the cache folder where another process has traced them before."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from cfljax.devices.compiled import compiled, remembered, shapes
from cfljax.devices.cut import Cut
from cfljax.engine import known, stored
from cfljax.engine.evaluation import Scored
from cfljax.engine.groups import Group
from cfljax.engine.pieces import is_cut, rounds_by
from cfljax.engine.program import Report
from cfljax.engine.settings import Assembled, Carry, View
from cfljax.engine.traced import chooses, names_of, trace
from cfljax.types import Federation


class Programs(NamedTuple):
    """The compiled programs of a batch, for one group of its runs."""

    start: Callable[..., Carry]
    rounds: Callable[..., tuple[Carry, Report]]
    view: Callable[..., View]
    evaluate: Callable[..., Scored]
    report: Report
    """The shapes of a round's report."""
    models: int
    """K: how many models clients are scored by."""


def compile_programs(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    """(the programs of a batch whose groups are like this one, seconds of compiling). A later batch with the same names and shapes
    gets the same programs, without tracing anything."""
    if parts.program_key is None:
        return _compiled(parts, group, federation)
    static = (parts.program_key, parts.model_key, parts.plan, parts.settings.of_programs, chooses(parts), parts.mesh)
    return remembered((*static, shapes((tuple(group), federation))), lambda: _compiled(parts, group, federation))


def _compiled(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    place = stored.place_of(parts, group, federation)
    traced = None if place is None else stored.read(place, parts.mesh)
    if traced is None:
        traced = trace(parts, group, federation)
        if place is not None:
            stored.write(place, traced)
    own, shared = names_of(parts, group, federation)
    quick = parts.plan.quick
    functions: list[tuple[str, Cut, Hashable, bool]] = [
        ("rounds", traced.rounds, own, quick),
        ("evaluate", traced.evaluate, shared, quick),
        ("start", traced.start, own, parts.plan.on_cpu),
    ]
    if traced.view is not None:
        functions.append(("view", traced.view, own, quick))
    programs, seconds = compiled([source for name, of, known_as, fast in functions for source in of.sources(name, known_as, fast)])
    known.remember(parts, seconds)
    here = iter(programs)
    rounds, evaluate, start, *view = (of.run_by([next(here) for _ in of.pieces]) for _, of, *_ in functions)
    look = view[0] if traced.pick is None else traced.pick.__call__
    advance = rounds_by(rounds) if is_cut(parts) else rounds
    return Programs(start, advance, look, evaluate, traced.rounds.form[1], traced.models), seconds
