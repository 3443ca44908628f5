"""HOST. The compiled programs of a batch. Rounds have one of two forms. In short runs the stages of a round (training, losses, the
method's code between them) are separate programs, and methods share equal ones; in long runs the rounds between two evaluations are
one program with a loop on the device."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from cfljax.devices.compiled import compile_later, remember, shape_key
from cfljax.devices.split import SplitFunction
from cfljax.devices.spread import run_everywhere
from cfljax.engine.evaluation import Scored, make_evaluation, some_never_train, strip_settings, strip_training
from cfljax.engine.groups import Group, add_runs, drop_runs, shapes_of
from cfljax.engine.program import Program, Report, make_program, map_over_runs
from cfljax.engine.settings import Assembled, Carry, View
from cfljax.lazy import jax
from cfljax.types import Federation, Tree

Compiling = SplitFunction | Future["jax.stages.Compiled"]
Picked = list[int]
"""Which of the arrays that each run has for itself each array of a view is; −1: computed, or shared by runs."""


class Programs(NamedTuple):
    """The compiled programs of a batch, for one group of its runs."""

    start: Callable[..., Carry]
    rounds: Callable[..., tuple[Carry, Report]]
    view: Callable[..., View]
    evaluate: Callable[..., Scored]
    report: Report  # The shapes of a round's report
    models: int  # K: the number of models that clients are scored by


def is_split(parts: Assembled) -> bool:
    """Return whether the stages of a round are separate programs. In long runs they are not, because calling them costs a tenth of
    a round of ten milliseconds."""
    return parts.plan.quick and parts.plan.sequential and parts.settings.sequential and parts.mesh is None


def explain_form(parts: Assembled) -> str:
    """Return the form of the rounds, and the rule that chose it, in words."""
    if is_split(parts):
        return "each stage of a round is a program, which methods share: a short run (train.plan.quick) on one device"
    why = "it has several devices" if parts.mesh is not None else "it is no short run (train.plan.quick)"
    if not parts.settings.sequential or not parts.plan.sequential:
        why = "clients or runs train side by side"
    return f"the rounds between two evaluations are one program: {why}"


def compile_programs(parts: Assembled, group: Group, federation: Federation) -> tuple[Programs, float]:
    """Return (the programs of a batch whose groups are like this one, seconds of tracing and compiling). A later batch with the
    same names and shapes gets the same programs."""
    begin, key = time.perf_counter(), None
    if parts.program_key is not None:
        static = (parts.program_key, parts.model_key, parts.plan, parts.settings.of_programs, chooses(parts), parts.mesh)
        key = ("programs", static, shape_key((tuple(group), federation)))
    with _no_collection():
        programs = remember(key, lambda: _compile(parts, group, federation))
    return programs, time.perf_counter() - begin


def start_form(program: Program, parts: Assembled, group: Group) -> Carry:
    """Return the shapes of what a run like the group's carries before the first round."""
    with jax.default_matmul_precision(parts.settings.precision):
        form: Carry = jax.eval_shape(program.start, *drop_runs(tuple(group)), parts.federation)
    return form


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: tracing leaves little garbage, and searching for it takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def chooses(parts: Assembled) -> bool:
    """Return whether there are clients that never train and choose a model; federations of one shape may differ in this."""
    return parts.method.chooses and some_never_train(parts.federation)


def _compile(parts: Assembled, group: Group, federation: Federation) -> Programs:
    settings, mesh, quick = parts.settings, parts.mesh, parts.plan.quick
    program, split, picks = make_program(parts.method, settings), is_split(parts), chooses(parts)
    keys, hyper, setup, numbers = (shapes_of(each, mesh, True) for each in (*group, group.numbers))
    data, scored_on, at = (shapes_of(each, mesh, False) for each in (federation, strip_training(federation), np.int32(0)))
    of_runs = lambda form: shapes_of(add_runs(form, keys.shape[0]), mesh, True)  # noqa: E731

    def over_all(f: Callable[..., Tree], mapped: int, donate: tuple[int, ...] = ()) -> jax.stages.Wrapped:
        of_all = run_everywhere(map_over_runs(f, settings, mapped), mesh, mapped)
        of_all.__name__ = f.__name__  # in profiles
        return jax.jit(of_all, donate_argnums=donate)

    def compile_form(f: jax.stages.Wrapped, arguments: tuple[Tree, ...], quick: bool, **more: Any) -> Compiling:
        return SplitFunction(f.trace(*arguments), quick, **more) if split else compile_later(f, arguments, quick=quick)

    start = over_all(program.start, 3)
    form = drop_runs(start.trace(keys, hyper, setup, data).out_info)
    carry = of_runs(form)
    if split:
        rounds = compile_form(over_all(program.advance, 3), (carry, keys, hyper, data, at), quick, lost=len(jax.tree.leaves(carry)))
    else:
        bounds = shapes_of(np.zeros(2, np.int32), mesh, False)
        rounds = compile_form(over_all(program.rounds, 3, (0,)), (carry, keys, hyper, data, bounds), quick)
    picked: list[Picked] = []

    def view(*args: Tree) -> View:
        seen = program.view(*args)
        position = {id(each): at for at, each in enumerate(jax.tree.leaves(args[:2]))}
        picked.append([position.get(id(each), -1) for each in jax.tree.leaves(seen)])
        return seen

    viewing = over_all(view, 2)
    seen: View = drop_runs(viewing.trace(carry.state, hyper, data, at).out_info)
    name = None if parts.model_key is None else ("evaluate", parts.model_key, strip_settings(settings), picks, mesh)
    evaluate = jax.jit(run_everywhere(make_evaluation(parts.model, settings, picks), mesh, 2))
    evaluation = compile_later(evaluate, (of_runs(seen._replace(shares=None)), numbers, scored_on, at), name, quick)
    started = compile_form(start, (keys, hyper, setup, data), parts.plan.on_cpu)
    kept = seen.mixture is not None or seen.shares is not None  # fetched when later rounds have overwritten the state
    if kept or -1 in picked[-1]:
        viewed = compile_form(viewing, (carry.state, hyper, data, at), quick, own=kept).result()
    else:
        viewed = functools.partial(_pick, jax.tree.structure(seen), picked[-1])
    of_rounds: Callable[..., tuple[Carry, Report]] = rounds.result()
    if isinstance(rounds, SplitFunction):
        _check_types(carry, rounds.form[0])
        of_rounds, report = functools.partial(_advance_one_by_one, of_rounds), rounds.form[1]
    else:
        report = rounds.result().out_info[1]
    return Programs(started.result(), of_rounds, viewed, evaluation.result(), report, seen.models.shape[0])


def _advance_one_by_one(
    advance: Callable[..., tuple[Tree, Tree]], carry: Tree, keys: jax.Array, hyper: Tree, federation: Federation, bounds: np.ndarray
) -> tuple[Tree, Tree]:
    report: Tree = None
    for t in range(int(bounds[0]), int(bounds[1])):
        carry, report = advance(carry, keys, hyper, federation, np.int32(t))
    return carry, report


def _check_types(before: Tree, after: Tree) -> None:
    """Raise TypeError if what runs carry has other shapes or types after a round than before it."""
    types = lambda of: {jax.tree_util.keystr(at): f"{a.dtype}{list(a.shape)}" for at, a in jax.tree.leaves_with_path(of)}  # noqa: E731
    old, new = types(before), types(after)
    changed = [f"{name}: {old.get(name)}, then {new.get(name)}" for name in old | new if old.get(name) != new.get(name)]
    if changed:
        raise TypeError(f"a round must not change the shapes and types of a state: {'; '.join(changed)}")


def _pick(structure: jax.tree_util.PyTreeDef, positions: list[int], *args: Tree) -> View:
    """Do what a view does that only picks arrays: nothing is compiled, and no model is copied."""
    leaves = jax.tree.leaves(args)
    seen: View = jax.tree.unflatten(structure, [leaves[at] for at in positions])
    return seen
