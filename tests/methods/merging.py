"""Ten clients of two groups, whose clusters become one in the course of a run."""

import functools

import numpy as np

from cfljax.types import Cohort
from tests import toy
from tests.reference import plain

SEED, PARTICIPANTS = 2, 4
WORK = {"epochs": 2, "batch": 5}
NET = plain.Net(6, 4)


@functools.cache
def federation():
    return toy.federation("label_permutation", clients=10, groups=2)


def present(*ids):
    return Cohort(
        np.array(ids, np.int32), np.ones(len(ids), bool), np.ones(len(ids), np.float32), np.int32(0)
    )
