"""Macro-F1 and average precision are those of scikit-learn, over the test samples of all scored
clients, each by its own model."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score

from cfljax.engine import metrics
from cfljax.engine.label_metrics import average_precision, macro_f1, mean_precision
from cfljax.federation.pack import pack
from cfljax.models import build
from cfljax.types import Parts, Source

SIZES = [40, 0, 7, 33, 90]


def seen_by(several=False, classes=5, shared=False, model="mclr"):
    """(what a metric sees of five clients with three models, of whom one is not scored; the samples
    of each)."""
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    y = (
        (rng.random((n, classes)) < 0.3).astype(np.int32)
        if several
        else rng.integers(classes, size=n).astype(np.int32)
    )
    if several:
        y[:, -1] = 0  # a label that nobody has
    x[:, :classes] += 0.8 * (y if several else np.eye(classes)[y])
    source = Source("s", x[:20], y[:20], x, y, classes)
    test = np.split(20 + np.arange(n), np.cumsum(SIZES)[:-1])
    parts = Parts(
        [np.arange(4 * c, 4 * c + 4) for c in range(5)],
        20 + np.arange(n) if shared else test,
        np.full(5, -1),
    )
    federation = jax.device_put(pack(parts, source))
    network = build(model, {}, (6,), classes, several)
    models = jax.jit(lambda key: jax.vmap(network.init)(jax.random.split(key, 3)))(
        jax.random.key(1)
    )
    who, scoring = jnp.array([True, True, False, True, True]), jnp.array([0, 1, 1, 2, 0])
    none = jnp.zeros(5)
    seen = metrics.Seen(
        network,
        federation,
        federation.test,
        models,
        scoring,
        scoring,
        who,
        none,
        none,
        none,
        np.int32(1),
    )
    held = [np.concatenate(test) if shared else rows for rows in test]
    return seen, [(x[rows - 20], y[rows - 20]) for rows in held]


def jitted(metric, seen):
    return jax.jit(
        lambda federation, test, models: metric(
            seen._replace(federation=federation, test=test, models=models)
        )
    )(seen.federation, seen.test, seen.models)


def logits_of(seen, c, x):
    """Of multinomial regression, in plain numpy."""
    leaves = jax.tree.leaves(
        jax.eval_shape(seen.model.unravel, jax.ShapeDtypeStruct((seen.model.size,), np.float32))
    )
    w, (bias, kernel) = np.asarray(seen.models, np.float64)[seen.scoring[c]], leaves
    return x.astype(np.float64) @ w[bias.size :].reshape(kernel.shape) + w[: bias.size]


def together(seen, held):
    """(logits, labels) of all scored clients' samples."""
    pairs = [(logits_of(seen, c, x), y) for c, (x, y) in enumerate(held) if seen.who[c] and len(x)]
    return tuple(np.concatenate(each) for each in zip(*pairs, strict=True))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_macro_f1_is_scikit_learns(several, shared):
    seen, held = seen_by(several, shared=shared)
    logits, y = together(seen, held)
    found = (logits > 0).astype(int) if several else logits.argmax(1)
    there = np.flatnonzero((y.sum(0) + found.sum(0)) > 0) if several else None
    wanted = f1_score(y, found, average="macro", labels=there)
    assert 0.2 < wanted < 0.9 and np.isclose(jitted(macro_f1, seen), wanted, atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_average_precision_is_scikit_learns(several):
    seen, held = seen_by(several)
    logits, y = together(seen, held)
    assert np.isclose(jitted(average_precision, seen), by_sklearn(logits, y, several), atol=1e-6)


def by_sklearn(logits, y, several):
    scores = logits if several else logits - np.log(np.exp(logits).sum(1, keepdims=True))
    truth = y if several else np.eye(scores.shape[1])[y]
    there = truth.sum(0) > 0
    return average_precision_score(truth[:, there], scores[:, there], average="macro")


def test_with_one_test_set_for_all_the_average_precision_is_the_mean_over_clients():
    seen, held = seen_by(True, shared=True)
    each = [
        by_sklearn(logits_of(seen, c, x), y, True) for c, (x, y) in enumerate(held) if seen.who[c]
    ]
    assert (
        np.isclose(jitted(average_precision, seen), np.mean(each), atol=1e-6)
        and np.std(each) > 0.01
    )


def test_equal_scores_are_one_threshold():
    rng = np.random.default_rng(1)
    scores, truth = (
        rng.integers(4, size=(60, 3)).astype(np.float32),
        (rng.random((60, 3)) < 0.4).astype(np.float32),
    )
    valid = rng.random(60) < 0.8
    wanted = average_precision_score(truth[valid], scores[valid], average="macro")
    assert np.isclose(jax.jit(mean_precision)(scores, truth, valid), wanted, atol=1e-6)


def test_two_classes_with_one_output_count_as_two():
    seen, held = seen_by(classes=2, model="mclr")
    one = seen.model._replace(
        forward=lambda params, x, key=None: jnp.diff(seen.model.forward(params, x), axis=-1)
    )
    for metric in (macro_f1, average_precision):
        assert np.isclose(jitted(metric, seen._replace(model=one)), jitted(metric, seen), atol=1e-6)


def test_the_loss_of_several_labels_is_the_mean_cross_entropy_of_each():
    seen, held = seen_by(True)
    x, y = held[0]
    logits = logits_of(seen, 0, x)
    p = 1 / (1 + np.exp(-logits))
    wanted = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(1)
    assert np.allclose(seen.model.loss(jnp.asarray(logits), jnp.asarray(y)), wanted, rtol=1e-5)
    right = seen.model.correct(jnp.asarray(logits), jnp.asarray(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(right, ((logits > 0) == (y == 1)).all(1))
