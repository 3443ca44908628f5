"""HOST. The programs of a batch as they are traced, before anything is compiled: in one piece each or, in a batch that trains for
less time than it takes to compile, cut at the programs that methods share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from cfljax.devices import portable
from cfljax.devices.compiled import Source, remembered, shapes
from cfljax.devices.cut import Cut, in_one_piece
from cfljax.devices.spread import everywhere
from cfljax.engine.evaluation import as_evaluated, make_evaluation, seen_of, some_never_train
from cfljax.engine.groups import Group, for_each_run, forms, of_one
from cfljax.engine.pieces import check_types, cut_of_runs, is_cut
from cfljax.engine.program import Program, make_program, over_runs
from cfljax.engine.settings import Assembled, Carry, View
from cfljax.lazy import core, jax
from cfljax.types import Federation, Tree

Of = TypeVar("Of", bound=Cut | Source)


class Pick(NamedTuple):
    """The view of a method that does nothing but pick arrays: nothing is compiled for it, and no model is copied."""

    places: tuple[int, ...]
    """Which of the arrays that it is given."""
    form: View

    def __call__(self, *args: Tree) -> View:
        """The view, from the arguments of a program of views."""
        leaves = jax.tree.leaves(args)
        chosen: View = jax.tree.unflatten(jax.tree.structure(self.form), [leaves[at] for at in self.places])
        return chosen


class Traced(NamedTuple, Generic[Of]):
    """The programs of a batch. A `Cut` has been traced; a `Source` is traced when it is compiled."""

    rounds: Of
    """Of several rounds; of one where the batch is cut (`pieces.is_cut`)."""
    evaluate: Of
    start: Of
    view: Of | None
    """None: it only picks arrays."""
    pick: Pick | None
    models: int
    """K: how many models clients are scored by."""


def chooses(parts: Assembled) -> bool:
    """Whether there are clients that never train and choose a model, which federations of one shape may differ in."""
    return parts.method.chooses and some_never_train(parts.federation)


def start_form(program: Program, parts: Assembled, group: Group) -> Carry:
    """The shapes of what a run like those of the group carries before the first round."""
    with jax.default_matmul_precision(parts.settings.precision):
        form: Carry = jax.eval_shape(program.start, *of_one(tuple(group)), parts.federation)
    return form


def trace(parts: Assembled, group: Group, federation: Federation, keep: bool) -> Iterator[tuple[str, Tree]]:
    """The fields of `Traced` of a batch whose groups are like this one, by their names: each as soon as it is known, so that a
    program can be compiled while the next one is traced. `keep`: programs get their bytes."""
    yield from (_trace_cut if is_cut(parts) else _trace_whole)(parts, group, federation, keep)


def _trace_whole(parts: Assembled, group: Group, federation: Federation, keep: bool) -> Iterator[tuple[str, Tree]]:
    made = sources_of(parts, group, federation)
    whole = lambda function, source: in_one_piece(source).with_bytes(function, True) if source and keep else source  # noqa: E731
    yield "rounds", whole("rounds", made.rounds)
    yield "evaluate", _evaluation(parts, made.evaluate, keep)
    yield "start", whole("start", made.start)
    yield "view", whole("view", made.view)
    yield from (("pick", made.pick), ("models", made.models))


def _trace_cut(parts: Assembled, group: Group, federation: Federation, keep: bool) -> Iterator[tuple[str, Tree]]:
    program = make_program(parts.method, parts.settings)
    keys, hyper, setup, numbers = (forms(each, None, True) for each in (*group, group.numbers))
    data, scored_on, at = (forms(each, None, False) for each in (federation, as_evaluated(federation), np.int32(0)))
    with_bytes = lambda function, of: of.with_bytes(function, keep) if keep or portable.wanted() else of  # noqa: E731
    start = cut_of_runs(parts, program.start, (keys, hyper, setup, data), 3)
    carry = start.form
    rounds = cut_of_runs(parts, program.advance, (carry, keys, hyper, data, at), 3, len(jax.tree.leaves(carry)))
    check_types(carry, rounds.form[0])
    yield "rounds", with_bytes("rounds", rounds)
    pick, seen = _seen(parts, program, of_one(carry.state), of_one(hyper))
    seen = for_each_run(seen, keys.shape[0])
    evaluate = make_evaluation(parts.model, parts.settings, chooses(parts))
    scoring = Source(evaluate, (seen._replace(shares=None), numbers, scored_on, at), None, None, quick=parts.plan.quick)
    yield "evaluate", _evaluation(parts, scoring, keep)
    yield "start", with_bytes("start", start)
    view = None if pick else cut_of_runs(parts, program.view, (carry.state, hyper, data, at), 2)
    yield "view", view and with_bytes("view", view)
    yield from (("pick", pick), ("models", seen.models.shape[1]))


def _evaluation(parts: Assembled, source: Source, keep: bool) -> Cut | Source:
    """The evaluation. With its bytes (`keep`), it is traced once for all methods that share it."""
    if not keep:
        return source
    name = ("evaluate", parts.model_key, seen_of(parts.settings), chooses(parts), parts.mesh, shapes(source.forms))
    return remembered(name, lambda: (in_one_piece(source).with_bytes("evaluate", True), 0.0))[0]


def sources_of(parts: Assembled, group: Group, federation: Federation) -> Traced[Source]:
    """The programs of a batch whose groups are like this one, each in one piece. Whoever compiles them gives them names."""
    method, settings, mesh, plan = parts.method, parts.settings, parts.mesh, parts.plan
    program = make_program(method, settings)
    evaluate = make_evaluation(parts.model, settings, chooses(parts))
    on_all = lambda tree: forms(tree, mesh, False)  # noqa: E731
    of_runs = lambda tree: forms(tree, mesh, True)  # noqa: E731
    keys, hyper, setup, numbers = (of_runs(each) for each in (*group, group.numbers))
    data, scored_on, at = on_all(federation), on_all(as_evaluated(federation)), on_all(np.int32(0))
    runs, bounds = keys.shape[0], on_all(np.zeros(2, np.int32))
    form = start_form(program, parts, group)
    carry = of_runs(for_each_run(form, runs))
    pick, seen = _seen(parts, program, form.state, of_one(hyper))
    seen = of_runs(for_each_run(seen, runs))
    over = lambda f, mapped: everywhere(over_runs(f, settings, mapped), mesh, mapped)  # noqa: E731
    view = Source(over(program.view, 2), (carry.state, hyper, data, at), None, mesh, quick=plan.quick)
    return Traced(
        Source(over(program.rounds, 3), (carry, keys, hyper, data, bounds), None, mesh, (0,), plan.quick),
        Source(everywhere(evaluate, mesh, 2), (seen._replace(shares=None), numbers, scored_on, at), None, mesh, quick=plan.quick),
        Source(over(program.start, 3), (keys, hyper, setup, data), None, mesh, quick=plan.on_cpu),
        view if pick is None else None,
        pick,
        seen.models.shape[1],
    )


def _seen(parts: Assembled, program: Program, state: Tree, hyper: Tree) -> tuple[Pick | None, View]:
    """(`_picks` of what an evaluation sees of a run, or None where that is kept; its shapes), from those of state and numbers."""
    with jax.default_matmul_precision(parts.settings.precision):
        view = program.view.trace(state, hyper, parts.federation, np.int32(0))
    seen: View = view.out_info
    kept = seen.mixture is not None or seen.shares is not None  # fetched when later rounds have overwritten the state
    return None if kept else _picks(view, len(jax.tree.leaves((state, hyper)))), seen


def _picks(view: jax.stages.Traced, own: int) -> Pick | None:
    """The view, where it does nothing but pick arrays that each run has for itself (the first `own` of its arguments). None where
    it computes, or gives what all runs share."""
    inner = view.jaxpr.jaxpr
    inputs = {variable: at for at, variable in enumerate(inner.invars[:own])}
    if inner.eqns or any(not isinstance(v, core.Var) or v not in inputs for v in inner.outvars):
        return None
    return Pick(tuple(inputs[variable] for variable in inner.outvars), view.out_info)
