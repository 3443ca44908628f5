"""HOST. The compiled programs of a batch: from the cache folder where another process has traced them before."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from cfljax.devices.compiled import Source, compiled, remembered, shapes
from cfljax.devices.cut import Cut
from cfljax.engine import known, stored
from cfljax.engine.evaluation import Scored, seen_of
from cfljax.engine.groups import Group
from cfljax.engine.pieces import is_cut, rounds_by
from cfljax.engine.program import Report
from cfljax.engine.settings import Assembled, Carry, View
from cfljax.engine.traced import Traced, chooses, trace
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
    """(the programs of a batch whose groups are like this one, seconds of tracing and compiling). A later batch with the same
    names and shapes gets the same programs, without tracing anything."""
    if parts.program_key is None:
        return _compiled(parts, group, federation)
    static = (parts.program_key, parts.model_key, parts.plan, parts.settings.of_programs, chooses(parts), parts.mesh)
    return remembered((*static, shapes((tuple(group), federation))), lambda: _compiled(parts, group, federation))


def _compiled(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    place = stored.place_of(parts, group, federation)
    before = None if place is None else stored.read(place, parts.mesh)
    own, shared = _names_of(parts, group, federation)
    found: dict[str, Tree] = {}

    def sources() -> Iterator[Source]:
        fields = trace(parts, group, federation, place is not None) if before is None else before._asdict().items()
        for name, field in fields:
            found[name], known_as = field, shared if name == "evaluate" else own
            if isinstance(field, Source):
                yield field._replace(name=known_as and (known_as, name))
            elif isinstance(field, Cut):
                yield from field.sources(name, known_as, parts.plan.on_cpu if name == "start" else parts.plan.quick)

    programs, seconds = compiled(sources())
    traced: Traced[Any] = Traced(**found)
    here = iter(programs)
    made: dict[str, Any] = {}
    known.remember(parts, seconds)
    if before is None and place is not None:
        stored.write(place, traced)
    for name, field in found.items():
        if isinstance(field, Source):
            made[name] = next(here)
        elif isinstance(field, Cut):
            made[name] = field.run_by([next(here) for _ in field.pieces])
    rounds = rounds_by(made["rounds"]) if is_cut(parts) else made["rounds"]
    report = (traced.rounds.form if isinstance(traced.rounds, Cut) else made["rounds"].out_info)[1]
    view = made["view"] if traced.pick is None else traced.pick.__call__
    return Programs(made["start"], rounds, view, made["evaluate"], report, traced.models), seconds


def _names_of(parts: Assembled, group: Group, federation: Federation) -> tuple[Hashable, Hashable]:
    """(the name of a batch's own programs, that of its evaluation, which methods share), as in `Source`."""
    settings, own = parts.settings, None
    if parts.program_key is not None:
        own = (parts.program_key, parts.plan, settings.of_programs, shapes((tuple(group), federation)))
    if parts.model_key is None:
        return own, own and (own, chooses(parts))
    return own, (parts.model_key, seen_of(settings), chooses(parts))
