"""The compiled programs of a method: the state before the first round, rounds in a loop on the device, and the view of an
evaluation on the state. They know no method by name. The evaluation itself is a program that methods share (`engine.evaluation`).

Each is compiled once, whatever the number of rounds: where a loop of rounds begins and ends is an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from cfljax import keys
from cfljax.engine import asynchronous
from cfljax.engine.settings import MAX_SHARES, WORD, WORD_BITS, Carry, Settings, View
from cfljax.engine.wall import format_clock, run_timed, start_clock
from cfljax.federation import cohort
from cfljax.lazy import jax, jnp
from cfljax.local.optimiser import decay_rate
from cfljax.local.send import flip_labels
from cfljax.types import Array, ClientState, Federation, Hyper, Info, Method, Tree

Report = dict[str, Array]
"""The last round's values for the history, by name, and the sums since the start."""
Out = TypeVar("Out")


class Program(NamedTuple):
    """Pure functions of one run (`map_over_runs`)."""

    advance: Callable[[Carry, Array, Hyper, Federation, Array], tuple[Carry, Report]]
    """advance(carry, key, hyper, federation, round) -> (carry, report): one round."""
    start: Callable[[Array, Hyper, dict[str, Tree], Federation], Carry]
    """start(key, hyper, setup, federation): what the run carries before the first round."""
    rounds: Callable[[Carry, Array, Hyper, Federation, Array], tuple[Carry, Report]]
    """rounds(carry, key, hyper, federation, bounds) -> (carry, report). bounds i32[2]: the rounds done before and after."""
    view: Callable[[Tree, Hyper, Federation, Array], View]
    """view(state, hyper, federation, round): what an evaluation after this number of rounds sees."""


def make_program(method: Method, settings: Settings) -> Program:
    """Make the programs of a method."""

    def advance(carry: Carry, key: Array, hyper: Hyper, federation: Federation, t: Array) -> tuple[Carry, Report]:
        go = lambda kept: _round(method, settings, key, carry.state, federation, hyper, t, kept)  # noqa: E731
        wall, flight = None, carry.flight
        if settings.clock is None:
            state, info = go(ClientState())
        elif settings.asynchronous is None:
            (state, info), wall = run_timed(go, settings.clock, method.models, carry.wall, federation, hyper, t)
        else:
            at = (carry.wall, flight, federation, hyper, t)
            (state, info), wall, flight = asynchronous.step(go, settings.asynchronous, settings.clock, method.models, *at)
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
            flight = asynchronous.start_flight(settings.asynchronous, settings.participants, *models.shape)
        return Carry(state, jnp.zeros((4, 2), jnp.int32), jnp.int32(0), jnp.int32(-1), wall, flight)

    def rounds(carry: Carry, key: Array, hyper: Hyper, federation: Federation, bounds: Array) -> tuple[Carry, Report]:
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
            return None if f is None else f(state, flip_labels(settings.sending, hyper, federation), decay_rate(hyper, t))

        models, labels = method.models(state)
        adapted = of_data(method.adapt)
        models = models if adapted is None else adapted
        guess = None if settings.score == "assigned" else of_data(method.score)
        also = {} if method.also is None else method.also(state)
        shares = None if _are_too_many(method, state, federation, hyper) else of_data(method.shares)
        return View(models, labels, guess, of_data(method.mixture), also, shares)

    return Program(advance, start, rounds, view)


def map_over_runs(f: Callable[..., Out], settings: Settings, mapped: int) -> Callable[..., Out]:
    """Convert a function f of one run to a function of runs, with a leading axis of runs on its first `mapped` arguments and on its
    results. With `settings.sequential` that axis has one entry, and f is computed as for one run."""

    def batched(*args: Tree) -> Out:
        with jax.default_matmul_precision(settings.precision):
            if not settings.sequential:
                return jax.vmap(f, in_axes=(0,) * mapped + (None,) * (len(args) - mapped))(*args)
            of_run = jax.tree.map(lambda a: jnp.squeeze(a, 0), args[:mapped])
            out: Out = jax.tree.map(lambda a: jnp.expand_dims(a, 0), f(*of_run, *args[mapped:]))
            return out

    return batched


def _are_too_many(method: Method, state: Tree, federation: Federation, hyper: Hyper) -> bool:
    """Return whether clients mix each other's models and are too many to compute that at each evaluation."""
    if method.shares is None:
        return True
    clients, models = jax.eval_shape(method.shares, state, federation, hyper).shape
    return bool(clients == models and clients * models > MAX_SHARES)


def _make_report(settings: Settings, carry: Carry, info: Info) -> Report:
    """Return the history's values of a round, with copies of the sums: the carry's own arrays are lost with the next rounds."""
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
    method: Method, settings: Settings, key: Array, state: Tree, federation: Federation, hyper: Hyper, t: Array, kept: ClientState
) -> tuple[Tree, Info]:
    """One round: draw the participants, decay the learning rate, let the method do its work. `kept`: of devices and flight."""
    state, federation = enter_round(method, state, federation, t)
    federation = flip_labels(settings.sending, hyper, federation)
    key = keys.fold(key, "round", t)
    participants = cohort.draw(key, federation, settings.participants, t, hyper, kept)
    if kept.flight is not None:
        participants = asynchronous.board(kept.flight, participants)
    state, info = method.round(key, state, federation, participants, decay_rate(hyper, t))
    return state, asynchronous.add_flight(info, participants.kept.flight)


def enter_round(method: Method, state: Tree, federation: Federation, t: Array | int) -> tuple[Tree, Federation]:
    """Return the federation as it is in round t (`data.drift`), and the state with its true groups if these are the method's
    clusters. An evaluation after t rounds sees both as round t will."""
    if federation.drift is None:
        return state, federation
    federation = federation.at(t)
    return state if method.follow is None else method.follow(state, federation), federation
