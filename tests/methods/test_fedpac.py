"""FedPAC against a plain numpy program, the weights of its heads, and where it is FedRep."""

import jax
import numpy as np
import pytest

from cfljax.kernels import simplex
from tests import play, toy
from tests.often import rarely
from tests.reference import fedpac as reference
from tests.reference import plain


def test_fedpac_weights_of_equal_clients_are_the_inverse_variances():
    v, there = np.array([0.2, 0.1, 0.4, 9.0], np.float32), np.array([True, True, True, False])
    found = jax.jit(simplex.combine_heads)(v, np.ones((4, 6), np.float32), there)
    assert np.allclose(found, [2 / 7, 4 / 7, 1 / 7, 0], atol=1e-3)


def test_fedpac_weights_of_clients_that_differ_much_are_their_own():
    far = 100 * np.eye(5, dtype=np.float32)
    assert np.allclose(
        jax.jit(simplex.combine_heads)(np.full(5, 0.1, np.float32), far, np.ones(5, bool)),
        np.eye(5),
        atol=1e-3,
    )


def test_fedpac_of_one_participant_and_without_a_pull_is_fedrep():
    """Adam shows that the body begins with a new optimiser."""
    made, model = toy.federation("dirichlet", clients=7, alpha=0.5, seed=2), toy.model(7)
    given = {
        "lr": 0.05,
        "model": model,
        "work": {"epochs": 2, "optimizer": "adam"},
        "head_epochs": 1,
    }
    ours, fedrep = (
        play.rounds(name, made, 4, 1, **given, **more)
        for name, more in (("fedpac", {"lam": 0.0}), ("fedrep", {}))
    )
    body = slice(0, 7 + 6 * 7)
    assert np.abs(ours.models()[:, body] - fedrep.models()[0, body]).max() < 1e-5
    assert np.abs(ours.models() - ours.models(0)).max() > 0.1


def test_fedpac_leaves_out_whose_features_are_not_finite():
    made, model = (
        toy.broken(toy.federation("dirichlet", clients=7, alpha=0.5, seed=2), 3, value=1e25),
        toy.model(7),
    )
    out = play.rounds("fedpac", made, 2, None, lr=0.0, model=model)
    centroids, size = np.asarray(out.states[-1].shared).reshape(4, -1), plain.Clients(made).size
    assert np.isfinite(centroids).all() and centroids[:, -1].sum() == size.sum() - size[3]
    assert np.allclose(out.models(), out.models(0), atol=1e-6)


@pytest.mark.parametrize(
    ("head_epochs", "participants", "head_lr"), [rarely(1, 4, 0.2), (2, 7, 0.5)]
)
def test_fedpac_follows_the_plain_program(head_epochs, participants, head_lr):
    made, model = toy.federation("dirichlet", clients=7, alpha=0.5, seed=2), toy.model(7)
    clients, net, given = (
        plain.Clients(made),
        plain.Net(6, 4, 7),
        {"head_epochs": head_epochs, "lam": 4.0},
    )
    out, other = play.batch(
        "fedpac",
        made,
        4,
        participants,
        [0, 0],
        [{"lr": 0.2, "lam": lam, "head_lr": head_lr} for lam in (4.0, 0.0)],
        {"epochs": 2},
        model,
        head_epochs=head_epochs,
    )
    own, sent = reference.fedpac(
        net,
        clients,
        toy.first_model_of(model),
        4,
        participants,
        np.where(np.arange(model.size) >= 7 + 6 * 7, head_lr, 0.2),
        epochs=2,
        **given,
    )
    assert np.abs(out.models - own).max() < 1e-4 < 1e-3 < np.abs(other.models - own).max()
    assert [
        out.history[f"bytes_{way}"][-1] / 4 - 4 * participants * model.size
        for way in ("down", "up")
    ] == sent
