"""The compiled programs of a batch: the state before the first round, rounds, an evaluation's view
of the state, and the evaluation, which methods share (`engine.evaluation`). They know no method by
name.

Rounds have one of two forms. In short runs the stages of a round (training, losses, the method's
code between them) are separate programs, and methods share equal ones. In long runs the rounds
between two evaluations are one program with a loop on the device; where it begins and ends is an
argument."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cfljax import keys
from cfljax.devices.compiled import compile_later, keep, recall, shape_key
from cfljax.devices.split import SplitFunction, check_types
from cfljax.devices.spread import run_everywhere
from cfljax.engine import asynchronous
from cfljax.engine.evaluation import (
    Scored,
    chooses,
    make_evaluation,
    strip_settings,
    strip_training,
)
from cfljax.engine.groups import Group, add_runs, drop_runs, shapes_of
from cfljax.engine.settings import (
    MAX_SHARES,
    WORD,
    WORD_BITS,
    Assembled,
    Carry,
    Settings,
    StateView,
)
from cfljax.engine.wall import format_clock, run_timed, start_clock
from cfljax.federation import cohort
from cfljax.lazy import jax, jnp
from cfljax.local.attacks import flip_labels
from cfljax.local.rates import at_round
from cfljax.types import Array, ClientState, Federation, Hyper, Info, Method, Traffic, Tree

# A program that threads are compiling; `result()` waits for it
Compiling = SplitFunction | Future["jax.stages.Compiled"]
# The last round's values for the history, by name, and the sums since the start
Report = dict[str, Array]
Out = TypeVar("Out")


class Program(NamedTuple):
    """Pure functions of one run (`over_runs`)."""

    advance: Callable[[Carry, Array, Hyper, Federation, Array], tuple[Carry, Report]]
    """advance(carry, key, hyper, federation, round) -> (carry, report): one round."""
    start: Callable[[Array, Hyper, dict[str, Tree], Federation], Carry]
    """start(key, hyper, setup, federation): what the run carries before the first round."""
    rounds: Callable[[Carry, Array, Hyper, Federation, Array], tuple[Carry, Report]]
    """rounds(carry, key, hyper, federation, bounds) -> (carry, report). bounds i32[2]: the rounds
    done before and after."""
    view: Callable[[Tree, Hyper, Federation, Array], StateView]
    """view(state, hyper, federation, round): what an evaluation after this number of rounds
    sees."""


def make_program(method: Method, settings: Settings) -> Program:
    """Make the programs of a method."""

    def advance(
        carry: Carry, key: Array, hyper: Hyper, federation: Federation, t: Array
    ) -> tuple[Carry, Report]:
        go = functools.partial(_round, method, settings, key, carry.state, federation, hyper, t)
        wall, flight = None, None
        if settings.clock is None:
            state, info = go(ClientState())
        elif settings.asynchronous is None:
            (state, info), wall = run_timed(
                go, settings.clock, method.models, carry.wall, federation, hyper, t
            )
        else:
            (state, info), wall, flight = asynchronous.step(
                go, settings, method.models, carry, federation, hyper, t
            )
        carry = Carry(
            state=state,
            traffic=_add_traffic(carry.traffic, info.traffic),
            nonfinite=carry.nonfinite + info.nonfinite,
            # The first round, counted from 1, in which no update was finite
            lost_at=jnp.where((carry.lost_at < 0) & info.lost, t + 1, carry.lost_at),
            wall=wall,
            flight=flight,
        )
        return carry, _make_report(settings, carry, info)

    def start(key: Array, hyper: Hyper, setup: dict[str, Tree], federation: Federation) -> Carry:
        state = method.init(
            key, flip_labels(settings.sending.attack, hyper, federation), hyper, setup
        )
        models = method.models(state)[0]
        wall = None if settings.clock is None else start_clock(models.shape[0], hyper)
        flight = None
        if settings.asynchronous is not None:
            flight = asynchronous.start_flight(
                settings.asynchronous, settings.participants, *models.shape
            )
        return Carry(
            state=state,
            traffic=jnp.zeros((len(Traffic._fields), 2), jnp.int32),
            nonfinite=jnp.int32(0),
            lost_at=jnp.int32(-1),
            wall=wall,
            flight=flight,
        )

    def rounds(
        carry: Carry, key: Array, hyper: Hyper, federation: Federation, bounds: Array
    ) -> tuple[Carry, Report]:
        # Jitted, so that `eval_shape` and the loop trace the round once
        one = jax.jit(advance)

        def body(t: Array, at: tuple[Carry, Report]) -> tuple[Carry, Report]:
            return one(at[0], key, hyper, federation, t)

        report = jax.eval_shape(one, carry, key, hyper, federation, bounds[0])[1]
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), report)
        # The name of the loop in profiles
        with jax.named_scope("rounds"):
            return jax.lax.fori_loop(bounds[0], bounds[1], body, (carry, nothing))

    def view(state: Tree, hyper: Hyper, federation: Federation, t: Array) -> StateView:
        return _view_state(method, settings, state, hyper, federation, t)

    return Program(advance, start, rounds, view)


def _view_state(
    method: Method,
    settings: Settings,
    state: Tree,
    hyper: Hyper,
    federation: Federation,
    t: Array,
) -> StateView:
    """Return what an evaluation after t rounds sees of a method's state."""
    state, federation = enter_round(method, state, federation, t)

    def of_data(f: Callable[[Tree, Federation, Hyper], Array] | None) -> Array | None:
        if f is None:
            return None
        # An attacker with flipped labels answers the method's questions by them, too
        shown = flip_labels(settings.sending.attack, hyper, federation)
        return f(state, shown, at_round(hyper, t))

    models, labels = method.models(state)
    adapted = of_data(method.adapt)
    models = models if adapted is None else adapted
    guess = None if settings.score == "assigned" else of_data(method.score)
    also = {} if method.also is None else method.also(state)
    shares = None if _are_too_many(method, state, federation, hyper) else of_data(method.shares)
    return StateView(models, labels, guess, of_data(method.mixture), also, shares)


def _add_traffic(total: Array, sent: Traffic) -> Array:
    """Add the traffic of a round to `Carry.traffic` i32[4, 2]."""
    more = jnp.stack(sent)
    low = total[:, 1] + (more & (WORD - 1))
    # The carry of the lower word
    high = total[:, 0] + (more >> WORD_BITS) + (low >> WORD_BITS)
    return jnp.stack([high, low & (WORD - 1)], axis=1)


def _are_too_many(method: Method, state: Tree, federation: Federation, hyper: Hyper) -> bool:
    """Return whether clients mix each other's models and are too many to compute that at each
    evaluation."""
    if method.shares is None:
        return True
    clients, models = jax.eval_shape(method.shares, state, federation, hyper).shape
    return bool(clients == models and clients * models > MAX_SHARES)


def _make_report(settings: Settings, carry: Carry, info: Info) -> Report:
    """Return the history's values of a round, with copies of the sums: the carry's own arrays are
    lost with the next rounds."""
    return {
        "train_loss": info.train_loss,
        "discrepancy": info.discrepancy if settings.discrepancy == "after" else info.drift,
        "nonfinite": carry.nonfinite,
        "traffic": carry.traffic,
        **{f"diag/{name}": each for name, each in info.diag.items()},
        **({} if carry.wall is None else format_clock(carry.wall)),
        **({} if carry.flight is None else asynchronous.format_flight(carry.flight)),
    }


def _round(
    method: Method,
    settings: Settings,
    key: Array,
    state: Tree,
    federation: Federation,
    hyper: Hyper,
    t: Array,
    kept: ClientState,
) -> tuple[Tree, Info]:
    """Do round t: draw the participants, decay the learning rate, let the method do its work.
    `kept`: the devices and the updates in flight; the first argument that `RunRound` gives."""
    state, federation = enter_round(method, state, federation, t)
    federation = flip_labels(settings.sending.attack, hyper, federation)
    key = keys.fold(key, "round", t)
    participants = cohort.draw(key, federation, settings.participants, t, hyper, kept)
    if kept.flight is not None:
        participants = asynchronous.board(kept.flight, participants)
    state, info = method.round(key, state, federation, participants, at_round(hyper, t))
    return state, asynchronous.add_flight(info, participants.kept.flight)


def enter_round(
    method: Method, state: Tree, federation: Federation, t: Array | int
) -> tuple[Tree, Federation]:
    """Return the federation as it is in round t (`data.drift`), and the state with its true groups
    if these are the method's clusters. An evaluation after t rounds sees both as round t will."""
    if federation.drift is None:
        return state, federation
    federation = federation.at(t)
    return state if method.follow is None else method.follow(state, federation), federation


def over_runs(
    f: Callable[..., Out], settings: Settings, mesh: jax.sharding.Mesh | None, mapped: int
) -> Callable[..., Out]:
    """Return the function f of one run as a function of runs on the mesh, with a leading axis of
    runs on its first `mapped` arguments and on its results. With `settings.sequential` that axis
    has one entry, and f is computed as for one run."""

    def batched(*args: Tree) -> Out:
        with jax.default_matmul_precision(settings.precision):
            if not settings.sequential:
                return jax.vmap(f, in_axes=(0,) * mapped + (None,) * (len(args) - mapped))(*args)
            of_run = jax.tree.map(lambda a: jnp.squeeze(a, 0), args[:mapped])
            out: Out = jax.tree.map(lambda a: jnp.expand_dims(a, 0), f(*of_run, *args[mapped:]))
            return out

    of_all = run_everywhere(batched, mesh, mapped)
    # The name of the program in profiles
    of_all.__name__ = f.__name__
    return of_all


class Programs(NamedTuple):
    """The compiled programs of a batch, for one group of its runs."""

    start: Callable[..., Carry]
    rounds: Callable[..., tuple[Carry, Report]]
    view: Callable[..., StateView]
    evaluate: Callable[..., Scored]
    # The shapes of a round's report
    report: Report
    # K: the number of models that clients are scored by
    models: int


def is_split(parts: Assembled) -> bool:
    """Return whether the stages of a round are separate programs, which methods share: without them
    the first start of the quickstart takes a fifth longer (docs/ledger.md). In long runs they are
    not, because calling them costs a tenth of a round of ten milliseconds."""
    return (
        parts.plan.quick
        and parts.plan.sequential
        and parts.settings.sequential
        and parts.mesh is None
    )


def compile_programs(
    parts: Assembled, group: Group, federation: Federation
) -> tuple[Programs, float]:
    """Return (the programs of a batch whose groups are like this one, seconds of tracing and
    compiling). A later batch with the same names and shapes gets the same programs."""
    begin = time.perf_counter()
    key = None
    if parts.program_key is not None:
        static = (
            parts.program_key,
            parts.model_key,
            parts.plan,
            parts.settings.of_programs,
            chooses(parts),
            parts.mesh,
        )
        key = ("programs", static, shape_key((tuple(group), federation)))
    programs = recall(key)
    if programs is None:
        with _no_collection():
            programs = keep(key, _compile(parts, group, federation))
    return programs, time.perf_counter() - begin


def start_form(parts: Assembled, group: Group) -> Carry:
    """Return the shapes of what a run like the group's carries before the first round."""
    program = make_program(parts.method, parts.settings)
    with jax.default_matmul_precision(parts.settings.precision):
        form: Carry = jax.eval_shape(program.start, *drop_runs(tuple(group)), parts.federation)
    return form


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: tracing leaves little garbage, and searching for it takes a tenth
    of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Forms(NamedTuple):
    """The shapes and devices of the arguments of a batch's programs."""

    # Arrays with a leading axis of runs, as in `Group`
    keys: Tree
    hyper: Tree
    setup: Tree
    # The numbers of `hyper` that an evaluation reads
    numbers: Tree
    # Arrays that all runs share
    federation: Tree
    # The federation without what only training reads
    scored_on: Tree
    # The number of a round
    round: Tree


class _TracedView(NamedTuple):
    """`Program.view`, traced for the runs of a group."""

    function: jax.stages.Wrapped
    # The shapes of one run's view
    seen: StateView
    # For each array of the view its position among the arrays of (state, hyper), if the view is
    # that array; −1: it is computed, or shared by the runs
    picked: list[int]


def _compile(parts: Assembled, group: Group, federation: Federation) -> Programs:
    """Compile the programs of a batch whose groups are like this one. Compiling runs in threads, so
    all programs are submitted before the first is waited for, the rounds first, as they take the
    longest."""
    quick = parts.plan.quick
    forms = _list_forms(parts, group, federation)
    program = make_program(parts.method, parts.settings)
    # The shapes of what the runs carry from round to round are those that `start` returns
    start = _jit_over_runs(parts, program.start, 3)
    starting = (forms.keys, forms.hyper, forms.setup, forms.federation)
    carry = _add_runs(parts, forms, drop_runs(start.trace(*starting).out_info))

    rounds = _compile_rounds(parts, program, carry, forms)
    view = _trace_view(parts, program, carry, forms)
    evaluation = _compile_evaluation(parts, view.seen, forms)
    # `start` runs once, so compiling it well does not pay
    started = _compile_traced(parts, start, starting, quick=parts.plan.on_cpu)

    # Arrays that are fetched when later rounds have overwritten the state need a copy of their own
    is_kept = view.seen.mixture is not None or view.seen.shares is not None
    viewed: Callable[..., StateView]
    if is_kept or -1 in view.picked:
        viewing = (carry.state, forms.hyper, forms.federation, forms.round)
        viewed = _compile_traced(parts, view.function, viewing, quick, own=is_kept).result()
    else:
        viewed = functools.partial(_pick, jax.tree.structure(view.seen), view.picked)

    advance: Callable[..., tuple[Carry, Report]] = rounds.result()
    if isinstance(rounds, SplitFunction):
        # The carry of one call is the argument of the next
        check_types(carry, rounds.form[0])
        advance = functools.partial(_advance_one_by_one, advance)
        report = rounds.form[1]
    else:
        report = rounds.result().out_info[1]
    models = view.seen.models.shape[0]
    return Programs(started.result(), advance, viewed, evaluation.result(), report, models)


def _list_forms(parts: Assembled, group: Group, federation: Federation) -> _Forms:
    """List the shapes of what the programs of these runs get."""

    def of_runs(tree: Tree) -> Tree:
        return shapes_of(tree, parts.mesh, True)

    def of_all(tree: Tree) -> Tree:
        return shapes_of(tree, parts.mesh, False)

    return _Forms(
        keys=of_runs(group.keys),
        hyper=of_runs(group.hyper),
        setup=of_runs(group.setup),
        numbers=of_runs(group.numbers),
        federation=of_all(federation),
        scored_on=of_all(strip_training(federation)),
        round=of_all(np.int32(0)),
    )


def _add_runs(parts: Assembled, forms: _Forms, form: Tree) -> Tree:
    """Return the shapes of all runs of the group, from the shapes of one run."""
    return shapes_of(add_runs(form, forms.keys.shape[0]), parts.mesh, True)


def _jit_over_runs(
    parts: Assembled, f: Callable[..., Tree], mapped: int, donate: tuple[int, ...] = ()
) -> jax.stages.Wrapped:
    """Jit a function of one run as a function of a group's runs (`over_runs`). `donate`: the
    arguments that are not needed after a call."""
    return jax.jit(over_runs(f, parts.settings, parts.mesh, mapped), donate_argnums=donate)


def _compile_traced(
    parts: Assembled,
    f: jax.stages.Wrapped,
    arguments: tuple[Tree, ...],
    quick: bool,
    **of_split: Any,
) -> Compiling:
    """Begin to compile a function for arguments of these shapes; if stages are separate programs,
    in segments (`of_split`: arguments of `SplitFunction`)."""
    # `compile_later` finds this trace in JAX's cache. Errors in a round have short tracebacks here
    traced = f.trace(*arguments)
    if is_split(parts):
        return SplitFunction(traced, quick, **of_split)
    return compile_later(f, arguments, quick=quick)


def _compile_rounds(parts: Assembled, program: Program, carry: Tree, forms: _Forms) -> Compiling:
    """Begin to compile one round, in segments; or all rounds between two evaluations. Both
    overwrite the carry."""
    quick = parts.plan.quick
    if is_split(parts):
        advance = _jit_over_runs(parts, program.advance, 3)
        arguments = (carry, forms.keys, forms.hyper, forms.federation, forms.round)
        return _compile_traced(parts, advance, arguments, quick, lost=len(jax.tree.leaves(carry)))
    rounds = _jit_over_runs(parts, program.rounds, 3, donate=(0,))
    bounds = shapes_of(np.zeros(2, np.int32), parts.mesh, False)
    arguments = (carry, forms.keys, forms.hyper, forms.federation, bounds)
    return _compile_traced(parts, rounds, arguments, quick)


def _trace_view(parts: Assembled, program: Program, carry: Tree, forms: _Forms) -> _TracedView:
    """Trace the view, and find out whether it only picks arrays of the state and of `hyper`, as
    most do."""
    picked: list[int] = []

    # `view` is this program's name in profiles
    def view(*args: Tree) -> StateView:
        seen = program.view(*args)
        # While it is traced, an array that is passed on is the same object, so ids tell where each
        # array of the view is from. An array of a federation is not picked: all runs share it
        position = {id(each): at for at, each in enumerate(jax.tree.leaves(args[:2]))}
        picked[:] = [position.get(id(each), -1) for each in jax.tree.leaves(seen)]
        return seen

    function = _jit_over_runs(parts, view, 2)
    traced = function.trace(carry.state, forms.hyper, forms.federation, forms.round)
    return _TracedView(function, drop_runs(traced.out_info), picked)


def _compile_evaluation(
    parts: Assembled, seen: StateView, forms: _Forms
) -> Future[jax.stages.Compiled]:
    """Begin to compile the evaluation of views of these shapes, or find it: methods whose models
    have the same shapes share it."""
    choosing = chooses(parts)
    name = None
    if parts.model_key is not None:
        static = strip_settings(parts.settings)
        name = ("evaluate", parts.model_key, static, choosing, parts.mesh)
    evaluate = _jit_over_runs(parts, make_evaluation(parts.model, parts.settings, choosing), 2)
    # Shares are for the record: no evaluation reads them
    views = _add_runs(parts, forms, seen._replace(shares=None))
    arguments = (views, forms.numbers, forms.scored_on, forms.round)
    return compile_later(evaluate, arguments, name, parts.plan.quick)


def _advance_one_by_one(
    advance: Callable[..., tuple[Tree, Tree]],
    carry: Tree,
    keys: jax.Array,
    hyper: Tree,
    federation: Federation,
    bounds: np.ndarray,
) -> tuple[Tree, Tree]:
    """Do what `Program.rounds` does, by calls of one round."""
    report: Tree = None
    for t in range(int(bounds[0]), int(bounds[1])):
        carry, report = advance(carry, keys, hyper, federation, np.int32(t))
    return carry, report


def _pick(structure: jax.tree_util.PyTreeDef, positions: list[int], *args: Tree) -> StateView:
    """Do what a view does that only picks arrays: nothing is compiled, and no model is copied."""
    leaves = jax.tree.leaves(args)
    seen: StateView = jax.tree.unflatten(structure, [leaves[at] for at in positions])
    return seen
