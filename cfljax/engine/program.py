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
from cfljax.engine.settings import MAX_SHARES, WORD, WORD_BITS, Assembled, Carry, Settings, View
from cfljax.engine.wall import format_clock, run_timed, start_clock
from cfljax.federation import cohort
from cfljax.lazy import jax, jnp
from cfljax.local.optimiser import decay_rate
from cfljax.local.send import flip_labels
from cfljax.types import Array, ClientState, Federation, Hyper, Info, Method, Tree

Compiling = SplitFunction | Future["jax.stages.Compiled"]
Picked = list[
    int
    # Which of the arrays that each run has for itself each array of a view is; −1: computed, or
    # shared
    # by runs
]
Report = dict[
    str, Array
]  # The last round's values for the history, by name, and the sums since the start
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
    view: Callable[[Tree, Hyper, Federation, Array], View]
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
        more = jnp.stack(info.traffic)
        low = carry.traffic[:, 1] + (more & (WORD - 1))
        high = carry.traffic[:, 0] + (more >> WORD_BITS) + (low >> WORD_BITS)
        total = jnp.stack([high, low & (WORD - 1)], axis=1)
        lost_at = jnp.where((carry.lost_at < 0) & info.lost, t + 1, carry.lost_at)
        carry = Carry(state, total, carry.nonfinite + info.nonfinite, lost_at, wall, flight)
        return carry, _make_report(settings, carry, info)

    def start(key: Array, hyper: Hyper, setup: dict[str, Tree], federation: Federation) -> Carry:
        state = method.init(key, flip_labels(settings.sending, hyper, federation), hyper, setup)
        models = method.models(state)[0]
        wall = None if settings.clock is None else start_clock(models.shape[0], hyper)
        flight = None
        if settings.asynchronous is not None:
            flight = asynchronous.start_flight(
                settings.asynchronous, settings.participants, *models.shape
            )
        return Carry(state, jnp.zeros((4, 2), jnp.int32), jnp.int32(0), jnp.int32(-1), wall, flight)

    def rounds(
        carry: Carry, key: Array, hyper: Hyper, federation: Federation, bounds: Array
    ) -> tuple[Carry, Report]:
        one = jax.jit(advance)

        def body(t: Array, at: tuple[Carry, Report]) -> tuple[Carry, Report]:
            return one(at[0], key, hyper, federation, t)

        report = jax.eval_shape(one, carry, key, hyper, federation, bounds[0])[1]
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), report)
        with jax.named_scope("rounds"):  # its name in profiles
            return jax.lax.fori_loop(bounds[0], bounds[1], body, (carry, nothing))

    def view(state: Tree, hyper: Hyper, federation: Federation, t: Array) -> View:
        state, federation = enter_round(method, state, federation, t)

        def of_data(f: Callable[[Tree, Federation, Hyper], Array] | None) -> Array | None:
            return (
                None
                if f is None
                else f(
                    state, flip_labels(settings.sending, hyper, federation), decay_rate(hyper, t)
                )
            )

        models, labels = method.models(state)
        adapted = of_data(method.adapt)
        models = models if adapted is None else adapted
        guess = None if settings.score == "assigned" else of_data(method.score)
        also = {} if method.also is None else method.also(state)
        shares = None if _are_too_many(method, state, federation, hyper) else of_data(method.shares)
        return View(models, labels, guess, of_data(method.mixture), also, shares)

    return Program(advance, start, rounds, view)


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
    """One round: draw the participants, decay the learning rate, let the method do its work.
    `kept`: of devices and flight."""
    state, federation = enter_round(method, state, federation, t)
    federation = flip_labels(settings.sending, hyper, federation)
    key = keys.fold(key, "round", t)
    participants = cohort.draw(key, federation, settings.participants, t, hyper, kept)
    if kept.flight is not None:
        participants = asynchronous.board(kept.flight, participants)
    state, info = method.round(key, state, federation, participants, decay_rate(hyper, t))
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
    of_all.__name__ = f.__name__  # in profiles
    return of_all


class Programs(NamedTuple):
    """The compiled programs of a batch, for one group of its runs."""

    start: Callable[..., Carry]
    rounds: Callable[..., tuple[Carry, Report]]
    view: Callable[..., View]
    evaluate: Callable[..., Scored]
    report: Report  # The shapes of a round's report
    models: int  # K: the number of models that clients are scored by


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
    begin, key = time.perf_counter(), None
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
    if (programs := recall(key)) is None:
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


def _compile(parts: Assembled, group: Group, federation: Federation) -> Programs:
    settings, mesh, quick = parts.settings, parts.mesh, parts.plan.quick
    program, split, picks = make_program(parts.method, settings), is_split(parts), chooses(parts)
    keys, hyper, setup, numbers = (shapes_of(each, mesh, True) for each in (*group, group.numbers))
    data, scored_on, at = (
        shapes_of(each, mesh, False)
        for each in (federation, strip_training(federation), np.int32(0))
    )
    of_runs = lambda form: shapes_of(add_runs(form, keys.shape[0]), mesh, True)  # noqa: E731

    def over_all(
        f: Callable[..., Tree], mapped: int, donate: tuple[int, ...] = ()
    ) -> jax.stages.Wrapped:
        return jax.jit(over_runs(f, settings, mesh, mapped), donate_argnums=donate)

    def compile_form(
        f: jax.stages.Wrapped, arguments: tuple[Tree, ...], quick: bool, **more: Any
    ) -> Compiling:
        traced = f.trace(
            *arguments
        )  # `compile_later` finds it in JAX's cache: errors in a round have short tracebacks
        return (
            SplitFunction(traced, quick, **more)
            if split
            else compile_later(f, arguments, quick=quick)
        )

    start = over_all(program.start, 3)
    form = drop_runs(start.trace(keys, hyper, setup, data).out_info)
    carry = of_runs(form)
    if split:
        rounds = compile_form(
            over_all(program.advance, 3),
            (carry, keys, hyper, data, at),
            quick,
            lost=len(jax.tree.leaves(carry)),
        )
    else:
        bounds = shapes_of(np.zeros(2, np.int32), mesh, False)
        rounds = compile_form(
            over_all(program.rounds, 3, (0,)), (carry, keys, hyper, data, bounds), quick
        )
    picked: list[Picked] = []

    def view(*args: Tree) -> View:
        seen = program.view(*args)
        position = {id(each): at for at, each in enumerate(jax.tree.leaves(args[:2]))}
        picked.append([position.get(id(each), -1) for each in jax.tree.leaves(seen)])
        return seen

    viewing = over_all(view, 2)
    seen: View = drop_runs(viewing.trace(carry.state, hyper, data, at).out_info)
    name = (
        None
        if parts.model_key is None
        else ("evaluate", parts.model_key, strip_settings(settings), picks, mesh)
    )
    evaluate = over_all(make_evaluation(parts.model, settings, picks), 2)
    evaluation = compile_later(
        evaluate, (of_runs(seen._replace(shares=None)), numbers, scored_on, at), name, quick
    )
    started = compile_form(start, (keys, hyper, setup, data), parts.plan.on_cpu)
    kept = (
        seen.mixture is not None or seen.shares is not None
    )  # fetched when later rounds have overwritten the state
    if kept or -1 in picked[-1]:
        viewed = compile_form(viewing, (carry.state, hyper, data, at), quick, own=kept).result()
    else:
        viewed = functools.partial(_pick, jax.tree.structure(seen), picked[-1])
    of_rounds: Callable[..., tuple[Carry, Report]] = rounds.result()
    if isinstance(rounds, SplitFunction):
        check_types(carry, rounds.form[0])
        of_rounds, report = functools.partial(_advance_one_by_one, of_rounds), rounds.form[1]
    else:
        report = rounds.result().out_info[1]
    return Programs(
        started.result(), of_rounds, viewed, evaluation.result(), report, seen.models.shape[0]
    )


def _advance_one_by_one(
    advance: Callable[..., tuple[Tree, Tree]],
    carry: Tree,
    keys: jax.Array,
    hyper: Tree,
    federation: Federation,
    bounds: np.ndarray,
) -> tuple[Tree, Tree]:
    report: Tree = None
    for t in range(int(bounds[0]), int(bounds[1])):
        carry, report = advance(carry, keys, hyper, federation, np.int32(t))
    return carry, report


def _pick(structure: jax.tree_util.PyTreeDef, positions: list[int], *args: Tree) -> View:
    """Do what a view does that only picks arrays: nothing is compiled, and no model is copied."""
    leaves = jax.tree.leaves(args)
    seen: View = jax.tree.unflatten(structure, [leaves[at] for at in positions])
    return seen
