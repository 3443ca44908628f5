"""FedALA against a plain numpy program, and where it is FedAvg."""

import numpy as np

from tests import play, toy
from tests.methods.host_clusters import federation
from tests.reference import fedala as reference
from tests.reference import plain


def test_fedala_follows_the_plain_program():
    made, model = toy.federation("classes", clients=7, classes_per_client=2, seed=4), toy.model(7)
    numbers = {"eta": 30.0, "share": 0.7, "first_epochs": 3}
    out = play.rounds("fedala", made, 5, 4, 0, lr=0.2, model=model, **numbers)
    w, own, weights = reference.fedala(
        plain.Net(6, 4, 7), plain.Clients(made), toy.first_model_of(model), 5, 4, 0.2, **numbers
    )
    assert np.abs(np.asarray(out.states[-1].w[0]) - w).max() < 1e-5
    assert np.abs(out.models() - own).max() < 1e-5
    kept = np.asarray(out.states[-1].rows)[:, 2 * model.size - weights.shape[1] : 2 * model.size]
    assert np.abs(kept - weights).max() < 1e-4 and ((weights > 0.01) & (weights < 0.99)).any()


def test_fedala_that_learns_no_weights_is_fedavg():
    out, average = (
        play.rounds(name, federation(), 3, 3, 0, **more)
        for name, more in (("fedala", {"eta": 0.0}), ("fedavg", {}))
    )
    assert (
        np.array_equal(out.states[-1].w, average.models())
        and (out.models() == average.models()).all()
    )
