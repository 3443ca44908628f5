"""A model of a body and a head, and rounds of methods that share it in part."""

import functools

import jax
import numpy as np

from cfljax import keys
from cfljax.local.parts import divide_model
from cfljax.methods import METHODS
from cfljax.registry.options import drop_traced, list_traced
from cfljax.round.common import first_models
from tests import play, toy
from tests.play import seven_clients as federation
from tests.reference import plain

SEED, ROUNDS, PARTICIPANTS, HIDDEN = 5, 3, 5, 7
NET = plain.Net(6, 4, HIDDEN)
MODEL = toy.model(HIDDEN)
HEAD = np.arange(MODEL.size) >= 7 + 42


def kinds(table):
    out = np.full(MODEL.size, "cluster")
    out[~HEAD], out[HEAD] = table.get("body", "cluster"), table.get("head", "cluster")
    return out


@functools.cache
def made(name, table, work, options):
    """(a method in parts, its compiled init and round)."""
    config = METHODS.check(name, dict(options), f"method.{name}")
    solver = toy.solver(MODEL, parts=divide_model(MODEL, table), **dict(work))
    method = METHODS.entry(name).make(drop_traced(config), MODEL, solver)
    return method, jax.jit(method.init), jax.jit(method.round)


def run(name, table, work=None, rounds=ROUNDS, fed=None, hyper=None, **options):
    """(states, infos, method) of some rounds."""
    method, init, step = made(name, *(tuple(each.items()) for each in (table, work or {}, options)))
    key, numbers = keys.root(SEED), {"lr": np.float32(0.1)} | (hyper or {})
    fed = fed or federation()
    prepared = (
        {}
        if method.setup is None
        else method.setup(key, fed, numbers | {"participants": PARTICIPANTS})
    )
    regroup = lambda state, t: play.regrouped(method, key, state, fed, numbers, t, rounds)  # noqa: E731
    states, infos = [regroup(init(key, fed, numbers, prepared), 0)], []
    for t in range(rounds):
        each = keys.fold(key, "round", t)
        state, info = step(
            each, states[-1], fed, play.drawn(each, fed, PARTICIPANTS, t, numbers), numbers
        )
        states, infos = [*states, regroup(state, t + 1)], [*infos, info]
    return play.Played(states, infos, method)


def starts(k):
    return np.asarray(first_models(keys.root(SEED), MODEL, k), np.float64)


def two_rounds(name, parts):
    """(what a method with these parts has become after two rounds, its federation, the numbers of
    the run)."""
    # The default of these is the head
    compared = {"compare": "whole"} if name in ("fedclust", "fesem") else {}
    options, fed = play.options(name) | compared, jax.device_put(play.nine_clients())
    options.pop("model", None)  # MODEL has a head
    hyper = {k: np.float32(v) for k, v in list_traced(METHODS.check(name, options, "m")).items()}
    return run(name, parts, rounds=2, fed=fed, hyper=hyper, **options), fed, hyper


FROZEN = np.where(HEAD, "frozen", "cluster")
