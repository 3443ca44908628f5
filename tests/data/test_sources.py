"""The sources that need no file."""

import numpy as np
import pytest

from cfljax import data
from cfljax.errors import DataError, SpecError


def test_digits_are_bytes_and_cut_the_same_for_every_seed():
    a, b = data.load("digits", seed=0), data.load("digits", seed=1)
    assert (
        a.x_train.dtype == np.uint8
        and a.x_train.shape == (1438, 8, 8, 1)
        and a.x_train.max() == 255
    )
    assert len(a.y_test) == 359 and a.classes == 10 and a.y_train.dtype == np.int32
    np.testing.assert_array_equal(a.x_train, b.x_train)
    share = np.bincount(a.y_test) / (np.bincount(a.y_test) + np.bincount(a.y_train))
    assert abs(share - 0.2).max() < 0.005


def test_blobs_follow_the_seed():
    table = {"samples": 50, "classes": 5, "features": 3}
    a, b, c = (data.load("blobs", table, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(a.x_train, b.x_train)
    assert not np.array_equal(a.x_train, c.x_train)
    assert a.x_train.shape == (40, 3) and a.x_test.shape == (10, 3) and a.classes == 5


def test_blobs_without_spread_are_their_centres():
    s = data.load("blobs", {"samples": 50, "classes": 5, "spread": 0})
    assert len(np.unique(np.concatenate([s.x_train, s.x_test]), axis=0)) == 5


def test_synthetic_has_one_user_per_client_and_a_tenth_of_each_for_testing():
    s = data.load("synthetic", {"users": 7})
    train, test = np.bincount(s.user_train, minlength=7), np.bincount(s.user_test, minlength=7)
    assert (train + test >= 50).all() and s.classes == 10 and s.x_train.shape[1] == 60
    np.testing.assert_array_equal(train, (0.9 * (train + test)).astype(int))


def test_synthetic_labels_of_a_client_are_linear_in_its_features():
    s = data.load("synthetic", {"users": 1, "size": 1500, "near": 0.1, "classes": 3, "features": 5})
    from sklearn.linear_model import LogisticRegression

    scale = s.x_train.std(axis=0)
    fit = LogisticRegression(C=1e4, max_iter=2000).fit(s.x_train / scale, s.y_train)
    assert fit.score(s.x_test / scale, s.y_test) > 0.97


def test_synthetic_feature_variance_falls_as_j_to_the_minus_1_2():
    s = data.load("synthetic", {"users": 1, "size": 20000, "near": 0.2})
    variance = s.x_train.var(axis=0)
    np.testing.assert_allclose(variance, np.arange(1, 61) ** -1.2, rtol=0.1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_synthetic_size_is_met_by_drawing_the_sizes_again(seed):
    s = data.load("synthetic", {"size": 75349}, seed=seed)
    assert abs(len(s.y_train) + len(s.y_test) - 75349) <= 0.01 * 75349
    assert s.user_train.max() == 99


def test_synthetic_alpha_and_beta_spread_models_and_features():
    def spread(**table):
        s = data.load("synthetic", {"users": 40, **table}, seed=3)
        return np.std([s.x_train[s.user_train == u].mean() for u in range(40)])

    assert spread(feature_spread=5.0) > 3 > 1 > spread(feature_spread=0.0)


def test_a_size_that_no_draw_meets_is_an_error():
    with pytest.raises(DataError, match="data.size = 60"):
        data.load("synthetic", {"users": 100, "size": 60})


def test_options_are_known_before_data_and_checked():
    assert data.options_for("mnist") is data.FileOptions
    assert "model_spread" in data.options_for("synthetic").__dataclass_fields__
    with pytest.raises(SpecError, match=r'data\.uers.*did you mean "users"'):
        data.load("synthetic", {"uers": 1})
    made = data.options_for("blobs")(samples=20)
    assert len(data.load("blobs", made).y_train) == 16
