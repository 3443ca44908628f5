"""A federation and rounds for methods with control variates, and the comparison with a plain
program."""

import functools

import numpy as np

from tests import play, toy
from tests.methods.ways import WAYS
from tests.reference import feddyn, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)


@functools.cache
def federation(partition="dirichlet"):
    options = {"alpha": 0.3} if partition == "dirichlet" else {"groups": 2}
    return toy.federation(partition, clients=7, **options)


def play_on(
    name,
    way=WAYS["batches"],
    hyper=None,
    made=None,
    rounds=ROUNDS,
    participants=PARTICIPANTS,
    **options,
):
    return play.rounds(
        name, made or federation(), rounds, participants, SEED, hyper=hyper, work=way, **options
    )


def alike(state, models, control, own):
    """Whether a state equals a plain program's."""
    pairs = ((state.models, models), (state.control, control), (state.rows, own))
    return (
        all(np.abs(np.asarray(a) - b).max() < 2e-5 for a, b in pairs) and np.abs(own).max() > 1e-2
    )


def feddyn_is_plain(out, way, made=None, participants=PARTICIPANTS, **numbers):
    w, h, own = feddyn.run(
        NET,
        made or federation(),
        toy.start(SEED),
        SEED,
        len(out.infos),
        participants,
        **numbers,
        **way,
    )
    return alike(out.states[-1], w, -h / numbers["alpha"], -own / numbers["alpha"])
