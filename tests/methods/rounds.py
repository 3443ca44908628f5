"""Rounds of a method without evaluations, compiled once per method and set of static options."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.federation import cohort
from cfljax.methods import METHODS
from cfljax.registry.options import static, traced
from tests import toy


@functools.cache
def _method(name, options, work):
    config = METHODS.check(name, dict(options), f"method.{name}")
    model = toy.model()
    method = METHODS.entry(name).make(static(config), model, toy.solver(model, **dict(work)))
    return config, model, method, jax.jit(method.init), jax.jit(method.round)


def prepared(name, work=None, **options):
    """(config, model, method, jitted init, jitted round), the same objects for the same options but traced numbers."""
    fields = METHODS.entry(name).options.__dataclass_fields__
    fixed = {k: v for k, v in options.items() if not fields[k].metadata["traced"]}
    return _method(name, tuple(sorted(fixed.items())), tuple(sorted((work or {}).items())))


def run(name, federation, rounds=4, participants=5, seed=0, lr=0.1, work=None, hyper=None, **options):
    """(states after 0 … rounds rounds, the rounds' infos, method) of one run."""
    _, _, method, init, step = prepared(name, work, **options)
    config = METHODS.check(name, options, f"method.{name}")
    hyper = {k: jnp.float32(v) for k, v in ({"lr": lr} | traced(config) | (hyper or {})).items()}
    key = keys.root(seed)
    setup = {} if method.setup is None else method.setup(key, federation, hyper | {"participants": participants})
    setup = jax.tree.map(jnp.asarray, setup)  # as the engine does
    states, infos = [init(key, federation, hyper, setup)], []
    for t in range(rounds):
        each = keys.fold(key, "round", t)
        present = cohort.draw(each, federation, participants, jnp.int32(t), hyper)
        state, info = step(each, states[-1], federation, present, hyper)
        states.append(state)
        infos.append(info)
    return states, infos, method


def models_of(method, states):
    """f64[rounds + 1, K, d] and labels [rounds + 1, C]."""
    pairs = [method.models(s) for s in states]
    return np.array([np.asarray(m, np.float64) for m, _ in pairs]), np.array([np.asarray(y) for _, y in pairs])
