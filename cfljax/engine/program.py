"""The compiled round: rounds and evaluations in one loop on the device, over an axis of runs. Knows no method by name.

A batch of runs shares one program. `chunk` trains up to `evaluations` evaluations further and is compiled once, whatever the
number of rounds: where to stop is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.engine.evaluation import evaluate
from cfljax.engine.settings import WORD, Carry, Settings
from cfljax.federation import cohort
from cfljax.local.send import as_trained_on
from cfljax.types import Array, Federation, Hyper, Info, Method, Model, Tree

Rows = dict[str, Array]
"""Quantities of the history, each with an entry for every evaluation of a chunk."""
Out = TypeVar("Out")


class Program(NamedTuple):
    """Pure functions, to be jitted. All arrays but the federation and the bounds have a leading axis R of runs."""

    start: Callable[[Array, Hyper, dict[str, Tree], Federation], Carry]
    """start(keys, hyper, setup, federation): what the runs carry before the first round."""
    chunk: Callable[[Carry, Array, Hyper, Federation, Array], tuple[Carry, Rows]]
    """chunk(carry, keys, hyper, federation, bounds) -> (carry, rows[R, E]). bounds i32[3] are done, stop, first: from `done` rounds
    to `stop`, with an evaluation after every `eval_every` rounds, after the last one, and at the start when `first`;
    `rows["valid"]` says which rows are filled."""


def make_program(method: Method, model: Model, settings: Settings) -> Program:
    """The program of a method on a model."""

    def start(key: Array, hyper: Hyper, setup: dict[str, Tree], federation: Federation) -> Carry:
        state = method.init(key, as_trained_on(settings.sending, hyper, federation), hyper, setup)
        zero = _zeros(jax.eval_shape(lambda s: _round(method, settings, key, s, federation, hyper, jnp.int32(0))[1], state))
        return Carry(state, zero, jnp.zeros((4, 2), jnp.int32), jnp.int32(0), jnp.int32(-1), jnp.full(federation.clients, jnp.nan))

    def chunk(carry: Carry, key: Array, hyper: Hyper, federation: Federation, bounds: Array) -> tuple[Carry, Rows]:
        done, stop, first = bounds[0], bounds[1], bounds[2] > 0

        def body(t: Array, carry: Carry) -> Carry:
            state, info = _round(method, settings, key, carry.state, federation, hyper, t)
            more = jnp.stack(info.traffic)
            high, low = carry.traffic[:, 0] + more // WORD, carry.traffic[:, 1] + more % WORD
            total = jnp.stack([high + low // WORD, low % WORD], axis=1)
            lost = (carry.diverged_at < 0) & info.lost
            diverged_at = jnp.where(lost, t + 1, carry.diverged_at)
            return Carry(state, info, total, carry.nonfinite + info.nonfinite, diverged_at, carry.client_accuracy)

        def segment(at: tuple[Carry, Array, Array], _: None) -> tuple[tuple[Carry, Array, Array], Rows]:
            carry, done, first = at
            next_row = jnp.minimum(settings.rounds, (done // settings.eval_every + 1) * settings.eval_every)
            end = jnp.where(first, done, jnp.minimum(stop, next_row))
            carry = jax.lax.fori_loop(done, end, body, carry)
            due = first | ((end > done) & (end == next_row))
            evaluated = lambda c: evaluate(method, model, settings, c, federation, _decayed(hyper, end), end)  # noqa: E731
            skipped = lambda c: (c, _zeros(jax.eval_shape(evaluated, c)[1]))  # noqa: E731
            carry, row = jax.lax.cond(due, evaluated, skipped, carry)
            return (carry, end, jnp.array(False)), row | {"valid": due, "round": end}

        (carry, _, _), rows = jax.lax.scan(segment, (carry, done, first), length=settings.evaluations)
        return carry, rows

    def over_runs(f: Callable[..., Out], mapped: int) -> Callable[..., Out]:
        def batched(*args: Tree) -> Out:
            with jax.default_matmul_precision(settings.precision):
                runs, shared = args[:mapped], args[mapped:]
                if settings.sequential:
                    return jax.lax.map(lambda run: f(*run, *shared), runs)
                return jax.vmap(f, in_axes=(0,) * mapped + (None,) * len(shared))(*args)

        return batched

    return Program(over_runs(start, 3), over_runs(chunk, 3))


def _zeros(shapes: Tree) -> Tree:
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)


def _round(
    method: Method, settings: Settings, key: Array, state: Tree, federation: Federation, hyper: Hyper, t: Array
) -> tuple[Tree, Info]:
    """One round: draw the participants, decay the learning rate, let the method do its work."""
    federation = as_trained_on(settings.sending, hyper, federation)
    key = keys.fold(key, "round", t)
    participants = cohort.draw(key, federation, settings.participants, t, hyper)
    return method.round(key, state, federation, participants, _decayed(hyper, t))


def _decayed(hyper: Hyper, t: Array) -> Hyper:
    """The numbers of round t, with its learning rate."""
    if "lr_decay" not in hyper:
        return hyper
    return hyper | {"lr": hyper["lr"] * hyper["lr_decay"] ** t.astype(jnp.float32)}
