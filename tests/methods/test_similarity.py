"""Clusterings by sketches of the updates are those by the updates, and hold no full update of everybody."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.sketch import SIZE
from cfljax.methods import METHODS, pretrain
from tests import toy

MODEL = toy.model(hidden=700)  # 7,704 parameters: more than a sketch has numbers
NUMBERS = {"lr": jnp.float32(0.1)}


@pytest.fixture(scope="module")
def federation():
    return toy.federation("label_permutation", clients=12, groups=3, samples_per_client=30)


def prepared(name, federation, **options):
    config = METHODS.check(name, options, f"method.{name}")
    method = METHODS.entry(name).make(config, MODEL, toy.solver(MODEL, epochs=2))
    hyper = {f: jnp.float32(getattr(config, f)) for f in ("mu", "eta_g") if hasattr(config, f)} | NUMBERS
    return jax.tree.map(np.asarray, method.setup(keys.root(0), federation, hyper | {"participants": 4}))


@pytest.mark.parametrize(
    "name, options",
    [
        ("fedgroup", {"clusters": 3, "alpha": 3}),
        ("fedgroup", {"clusters": 3, "alpha": 3, "cold_start": "madc"}),
        ("ocfl", {"warm_start": True}),
        ("one_shot", {"clusters": 3, "warm_start": True, "pretrain_epochs": 2}),
    ],
)
def test_the_same_clusters_and_the_same_models_to_start_from(name, options, federation, monkeypatch):
    exact, widths, original = prepared(name, federation, **options), [], pretrain.shortened
    monkeypatch.setattr(pretrain, "shortened", lambda *a: widths.append((b := original(*a)).shape[1]) or b)
    short = prepared(name, federation, similarity="sketch", **options)
    assert set(widths) == {SIZE}
    np.testing.assert_array_equal(short["labels"], exact["labels"])
    np.testing.assert_array_equal(short["guess"], exact["guess"])
    a, b = (found["compass"][1] if name == "fedgroup" else found["models"] for found in (short, exact))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_sketches_keep_no_city_block_distances():
    with pytest.raises(SpecError, match='similarity = "sketch".*"l2"'):
        METHODS.check("fl_hc", {"similarity": "sketch"}, "method.fl_hc")
    METHODS.check("fl_hc", {"similarity": "sketch", "metric": "cosine"}, "method.fl_hc")
