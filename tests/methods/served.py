"""Rounds of a method whose server has an optimiser."""

import dataclasses
import functools

import jax
import numpy as np

from cfljax import keys
from cfljax.local.parts import divide_model
from cfljax.methods import METHODS
from cfljax.registry.options import drop_traced, list_traced
from cfljax.round.stages import add_stages
from cfljax.round.stages.server import Server
from tests import play, toy
from tests.play import seven_clients as federation

SEED, ROUNDS, PARTICIPANTS = 5, 4, 3


@functools.cache
def served(name, optimiser, table, model, options):
    """(a method, its compiled init and round)."""
    config = METHODS.check(name, dict(options), f"method.{name}")
    make, solver = METHODS.entry(name).make, toy.solver(model)
    apart = divide_model(model, table or config.parts) if table or config.parts else None
    made = make(
        drop_traced(config), model, dataclasses.replace(solver, parts=apart) if table else solver
    )
    if optimiser is not None:
        made = add_stages(made, (Server(config.moved_by_server, *optimiser, model, apart),))
    return made, jax.jit(made.init), jax.jit(made.round)


def run(
    name,
    optimiser,
    rate=0.5,
    table=None,
    model=None,
    rounds=ROUNDS,
    fed=None,
    participants=PARTICIPANTS,
    **options,
):
    """(states, infos, method) of some rounds; `optimiser` None: without."""
    config = METHODS.check(name, options, f"method.{name}")
    made, init, step = served(
        name, optimiser, tuple((table or {}).items()), model or toy.model(), tuple(options.items())
    )
    numbers = {
        k: np.float32(v) for k, v in ({"lr": 0.1, "server.lr": rate} | list_traced(config)).items()
    }
    key, fed = keys.root(SEED), fed or federation()
    prepared = (
        {} if made.setup is None else made.setup(key, fed, numbers | {"participants": participants})
    )
    states, infos = [init(key, fed, numbers, jax.tree.map(np.asarray, prepared))], []
    for t in range(rounds):
        each = keys.fold(key, "round", t)
        state, info = step(
            each, states[-1], fed, play.drawn(each, fed, participants, t, numbers), numbers
        )
        states, infos = (
            [*states, play.regrouped(made, key, state, fed, numbers, t + 1, rounds)],
            [*infos, info],
        )
    return play.Played(states, infos, made)
