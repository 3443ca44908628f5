"""`auto = "val_loss"`: the number of clusters is the one with which some rounds end with the least validation loss.

For each number from 1 to `most` the method makes `try_rounds` rounds from the start, with the draws of the run itself. Then the
clients that are there tell the loss of their own cluster's model on the samples that they set aside (`data.validation`); the mean
over these samples decides, the smallest number where several are equal. Test data and true groups have no say. The run with the
chosen number begins with the rounds of its own try.

Round 0 counts what is sent for all this: the rounds of all other numbers, and for each number the last look: one model down and one
loss up for each client that is asked, all models of the number down where it must first choose one by loss. Pre-training from the
first model is the same for all numbers, so its updates are sent once, in the rounds of the run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.devices.placement import from_host
from cfljax.federation import cohort
from cfljax.kernels.number import BEYOND
from cfljax.lazy import jax, jnp
from cfljax.local.meter import metering
from cfljax.local.optimiser import decayed
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import TRIES, CountedConfig, Number
from cfljax.methods.shared.feedback import with_feedback
from cfljax.types import Array, Federation, Hyper, Method, Traffic, Tree, on_host


class Outcome(NamedTuple):
    """What comes of the try of a number."""

    loss: Array
    """f32[]: the validation loss after its rounds."""
    rounds: Array
    """i32[4]: what its rounds have sent and those of the other numbers have not, in the order of `Traffic`."""
    look: Array
    """i32[4]: what the last look has sent."""


def with_tries(config: CountedConfig, solver: Solver, method: Method) -> Method:
    """The method; where its options ask for tries, its `setup` makes them before it prepares for the number that was chosen."""
    if not config.counts_clusters or config.auto != TRIES:
        return method
    assert method.setup is not None
    prepare = method.setup
    program = functools.cache(functools.partial(_program, config, method, solver))

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        participants = int(hyper.get("participants", federation.clients))
        prepared = [prepare(key, federation, hyper | {"clusters": jnp.int32(k)}) for k in range(1, config.most + 1)]
        tries = [program(participants)(key, federation, hyper, each) for each in prepared]
        losses, rounds, looks = (np.array([np.asarray(each[i]) for each in tries]) for i in range(3))
        best = least(losses)
        curve = np.full(BEYOND * config.most, np.nan, np.float32)
        curve[: config.most] = losses
        sent = rounds.sum(axis=0) - rounds[best] + looks.sum(axis=0)
        number = Number(on_host(np.array(best + 1, np.int32)), on_host(curve), on_host(sent.astype(np.int32)))
        return prepared[best] | {"number": number}

    return method._replace(setup=setup)


def least(losses: np.ndarray) -> int:
    """The position of the least loss of f[n], the first of equal ones; one that is not finite is never the least of several."""
    return int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))


def _program(config: CountedConfig, method: Method, solver: Solver, participants: int) -> Callable[..., Outcome]:
    """HOST. (key, federation, hyper, what `setup` has made) -> what comes of the try."""
    rounds, tried = jnp.int32(config.try_rounds), method
    if solver.sending.feedback:
        tried = with_feedback(method, solver.model, "")

    def attempt(key: Array, federation: Federation, hyper: Hyper, prepared: dict[str, Tree]) -> Outcome:
        def one(t: Array, at: tuple[Tree, Array]) -> tuple[Tree, Array]:
            of_round, numbers = keys.fold(key, "round", t), decayed(hyper, t)
            drawn = cohort.draw(of_round, federation, participants, t, hyper)
            with metering(federation.clients) as meter:  # `beside` is pre-training
                state, info = tried.round(of_round, at[0], federation, drawn, numbers)
            same = jnp.where((t == 0) | (not config.moving), jnp.stack(meter.beside), 0)
            return state, at[1] + jnp.stack(info.traffic) - same

        start = (tried.init(key, federation, hyper, prepared), jnp.zeros(4, jnp.int32))
        state, sent = jax.lax.fori_loop(0, rounds, one, start)
        who = asked(federation, rounds)
        alone = who & (tried.models(state)[1] < 0) & config.chooses_by_loss
        look = jnp.stack(_look(who, alone, prepared["number"].clusters))
        return Outcome(validation_loss(tried, solver, federation, state, hyper, rounds), sent, look)

    return from_host(attempt, solver.plan)


def asked(federation: Federation, round: Array) -> Array:
    """bool[C]: who is asked for a validation loss: clients that are there, and have such samples."""
    assert federation.valid is not None
    return cohort.present(federation, round) & (federation.valid.count > 0)


def _look(who: Array, alone: Array, clusters: Array) -> Traffic:
    """What is sent for the losses of clients `who` bool[C]; those where `alone` bool[C] first choose among the models of all
    clusters."""
    number, more = jnp.sum(who, dtype=jnp.int32), jnp.sum(alone, dtype=jnp.int32)
    return Traffic(number + more * (clusters - 1), jnp.zeros_like(number), jnp.zeros_like(number), number)


def validation_loss(method: Method, solver: Solver, federation: Federation, state: Tree, hyper: Hyper, round: Array) -> Array:
    """f32[]: the mean loss over the validation samples of the clients that are there, each by its own cluster's model."""
    assert federation.valid is not None
    assert method.score is not None
    models, _ = method.models(state)
    which = jnp.maximum(method.score(state, federation, decayed(hyper, round)), 0)
    everyone, there = jnp.arange(federation.clients, dtype=jnp.int32), asked(federation, round)
    held = dataclasses.replace(federation, train=federation.valid)
    losses = solver.losses(held, models, everyone, there)
    samples = jnp.where(there, federation.valid.count, 0)
    own = jnp.take_along_axis(losses, which[None], axis=0)[0]
    return jnp.sum(own * samples) / jnp.maximum(jnp.sum(samples), 1)
