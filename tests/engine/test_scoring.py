"""Scores and losses of many clients at once, against a loop over clients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import data
from cfljax.contract.padding import pad
from cfljax.devices import spread
from cfljax.engine import scoring
from cfljax.local import stream
from tests import toy
from tests.reference import plain


@pytest.fixture(scope="module")
def case():
    federation, model = toy.federation("label_permutation", clients=9, groups=2), toy.model(5)
    return (
        federation,
        model,
        jnp.asarray(drawn(model, 3, 0)),
        jnp.array([0, 1, 2, 0, 1, 2, 0, 1, 2]),
    )


def drawn(model, number, seed):
    """f32[number, d]: models, on the host."""
    return np.array(
        jax.jit(lambda key: jax.vmap(model.init)(jax.random.split(key, number)))(
            jax.random.key(seed)
        )
    )


def score(model, federation, models, labels, who, sequential=True):
    """By a program that is traced anew, as tests change what it is made of."""

    def program(federation, models, labels, who):
        return scoring.score(model, federation, federation.test, models, labels, who, sequential)

    return jax.jit(program)(federation, models, labels, who)


def by_hand(federation, models, labels):
    net, clients = plain.Net(6, 4, 5), plain.Clients(federation)
    rows = []
    for c, (x, y) in enumerate(clients.test):
        w = np.asarray(models[int(labels[c])], np.float64)
        rows.append(
            ((net.logits(w, x).argmax(axis=1) == y).sum(), net.losses(w, x, y).sum(), len(y))
        )
    return np.array(rows).T


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(("tile", "block"), [(4, None), (32, None), (None, 16), (None, 4096)])
def test_scores(case, sequential, tile, block, monkeypatch):
    federation, model, models, labels = case
    monkeypatch.setattr(scoring, "_is_product_faster", lambda *_: tile is None)
    monkeypatch.setattr(scoring, "block_size", lambda *_: block)
    monkeypatch.setattr(scoring, "TILE", tile)
    keep = np.arange(9) != 4
    found = score(model, federation, models, labels, keep, sequential)
    correct, loss, count = by_hand(federation, models, labels)
    assert np.array_equal(found.correct, correct * keep) and np.array_equal(
        found.samples, count * keep
    )
    assert np.allclose(found.loss, loss * keep, rtol=1e-5)


def test_clients_meet_their_own_model_only_where_that_is_less_work(case, monkeypatch):
    federation, model, models, labels = case
    many = toy.replace(federation.test, rows=jnp.zeros(400 * 9, jnp.int32), longest=400)
    few = toy.replace(federation.test, rows=jnp.zeros(7 * 9, jnp.int32), longest=40)
    large, small = model._replace(size=10_000_000), model
    monkeypatch.setattr(scoring, "block_size", lambda *_: 64)

    def together(split, models, model=large, sequential=True, federation=federation):
        return scoring._is_product_faster(model, federation, split, models, sequential)

    assert together(many, 1) and not together(many, 2)  # 400 samples are 13 tiles
    assert together(few, 5) and not together(
        few, 6
    )  # 63 samples are a block; nine tiles of 32 and they are 351
    assert together(few, 6, small)  # a client by itself costs some hundred samples of a small model
    side_by_side = [together(many, models, sequential=False) for models in (32, 33)]
    assert side_by_side == [True, False]  # there all wait for the largest
    sharded = toy.replace(federation, owner=jnp.zeros(9, jnp.int32))
    monkeypatch.setattr(scoring, "devices", lambda: 4)  # each has a fourth of the rows
    quarter = toy.replace(many, rows=many.rows[:900])
    assert not together(quarter, 2, federation=sharded)

    def product(*_):
        raise AssertionError("all models on all samples")

    monkeypatch.setattr(scoring, "_score_by_product", product)
    models, labels = np.asarray(models), np.asarray(labels)
    score(model, federation, models.repeat(20, 0), labels, np.ones(9, bool))
    with pytest.raises(AssertionError, match="all models"):
        score(model, federation, models[:1], 0 * labels, np.ones(9, bool))


def test_dummies_are_not_scored(case):
    federation, model, models, labels = case
    padded = jax.device_put(pad(federation, clients=2, samples=3, rng=np.random.default_rng(0)))
    found = score(model, padded, models, np.pad(labels, (0, 2)), np.ones(11, bool))
    correct, _, _ = by_hand(federation, models, labels)
    assert np.array_equal(found.correct[:9], correct) and not np.any(found.samples[9:])


@pytest.mark.parametrize(("owned", "together"), [(True, True), (True, False), (False, False)])
def test_devices_score_each_client_once(case, owned, together, monkeypatch):
    """All three have all samples here, and each must count those of its own clients alone."""
    federation, model, models, labels = case
    monkeypatch.setattr(scoring, "_is_product_faster", lambda *_: together)
    lying = toy.replace(federation, owner=jnp.array([0, 0, 0, 0, 1, 2, 2, 2, 2]) if owned else None)

    def traced(models):
        token = spread._devices.set(3)
        try:
            return scoring.score(model, lying, lying.test, models, labels, jnp.ones(9, bool))
        finally:
            spread._devices.reset(token)

    found = jax.jit(jax.vmap(traced, None, axis_name=spread.AXIS, axis_size=3))(models)
    correct, loss, count = by_hand(federation, models, labels)
    assert (np.asarray(found.correct) == correct).all() and (
        np.asarray(found.samples) == count
    ).all()
    assert np.allclose(found.loss, loss, rtol=1e-5)


def test_a_shared_test_set_is_scored_once_per_model():
    federation, model = toy.federation("iid", clients=4, test="global"), toy.model(5)
    assert federation.test.shared
    models, labels = drawn(model, 2, 1), np.array([0, 1, 1, 0])
    found = score(model, federation, models, labels, np.ones(4, bool))
    correct, loss, count = by_hand(federation, models, labels)
    assert np.array_equal(found.correct, correct) and np.array_equal(found.samples, count)
    assert np.allclose(found.loss, loss, rtol=1e-5)


@pytest.mark.parametrize(
    ("partition", "options"), [("label_permutation", {}), ("feature_shift", {"kind": "gain"})]
)
def test_a_shared_test_set_is_scored_as_each_client_sees_it(partition, options):
    """And those that never train choose by what they see; whoever holds out a half of it is scored
    on the other."""
    made, model = (
        toy.federation(partition, clients=6, groups=2, test="global", **options),
        toy.model(5),
    )
    alone, start, count = (
        np.isin(np.arange(6), [2, 3]),
        np.asarray(made.test.start),
        np.asarray(made.test.count),
    )
    train = toy.replace(made.train, count=np.where(alone, 0, made.train.count))
    half = toy.replace(made.test, start=np.where(alone, 40, start), count=count - 40 * alone)
    federation = toy.replace(made, train=train, test=half)
    models = drawn(model, 5, 1)
    models[1] = np.nan
    labels, who = np.array([0, 0, 3, 0, 3, 2]), np.arange(6) != 4
    padded = jax.device_put(pad(federation, clients=2, samples=3, rng=np.random.default_rng(0)))
    correct, loss, count = by_hand(federation, models, labels)
    for some, more in ((federation, 0), (padded, 2)):
        found = score(model, some, models, np.pad(labels, (0, more)), np.pad(who, (0, more)))
        assert np.array_equal(found.correct[:6], correct * who) and np.array_equal(
            found.samples[:6], count * who
        )
        assert np.allclose(found.loss[:6], loss * who, rtol=1e-5) and not np.any(found.samples[6:])
    assert len(set(correct[[0, 1, 3]])) == 2  # 0 and 1 are one group, 3 the other
    losses = np.stack([by_hand(federation, models, np.full(6, k))[1] for k in range(5)])
    least = jax.jit(functools.partial(scoring.least_loss_among, model))
    for among in ([0, 1, 2, 3, 4], [1, 3], [1]):
        seen = np.asarray(least(federation, half, models, np.isin(np.arange(5), among), who))
        wanted = [
            min(among, key=lambda k, c=c: np.nan_to_num(losses[k, c], nan=np.inf)) for c in range(6)
        ]
        assert [seen[c] for c in (0, 1, 2, 3, 5)] == [wanted[c] for c in (0, 1, 2, 3, 5)]


def test_of_equal_models_in_different_blocks_the_lowest_is_chosen(case, monkeypatch):
    federation, model, models, _ = case
    monkeypatch.setattr(scoring, "MODELS_AT_ONCE", 2)
    least = jax.jit(functools.partial(scoring.least_loss_among, model))
    everybody = np.ones(9, bool)
    found = least(
        federation, federation.test, models[np.array([0, 1, 2, 1, 0])], np.ones(5, bool), everybody
    )
    losses = np.stack([by_hand(federation, models, np.full(9, k))[1] for k in range(3)])
    assert np.array_equal(found, losses.argmin(axis=0)) and np.asarray(found).min() < 2


@pytest.mark.parametrize("block", [16, 4096])
def test_losses_of_every_model_on_some_clients(case, block, monkeypatch):
    federation, model, models, _ = case
    monkeypatch.setattr(stream, "block_size", lambda *_: block)
    ids, mask = np.array([7, 2, 5, 0], np.int32), np.array([True, True, False, True])
    losses = jax.jit(functools.partial(stream.client_losses, model))
    found = losses(federation, federation.train, models, ids, mask)
    net, clients = plain.Net(6, 4, 5), plain.Clients(federation)
    for s, c in enumerate(np.asarray(ids)):
        want = [
            net.loss(w, *clients.train[c]) if mask[s] else 0.0
            for w in np.asarray(models, np.float64)
        ]
        assert np.allclose(found[:, s], want, rtol=1e-5)


def test_the_work_is_that_of_the_clients_asked_for(case):
    federation, model, models, _ = case
    visits = []

    def visit(carry, x, y, owner, valid):
        jax.debug.callback(lambda: visits.append(1))
        return carry

    ids = jnp.arange(9)
    stream.fold_blocks(federation, federation.train, ids, ids == 3, 16, visit, 0)
    jax.effects_barrier()
    assert len(visits) == -(-int(federation.train.count[3]) // 16)


def test_blocks_shrink_for_wide_models(case):
    federation, model, *_ = case
    assert stream.block_size(model, federation, 1, 1 << 20) == 4096
    assert (
        stream.block_size(model, federation, 1, 63) == 64
        and stream.block_size(model, federation, 1, 0) == 16
    )  # computed whole
    wide = dataclasses.replace(federation)
    assert stream.block_size(toy.model(70_000), wide, 8, 10_000) < 100


def _jitted(params, x, key=None):
    return jax.jit(lambda p, v: jnp.tanh(v @ p))(params, x)


def _scanned(params, x, key=None):
    halves = x.reshape(-1, 2, 1000).swapaxes(0, 1), params.reshape(2, 1000, 100)
    return jax.lax.scan(
        lambda total, half: (total + half[0] @ half[1], None), jnp.zeros((x.shape[0], 100)), halves
    )[0]


@pytest.mark.parametrize("forward", [lambda p, x, key=None: x @ p, _jitted, _scanned])
def test_models_share_a_blocks_samples_and_each_has_its_activations(forward):
    """2,000 features and 100 outputs: ten models' outputs are no larger than the samples, forty are
    twice as large."""
    source = data.load("blobs", {"samples": 90, "features": 2000, "classes": 4}, seed=0)
    federation, small = toy.federation(clients=3, source=source), toy.model()
    model = small._replace(size=200_000, unravel=lambda w: w.reshape(2000, 100), forward=forward)
    one, ten, forty = (
        stream.block_size(model, federation, copies, 524 * 256) for copies in (1, 10, 40)
    )
    assert one == ten == 512 and forty == 256


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_devices_have_equally_many_blocks(case, devices, monkeypatch):
    federation, model, *_ = case
    monkeypatch.setattr(stream, "devices", lambda: devices)
    for most in (8_326, 10_000, 1 << 18):
        block = stream.block_size(model, federation, 1, most)
        assert (
            block <= 4096
            and -(-most // block) % devices == 0
            and -(-most // block) * block < 1.05 * most
        )
    wide = toy.model(61_000)
    assert stream.block_size(wide, federation, 1, 100_000) * 61_000 <= stream.MAX_FLOATS_ON_CPU
