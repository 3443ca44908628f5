"""FedRoD against a plain numpy program, and what it needs."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play, toy
from tests.reference import fedrod as reference
from tests.reference import plain


@pytest.mark.parametrize("labels", ["the same", "other ones"])
def test_fedrod_follows_the_plain_program(labels):
    """Also where labels change after the first round."""
    made, model = toy.federation("classes", clients=7, classes_per_client=2, seed=4), toy.model(7)
    made = made if labels == "the same" else toy.relabelled(made, round=1)
    out = play.rounds("fedrod", made, 3, 4, 0, lr=0.2, model=model)
    w, own = reference.fedrod(
        plain.Net(6, 4, 7),
        lambda t: plain.Clients(made.at(t)),
        toy.first_model_of(model),
        3,
        4,
        0.2,
        4,
    )
    assert np.abs(np.asarray(out.method.also(out.states[-1])["global"][0][0]) - w).max() < 1e-5
    assert np.abs(out.models() - own).max() < 1e-5


def test_fedrod_needs_one_label_for_each_sample():
    with pytest.raises(SpecError, match='method.name = "fedrod": counts samples by their label'):
        METHODS.check("fedrod", {}, "method.fedrod").check_labels("method.fedrod")
