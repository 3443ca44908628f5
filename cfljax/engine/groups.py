"""HOST. The runs of a batch in groups, each of which is computed by one call of the programs: all runs side by side on an
accelerator; on a CPU one run, or one run for each group of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from cfljax.devices.compiled import Source, compiled, remembered, shapes
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import placed
from cfljax.devices.spread import by_runs, everywhere
from cfljax.engine import known
from cfljax.engine.evaluation import NUMBERS, Scored, as_evaluated, make_evaluation, seen_of, some_never_train
from cfljax.engine.pieces import check_types, cut_of_runs, is_cut, rounds_by
from cfljax.engine.program import Program, Report, make_program, over_runs
from cfljax.engine.settings import Assembled, Carry, View
from cfljax.types import Federation, Tree


class Group(NamedTuple):
    """What a group of runs starts from: arrays with a leading axis of its runs, where they are computed on."""

    keys: jax.Array
    hyper: Tree
    setup: Tree
    """What the method has prepared."""

    @property
    def numbers(self) -> Tree:
        """The numbers that an evaluation reads."""
        return {name: self.hyper[name] for name in NUMBERS if name in self.hyper}


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


def width(parts: Assembled, runs: int) -> int:
    """How many runs are in a group."""
    devices = 1 if parts.mesh is None else int(parts.mesh.shape.get(RUNS, 1))
    return devices if parts.settings.sequential else runs


def grouped(parts: Assembled, group: Group) -> list[Group]:
    """The runs of a batch in groups."""
    runs = group.keys.shape[0]
    size = width(parts, runs)
    return [placed_group(parts, part(tuple(group), at, size)) for at in range(0, runs, size)]


def placed_group(parts: Assembled, arrays: Tree) -> Group:
    """The group of these arrays (keys, numbers, set-ups), where it is computed on."""
    return Group(*(jax.device_put(arrays) if parts.mesh is None else placed(arrays, parts.mesh, True)))


def part(arrays: Tree, first: int, number: int) -> Tree:
    """The runs `first` … `first + number − 1` of arrays with a leading axis of runs."""
    return jax.tree.map(lambda a: a if len(a) == number else a[first : first + number], arrays)


def picked(arrays: Tree, runs: np.ndarray) -> Tree:
    """These runs of arrays with a leading axis of runs."""
    everybody = np.arange(len(runs))
    return jax.tree.map(lambda a: a if len(a) == len(runs) and (runs == everybody).all() else a[runs], arrays)


def scattered(parts: list[Tree], places: list[np.ndarray], runs: int) -> Tree:
    """The arrays (on the host) of groups as those of `runs` runs. `places`: the runs of each group; other runs have zeros."""
    where = np.concatenate(places)
    in_order = len(where) == runs and (where == np.arange(runs)).all()

    def whole(*each: np.ndarray) -> np.ndarray:
        together = each[0] if len(each) == 1 else np.concatenate(each)
        if in_order:
            return together
        spread = np.zeros((runs, *together.shape[1:]), together.dtype)
        spread[where] = together
        return spread

    return jax.tree.map(whole, *parts)


def of_one(form: Tree) -> Tree:
    """Shapes whose leading axis counts runs, without it."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), form)


def for_each_run(form: Tree, runs: int) -> Tree:
    """Shapes of one run, with a leading axis of runs."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((runs, *a.shape), a.dtype), form)


def with_runs(form: Tree, runs: int) -> Tree:
    """Shapes whose leading axis counts runs, with this number of them."""
    return for_each_run(of_one(form), runs)


def start_form(program: Program, parts: Assembled, group: Group) -> Carry:
    """The shapes of what a run like those of the group carries before the first round."""
    with jax.default_matmul_precision(parts.settings.precision):
        form: Carry = jax.eval_shape(program.start, *of_one(tuple(group)), parts.federation)
    return form


class Sources(NamedTuple):
    """The programs of a batch before they are compiled, and what is known of them then."""

    rounds: Source
    evaluate: Source
    start: Source
    view: Source | None
    """None: it only picks arrays, so that nothing is compiled."""
    pick: Callable[..., View] | None
    models: int


def compile_programs(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    """(the programs of a batch whose groups are like this one, seconds of compiling). A later batch with the same names and shapes
    gets the same programs, without tracing anything."""
    if parts.program_key is None:
        return _compiled(parts, group, federation)
    static = (parts.program_key, parts.model_key, parts.plan, parts.settings.of_programs, _chooses(parts), parts.mesh)
    return remembered((*static, shapes((tuple(group), federation))), lambda: _compiled(parts, group, federation))


def _chooses(parts: Assembled) -> bool:
    """Whether there are clients that never train and choose a model, which federations of one shape may differ in."""
    return parts.method.chooses and some_never_train(parts.federation)


def _compiled(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    if is_cut(parts):
        return _compiled_in_pieces(parts, group, federation)
    made = sources_of(parts, group, federation)
    (rounds, evaluate, start, *computed), seconds = compiled([each for each in made[:4] if each is not None])
    known.remember(parts, seconds)
    _, report = rounds.out_info
    return Programs(start, rounds, made.pick or computed[0], evaluate, report, made.models), seconds


def _compiled_in_pieces(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    """As `_compiled`, with the parts that methods share as programs of their own."""
    method, settings = parts.method, parts.settings
    program, chooses = make_program(method, settings), _chooses(parts)
    keys, hyper, setup, numbers = (forms(each, None, True) for each in (*group, group.numbers))
    data, scored_on, at = (forms(each, None, False) for each in (federation, as_evaluated(federation), np.int32(0)))
    static = parts.program_key and (parts.program_key, parts.plan, settings.of_programs, shapes((keys, hyper, setup, data)))
    start = cut_of_runs(parts, program.start, (keys, hyper, setup, data), 3)
    carry, quick = start.form, parts.plan.quick
    rounds = cut_of_runs(parts, program.advance, (carry, keys, hyper, data, at), 3, len(jax.tree.leaves(carry)))
    check_types(carry, rounds.form[0])
    pick, seen = _seen(parts, program, of_one(carry.state), of_one(hyper))
    seen = for_each_run(seen, keys.shape[0])
    shared = static and (static, "evaluate", chooses) if parts.model_key is None else (parts.model_key, seen_of(settings), chooses)
    evaluate = make_evaluation(parts.model, settings, chooses)
    scoring = Source(evaluate, (seen._replace(shares=None), numbers, scored_on, at), shared, None, quick=quick)
    own = [(rounds, "rounds", quick), (start, "start", True)]
    own += [] if pick else [(cut_of_runs(parts, program.view, (carry.state, hyper, data, at), 2), "view", quick)]
    sources = [source for each, function, fast in own for source in each.sources(function, static, fast)]
    (evaluation, *programs), seconds = compiled([scoring, *sources])
    known.remember(parts, seconds)
    here = iter(programs)
    advance, begin, *look = (each.run_by([next(here) for _ in each.pieces]) for each, *_ in own)
    return Programs(begin, rounds_by(advance), pick or look[0], evaluation, rounds.form[1], seen.models.shape[1]), seconds


def sources_of(parts: Assembled, group: Group, federation: Federation) -> Sources:
    """The programs of a batch whose groups are like this one, to be compiled."""
    method, settings, mesh, plan = parts.method, parts.settings, parts.mesh, parts.plan
    program = make_program(method, settings)
    chooses = _chooses(parts)
    evaluate = make_evaluation(parts.model, settings, chooses)
    on_all = lambda tree: forms(tree, mesh, False)  # noqa: E731
    of_runs = lambda tree: forms(tree, mesh, True)  # noqa: E731
    keys, hyper, setup, numbers = (of_runs(each) for each in (*group, group.numbers))
    data, scored_on, at = on_all(federation), on_all(as_evaluated(federation)), on_all(np.int32(0))
    runs, bounds = keys.shape[0], on_all(np.zeros(2, np.int32))
    form = start_form(program, parts, group)
    carry = of_runs(for_each_run(form, runs))
    picked, seen = _seen(parts, program, form.state, of_one(hyper))
    seen = of_runs(for_each_run(seen, runs))
    static = (parts.program_key, parts.plan, settings.of_programs)
    name = lambda function: None if parts.program_key is None else (*static, function)  # noqa: E731
    scored_by = seen._replace(shares=None)
    shared = name(("evaluate", chooses)) if parts.model_key is None else (parts.model_key, seen_of(settings), chooses)
    over = lambda f, mapped: everywhere(over_runs(f, settings, mapped), mesh, mapped)  # noqa: E731
    view_source = Source(over(program.view, 2), (carry.state, hyper, data, at), name("view"), mesh, quick=plan.quick)
    return Sources(
        Source(over(program.rounds, 3), (carry, keys, hyper, data, bounds), name("rounds"), mesh, (0,), plan.quick),
        Source(everywhere(evaluate, mesh, 2), (scored_by, numbers, scored_on, at), shared, mesh, quick=plan.quick),
        Source(over(program.start, 3), (keys, hyper, setup, data), name("start"), mesh, quick=plan.on_cpu),
        view_source if picked is None else None,
        picked,
        seen.models.shape[1],
    )


def forms(tree: Tree, mesh: jax.sharding.Mesh | None, grouped: bool) -> Tree:
    """The shapes and types of arrays that lie as `placed` puts them, or, with a federation on a mesh, as they lie now."""

    def form(array: Tree) -> jax.ShapeDtypeStruct:
        where = getattr(array, "sharding", None)
        if mesh is None:
            where = None
        elif not isinstance(where, jax.sharding.NamedSharding):
            where = jax.sharding.NamedSharding(mesh, by_runs(mesh) if grouped and array.size else jax.P())
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)

    return jax.tree.map(form, tree)


def _seen(parts: Assembled, program: Program, state: Tree, hyper: Tree) -> tuple[Callable[..., View] | None, View]:
    """(`_picks` of what an evaluation sees of a run, or None where that is kept; its shapes), from those of state and numbers."""
    with jax.default_matmul_precision(parts.settings.precision):
        view = program.view.trace(state, hyper, parts.federation, np.int32(0))
    seen: View = view.out_info
    kept = seen.mixture is not None or seen.shares is not None  # fetched when later rounds have overwritten the state
    return None if kept else _picks(view, len(jax.tree.leaves((state, hyper)))), seen


def _picks(view: jax.stages.Traced, own: int) -> Callable[..., View] | None:
    """The function itself, where it does nothing but pick arrays that each run has for itself (the first `own` of its arguments):
    nothing needs to be compiled then, and no model is copied. None where it computes, or gives what all runs share."""
    inner = view.jaxpr.jaxpr
    inputs = {variable: at for at, variable in enumerate(inner.invars[:own])}
    if inner.eqns or any(not isinstance(v, jax.extend.core.Var) or v not in inputs for v in inner.outvars):
        return None
    where, structure = [inputs[variable] for variable in inner.outvars], jax.tree.structure(view.out_info)

    def pick(*args: Tree) -> View:
        leaves = jax.tree.leaves(args)
        chosen: View = jax.tree.unflatten(structure, [leaves[at] for at in where])
        return chosen

    return pick
