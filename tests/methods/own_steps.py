"""Rounds of methods whose clients take steps of their own, and the models that they are scored
with."""

import jax.numpy as jnp
import numpy as np

from tests import play
from tests.methods.ways import WAYS
from tests.play import seven_clients as federation
from tests.reference import plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)


def play_on(name, way=WAYS["batches"], hyper=None, made=None, **options):
    return play.rounds(
        name, made or federation(), ROUNDS, PARTICIPANTS, SEED, hyper=hyper, work=way, **options
    )


def global_model(out, t=-1):
    """f32[1, d] after t rounds."""
    return np.asarray(out.method.also(out.states[t])["global"][0])


def adapted(out, alpha, made=None):
    """The models that Per-FedAvg's clients are scored with."""
    hyper = {"lr": jnp.float32(0.1), "alpha": jnp.float32(alpha)}
    return np.asarray(out.method.adapt(out.states[-1], made or federation(), hyper))
