"""Adaptive-FedAvg against a plain numpy program."""

import numpy as np

from tests import play, toy
from tests.methods.host_clusters import NET, federation
from tests.reference import adaptive_fedavg as reference
from tests.reference import plain


def test_adaptive_fedavg_follows_the_plain_program():
    betas = {"beta1": 0.7, "beta2": 0.3, "beta3": 0.6}
    out = play.rounds("adaptive_fedavg", federation(), 6, 5, 0, lr=0.3, **betas)
    w, factors = reference.adaptive_fedavg(
        NET, plain.Clients(federation()), toy.start(0), 6, 5, 0.3, *betas.values()
    )
    assert np.abs(out.models()[0] - w).max() < 1e-5
    assert np.allclose([info.diag["rate"] for info in out.infos], factors[1:], rtol=1e-4)
    assert min(factors) < 0.3 < 1 == factors[1]
