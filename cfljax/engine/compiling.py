"""HOST. The compiled programs of a batch: from the cache folder where another process has traced them before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cfljax.devices.compiled import Source, compiled, remembered, shapes
from cfljax.devices.cut import Cut
from cfljax.engine import known, stored
from cfljax.engine.evaluation import Scored
from cfljax.engine.groups import Group
from cfljax.engine.pieces import is_cut, rounds_by
from cfljax.engine.program import Report
from cfljax.engine.settings import Assembled, Carry, View
from cfljax.engine.traced import Traced, chooses, names_of, trace
from cfljax.types import Federation, Tree


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
    before = None if place is None else stored.read(place, parts.mesh)
    own, shared = names_of(parts, group, federation)
    found: dict[str, Tree] = {}

    def sources() -> Iterator[Source]:
        for name, field in trace(parts, group, federation) if before is None else before._asdict().items():
            found[name] = field
            if isinstance(field, Cut):
                quick = parts.plan.on_cpu if name == "start" else parts.plan.quick
                yield from field.sources(name, shared if name == "evaluate" else own, quick)

    programs, seconds = compiled(sources())
    traced, here = Traced(**found), iter(programs)
    known.remember(parts, seconds)
    if before is None and place is not None:
        stored.write(place, traced)
    made = {name: of.run_by([next(here) for _ in of.pieces]) for name, of in found.items() if isinstance(of, Cut)}
    rounds = rounds_by(made["rounds"]) if is_cut(parts) else made["rounds"]
    view = made["view"] if traced.pick is None else traced.pick.__call__
    return Programs(made["start"], rounds, view, made["evaluate"], traced.rounds.form[1], traced.models), seconds
