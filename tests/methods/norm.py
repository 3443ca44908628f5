"""A model with batch normalisation, and its plain program."""

import numpy as np

from cfljax import keys
from cfljax.round.common import first_models
from tests import play, toy
from tests.play import seven_clients as federation
from tests.reference import batched, parts, plain

SEED, ROUNDS, PARTICIPANTS, LR, WIDTH = 5, 2, 5, 0.1, 7
MODEL = toy.batched_model(WIDTH)
NET = batched.Net(6, 4, WIDTH, LR)
NORM = np.arange(MODEL.size) < 4 * WIDTH


def assert_is_plain(name, options):
    """Compare rounds of a method on this model with the plain program."""
    out = play.rounds(name, federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL, **options)
    kinds = np.where(NORM & (name == "fedbn"), "client", "cluster")
    starts = np.asarray(
        first_models(keys.root(SEED), MODEL, options.get("clusters", 1)), np.float64
    )
    assign = None if options else [0] * 7
    clients = plain.Clients(federation())
    wanted, own, labels = parts.run(
        NET, clients, starts, SEED, ROUNDS, PARTICIPANTS, kinds, "samples", assign=assign
    )
    wanted = np.where(kinds == "client", own, wanted[0]) if name == "fedbn" else wanted
    np.testing.assert_allclose(out.models(), wanted, rtol=1e-5, atol=1e-5)
    assert name == "fedbn" or out.labels().tolist() == list(labels)
