"""`auto = "val_loss"`: the number of clusters is the one with which some rounds end with the least validation loss.

For each number from 1 to `most` the method makes `try_rounds` rounds from the start, with the draws of the run itself. Then the
clients that are there tell the loss of their own cluster's model on the samples that they set aside (`data.validation`); the mean
over these samples decides, the smallest number where several are equal. Test data and true groups have no say. The run with the
chosen number begins with the rounds of its own try. What the tries of all other numbers have sent is counted in round 0.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.devices.placement import from_host
from cfljax.federation import cohort
from cfljax.kernels.number import BEYOND
from cfljax.local.optimiser import decayed
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import TRIES, CountedConfig, Number
from cfljax.types import Array, Federation, Hyper, Method, Tree, on_host


def with_tries(config: CountedConfig, solver: Solver, method: Method) -> Method:
    """The method; where its options ask for tries, its `setup` makes them before it prepares for the number that was chosen."""
    if not config.counts_clusters or config.auto != TRIES:
        return method
    assert method.setup is not None
    prepare = method.setup
    program = functools.cache(functools.partial(_program, method, solver, config.try_rounds))

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        participants = int(hyper.get("participants", federation.clients))
        prepared = [prepare(key, federation, hyper | {"clusters": jnp.int32(k)}) for k in range(1, config.most + 1)]
        tries = [program(participants)(key, federation, hyper, each) for each in prepared]
        losses, sent = (np.array([np.asarray(each[i]) for each in tries]) for i in (0, 1))
        best = least(losses)
        curve = np.full(BEYOND * config.most, np.nan, np.float32)
        curve[: config.most] = losses
        others = sent.sum(axis=0) - sent[best]
        number = Number(on_host(np.array(best + 1, np.int32)), on_host(curve), on_host(others.astype(np.int32)))
        return prepared[best] | {"number": number}

    return method._replace(setup=setup)


def least(losses: np.ndarray) -> int:
    """The position of the least loss of f[n], the first of equal ones; one that is not finite is never the least of several."""
    return int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))


def _program(method: Method, solver: Solver, rounds: int, participants: int) -> Callable[..., Tree]:
    """HOST. (key, federation, hyper, what `setup` has made) -> (f32[] the validation loss after the rounds, i32[4] the traffic)."""

    def attempt(key: Array, federation: Federation, hyper: Hyper, prepared: dict[str, Tree]) -> tuple[Array, Array]:
        def one(t: Array, at: tuple[Tree, Array]) -> tuple[Tree, Array]:
            of_round, numbers = keys.fold(key, "round", t), decayed(hyper, t)
            drawn = cohort.draw(of_round, federation, participants, t, hyper)
            state, info = method.round(of_round, at[0], federation, drawn, numbers)
            return state, at[1] + jnp.stack(info.traffic)

        start = (method.init(key, federation, hyper, prepared), jnp.zeros(4, jnp.int32))
        state, sent = jax.lax.fori_loop(0, rounds, one, start)
        return validation_loss(method, solver, federation, state, hyper, jnp.int32(rounds)), sent

    return from_host(attempt)


def validation_loss(method: Method, solver: Solver, federation: Federation, state: Tree, hyper: Hyper, round: Array) -> Array:
    """f32[]: the mean loss over the validation samples of the clients that are there, each by its own cluster's model."""
    assert federation.valid is not None
    assert method.score is not None
    models, _ = method.models(state)
    which = jnp.maximum(method.score(state, federation, decayed(hyper, round)), 0)
    everyone, there = jnp.arange(federation.clients, dtype=jnp.int32), cohort.present(federation, round)
    held = dataclasses.replace(federation, train=federation.valid)
    losses = solver.losses(held, models, everyone, there)
    samples = jnp.where(there, federation.valid.count, 0)
    own = jnp.take_along_axis(losses, which[None], axis=0)[0]
    return jnp.sum(own * samples) / jnp.maximum(jnp.sum(samples), 1)
