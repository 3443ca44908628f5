"""Rounds of a method without the engine's evaluation, one compiled function for all of them: quick to compile."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.engine import program
from cfljax.methods import METHODS
from cfljax.methods.shared.common import first_model
from tests import toy


class Played(NamedTuple):
    """The states after 0, 1, … rounds (after regrouping, where there was one) and the Info of each round, as numpy."""

    states: list
    infos: list
    method: object

    def models(self, t=-1):
        return np.asarray(self.method.models(self.states[t])[0])

    def labels(self, t=-1):
        return np.asarray(self.method.models(self.states[t])[1])

    def diag(self, name, t=-1):
        return self.infos[t].diag[name]


@functools.cache
def compiled(name, options, participants, work, sequential=True):
    """(method, jitted round, jitted init)."""
    entry, model = METHODS.entry(name), toy.model()
    config = METHODS.check(name, dict(options), f"method.{name}")
    method = entry.make(config, model, toy.solver(model, sequential=sequential, **dict(work)))
    settings = program.Settings(rounds=1, participants=participants)

    def step(key, state, federation, hyper, t):
        return program._round(method, settings, key, state, federation, hyper, t)

    return method, jax.jit(step), jax.jit(method.init)


def play(name, federation, hyper=None, rounds=3, participants=None, seed=0, work=(("epochs", 1),), state=None, **options):
    """Play rounds 0 … rounds − 1, with the host's part of the method."""
    participants = participants or federation.clients
    method, step, init = compiled(name, tuple(sorted(options.items())), participants, tuple(work))
    key = keys.root(seed)
    hyper = {k: jnp.float32(v) for k, v in ({"lr": 0.1} | (hyper or {})).items()}
    setup = {} if method.setup is None else method.setup(key, federation, hyper)
    state = init(key, federation, hyper, {k: jnp.asarray(v) for k, v in setup.items()})
    boundaries = () if method.regroup_after is None else tuple(method.regroup_after(rounds))
    states, infos = [], []
    for t in range(rounds + 1):
        if t in boundaries:
            state = method.regroup(keys.fold(key, "regroup", t), state, federation, hyper, t)
            state = jax.tree.map(jnp.asarray, state)
        states.append(jax.device_get(state))
        if t < rounds:
            state, info = step(key, state, federation, hyper, jnp.int32(t))
            infos.append(jax.device_get(info))
    return Played(states, infos, method)


def start(seed=0):
    """f64[d]: w_0."""
    return np.asarray(first_model(keys.root(seed), toy.model()), np.float64)


def broken(federation, client):
    """The same federation, one client's training samples NaN (for others, too, who hold them)."""
    x, split = np.asarray(federation.pool.x).copy(), federation.train
    x[np.asarray(split.rows)[int(split.start[client]) :][: int(split.count[client])]] = np.nan
    return toy.replace(federation, pool=federation.pool._replace(x=jnp.asarray(x)))


def identical(federation, client=0):
    """The same federation, everybody with one client's training samples as it sees them."""
    split = federation.train
    start, count = (jnp.full_like(jnp.asarray(a), a[client]) for a in (split.start, split.count))
    view = federation.view
    view = None if view is None else view._replace(of=jnp.full_like(jnp.asarray(view.of), view.of[client]))
    return toy.replace(federation, train=toy.replace(split, start=start, count=count), view=view)
