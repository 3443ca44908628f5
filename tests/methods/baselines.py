"""Seven clients of unequal sizes, and runs of the baselines on them."""

import functools

import jax.numpy as jnp
import numpy as np

from tests import play, toy
from tests.reference import fedavg as reference
from tests.reference import plain

ROUNDS, PARTICIPANTS = 4, 4
WORK = {"batch": 6, "epochs": 2}


@functools.cache
def federation():
    """Clients of unequal numbers of samples, which weigh in means of models and of losses."""
    made = toy.federation("label_permutation", clients=7, groups=2)
    count = made.train.count - 5 * jnp.arange(7, dtype=jnp.int32)
    return toy.replace(made, train=toy.replace(made.train, count=count))


def engine(name, made=None, hyper=None, options=None, seed=0):
    return play.batch(
        name,
        made or federation(),
        ROUNDS,
        PARTICIPANTS,
        [seed],
        [hyper or {}],
        WORK,
        **(options or {}),
    )[0]


def assert_is_plain(name, hyper=None, options=None, local=None):
    """Compare a run of a method with one global model with the plain program; `local`: what clients
    do there."""
    output = engine(name, None, hyper, options)
    net, clients, losses = plain.Net(6, 4), plain.Clients(federation()), []
    history = reference.fedavg(
        net, clients, toy.start(), ROUNDS, PARTICIPANTS, 0.1, **WORK, **(local or {}), losses=losses
    )
    assert np.allclose(output.models, history[-1], atol=1e-5)
    assert np.allclose(output.history["train_loss"][1:], losses, rtol=1e-5)
    labels = np.zeros(7, int)
    curve = [plain.accuracy(net, clients, models, labels) for models in [[toy.start()], *history]]
    assert np.allclose(output.history["accuracy"], curve, atol=1e-6)
    assert np.ptp(curve) > 0.1
    sent = 4 * toy.model().size * PARTICIPANTS * np.arange(ROUNDS + 1)
    assert np.array_equal(output.history["bytes_up"], sent) and np.array_equal(
        output.history["bytes_down"], sent
    )
