"""FedCCFA against a plain numpy program, and which classes it keeps apart."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.methods.fedccfa import head_step
from cfljax.methods.fedproto import head_rows
from cfljax.registry.options import list_traced
from cfljax.types import LocalStep
from tests import play, toy
from tests.methods.host_clusters import federation
from tests.reference import fedccfa as reference
from tests.reference import host_clusters, plain


def test_fedccfa_follows_the_plain_program():
    made, model = toy.federation("dirichlet", clients=9, alpha=0.7, seed=2), toy.model(7)
    clients, net = plain.Clients(made), plain.Net(6, 4, 7)
    numbers = {"head_lr": 0.3, "eps": 0.05, "gamma": 0.5, "tau": 0.3}
    lr = {"lr": 0.15, "momentum": 0.5}
    fixed = {"align_after": 1, "balanced_steps": 4, "balanced_samples": 3}
    others = [{"eps": 0.0}, {"gamma": 1e9}]
    hypers = [lr | numbers | other for other in ({}, *others)]
    out, *others = play.batch("fedccfa", made, 4, 6, [0] * 3, hypers, model=model, **fixed)
    own, sent, clusters = reference.fedccfa(
        net, clients, toy.first_model_of(model), 4, 6, **lr, **numbers, **fixed
    )
    drawn = np.unique([plain.cohort(0, t, clients.uid, 6) for t in range(4)])
    assert np.abs(out.models - own)[drawn].max() < 1e-5
    assert [
        out.history[f"bytes_{way}"][-1] / 4 - 4 * 6 * model.size for way in ("down", "up")
    ] == sent
    assert any(1 < len(set(found)) < len(found) for found in clusters)
    assert all(np.abs(other.models - own)[drawn].max() > 1e-3 for other in others)


def test_fedccfa_s_heads_have_ten_times_the_rate_of_the_round():
    numbers = {"lr": 0.03, "momentum": 0.9}
    assert "head_lr" not in list_traced(METHODS.check("fedccfa", {}, "m"))
    assert head_step(numbers) == LocalStep.of(numbers)._replace(lr=10 * 0.03)
    assert head_step(numbers | {"head_lr": 0.5}) == LocalStep.of(numbers)._replace(lr=0.5)


def test_fedccfa_finds_which_classes_have_another_meaning_for_a_group():
    """And that a prototype is known is no mean: in float32 14 times 1/14 are more than 1."""
    made, model = toy.federation("label_swap", clients=14, groups=2, seed=1), toy.model(7)
    out = play.rounds("fedccfa", made, 6, None, 0, model=model, align_after=2)
    heads = out.models()[:, head_rows(model)]
    found = [
        host_clusters.renamed(np.unique(heads[:, c], axis=0, return_inverse=True)[1]).tolist()
        for c in range(4)
    ]
    swapped = np.ptp(np.asarray(made.view.labels), axis=0) > 0
    assert swapped.tolist() == [True, True, False, False]
    assert found == [np.asarray(made.group).tolist() if apart else [0] * 14 for apart in swapped]
    known = np.asarray(out.states[-1].shared)[:, :-1].reshape(14, 4, -1)[:, :, -1]
    assert (known == 1).all()
    assert [int(info.traffic.floats_down) for info in out.infos] == [0] + 5 * [14 * 4 * 7]


def test_fedccfa_needs_an_output_for_each_class():
    with pytest.raises(
        SpecError,
        match='model "three": has 3 outputs for 4 classes; take a model with one for each',
    ):
        METHODS.entry("fedccfa").options().first_shared(
            toy.model(7, classes=3)._replace(name="three"), federation()
        )
