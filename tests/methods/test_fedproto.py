"""FedProto against a plain numpy program, and what it refuses."""

import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play, toy
from tests.reference import fedproto as reference
from tests.reference import plain


def test_fedproto_follows_the_plain_program():
    made, model = toy.federation("classes", clients=7, classes_per_client=2, seed=4), toy.model(7)
    clients, net = plain.Clients(made), plain.Net(6, 4, 7)
    hypers = [{"lr": 0.2, "lam": 4.0}, {"lr": 0.2, "lam": 0.0}]
    out, other = play.batch("fedproto", made, 4, 3, [0, 0], hypers, model=model)
    own, protos, sent = reference.fedproto(net, clients, toy.first_model_of(model), 4, 3, 0.2, 4.0)
    assert np.abs(out.models - own).max() < 1e-5
    assert [out.history[f"bytes_{way}"][-1] / 4 for way in ("down", "up")] == sent
    assert np.abs(other.models - own).max() > 1e-3
    right = total = 0
    for w, (x, y) in zip(own, clients.test, strict=True):
        near = [
            min(protos, key=lambda label: np.sum((z - protos[label]) ** 2))
            for z in net.features(w, x)
        ]
        right, total = right + np.sum(near == y), total + len(y)
    assert out.diag["accuracy_prototypes"][-1] == pytest.approx(right / total)


@pytest.mark.parametrize(
    "train", [{"privacy": {"clip": 1.0}}, {"compress": "sign"}, {"robust": "median"}], ids=str
)
def test_fedproto_refuses_what_is_for_updates(train):
    with pytest.raises(
        SpecError,
        match=f"train.{next(iter(train))} with method.fedproto: it sends prototypes, not updates",
    ):
        METHODS.check("fedproto", {}, "m").check_train("method.fedproto", Train(**train))
