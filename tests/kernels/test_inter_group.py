import numpy as np
import pytest

from cfljax.kernels.inter_group import inter_group, newcomer_group
from tests.kernels.compiled import compiled

rng = np.random.default_rng(0)
FORMULAS = ["difference", "normalised", "weighted"]


def plain(models, eta, how):
    models = models.astype(np.float64)
    out = models.copy()
    for j, own in enumerate(models):
        others = [w for i, w in enumerate(models) if i != j]
        if how == "difference":
            apart = [(w - own) / np.linalg.norm(w - own) for w in others if (w != own).any()]
            out[j] = own + eta * sum(apart, np.zeros_like(own))
            continue
        sized = [(w, np.linalg.norm(w)) for w in others if w.any()]
        out[j] = own + eta * sum((w / s for w, s in sized), np.zeros_like(own))
        if how == "weighted":
            out[j] /= 1 + eta * sum(1 / s for _, s in sized)
    return out


@pytest.mark.parametrize("how", FORMULAS)
def test_readings(how):
    models = rng.normal(size=(4, 30)).astype(np.float32)
    models[2] = models[0]  # identical models contribute zero
    models[3] = 0
    np.testing.assert_allclose(
        compiled(inter_group, models, 0.3, how=how), plain(models, 0.3, how), atol=1e-5
    )
    np.testing.assert_array_equal(compiled(inter_group, models, 0.0, how=how), models)


def test_close_models_pull_with_their_full_unit():
    models = np.ones((2, 10), np.float32)
    models[1, 3] += 1e-6
    pull = compiled(inter_group, models, 0.5, how="difference") - models
    assert pull[0, 3] == pytest.approx(0.5, abs=1e-5) and pull[1, 3] == pytest.approx(
        -0.5, abs=1e-5
    )


@pytest.mark.parametrize("how", FORMULAS)
def test_inactive_and_broken_groups_take_no_part(how):
    models = rng.normal(size=(5, 8)).astype(np.float32)
    models[1], models[3] = np.nan, 1e30
    out = compiled(inter_group, models, 0.3, how=how, active=np.array([1, 1, 1, 0, 1], bool))
    rest = [0, 2, 4]
    np.testing.assert_allclose(out[rest], plain(models[rest], 0.3, how), atol=1e-5)
    assert np.isnan(out[1]).all() and (out[3] == models[3]).all()


def test_newcomers_join_the_most_similar_group():
    directions = rng.normal(size=(4, 20)).astype(np.float32)
    directions[3] = directions[1]  # a tie
    delta = rng.normal(size=(50, 20)).astype(np.float32)
    cosine = (
        (directions @ delta.T)
        / np.linalg.norm(directions, axis=1)[:, None]
        / np.linalg.norm(delta, axis=1)
    )
    cosine[3] = cosine[1]
    np.testing.assert_array_equal(
        compiled(newcomer_group, directions, delta), ((1 - cosine) / 2).argmin(0)
    )
    delta[0] = 0
    out = compiled(newcomer_group, directions, delta, np.array([False, True, True, True]))
    assert (out > 0).all() and out[0] == 1


def test_an_inactive_group_is_not_in_the_denominator():
    models = np.array([[1.0, 0], [0, 2], [3, 4]], np.float32)
    out = compiled(inter_group, models, 0.5, how="weighted", active=np.array([True, True, False]))
    np.testing.assert_allclose(out[0], [1 / 1.25, 0.5 / 1.25], atol=1e-6)
