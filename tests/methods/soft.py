"""Eight clients of two groups, and rounds of methods with mixtures on them."""

import functools

from tests import play, toy

SEED, ROUNDS, PARTICIPANTS = 2, 4, 5
WORK = {"epochs": 2, "batch": 5}


@functools.cache
def federation():
    return toy.federation("label_permutation", clients=8, groups=2)


def run(name, federation_=None, rounds=ROUNDS, work=None, model=None, **options):
    return play.rounds(
        name,
        federation_ or federation(),
        rounds,
        PARTICIPANTS,
        SEED,
        work=WORK | (work or {}),
        model=model,
        **options,
    )
