"""`data.normalise`: what models see, by the promise: over the samples that train, as their clients
see them, each pixel has mean 0 and deviation 1, or is 0; and no sample is far from them."""

import jax
import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment.assemble import host_federation
from cfljax.federation import gather
from cfljax.federation.pack import pack
from cfljax.types import Parts, Source
from cfljax.types.federation import NEVER
from tests.federation.helpers import fake, parts
from tests.often import rarely

samples = jax.jit(gather.samples)
SMALL = {"name": "digits", "clients": 12, "samples_per_client": 20, "test": "global"}
CASES = {
    "plain": {"partition": "iid"},
    "rotated": {"partition": "rotated", "groups": 4},
    "between quarter turns": {"partition": "rotated", "groups": 2, "angles": [0, 20]},
    "a view": {"partition": "shards", "views": [{"name": "rotated", "groups": 3}]},
    "two views": {"partition": "iid", "views": ["rotated", {"name": "label_swap", "groups": 2}]},
    "turned mixes": {"partition": "dirichlet", "views": ["rotated"], "test": "own"},
    "turned by label": {
        "partition": "iid",
        "views": [{"name": "rotated", "groups": 2, "labels": [1, 2, 5]}],
        "test": "own",
    },
    "a shift": {"partition": "feature_shift", "kind": "offset", "groups": 3},
    "later turned": {
        "partition": "iid",
        "drift": {"what": "rotation", "kind": "sudden", "at": [3], "share": 0.5},
    },
    "some apart": {
        "partition": "rotated",
        "groups": 2,
        "validation": 0.2,
        "new_clients": {"share": 0.25, "shots": 3},
        "arrive": {"clients": 2, "round": 3},
    },
}


def seen(normalise, round=0, **data):
    """Which samples there are and what their clients see in this round: split -> (client i32[n], x
    f32[n, F])."""
    table = SMALL | data | {"normalise": normalise}
    (run,) = read_spec({"data": table, "method": ["fedavg"], "seeds": [0]}).runs()
    whole = host_federation(run)
    federation = whole.at(round)
    held = [rows_of(split) for split in whole.splits.values()]
    of, rows = (np.concatenate(each) for each in zip(*held, strict=True))
    x = np.asarray(samples(federation, of, rows, np.ones(len(rows), bool))[0])
    x = x.reshape(len(x), -1)
    if (view := federation.view) is not None:  # a shift comes after the scaling
        mine = view.of[of]
        x = x if view.offset is None else x - view.offset[mine][:, None]
        x = x if view.gain is None else x / view.gain[mine][:, None]
    ends = np.cumsum([len(rows) for _, rows in held])[:-1]
    splits = zip(np.split(of, ends), np.split(x, ends), strict=True)
    return whole, dict(zip(whole.splits, splits, strict=True))


def rows_of(split):
    """(client i32[n], row of the pool i32[n]) of all samples of a split."""
    of = np.repeat(np.arange(len(split.count)), split.count)
    rows = [split.rows[a : a + n] for a, n in zip(split.start, split.count, strict=True)]
    return of, np.concatenate(rows)


def standardised(raw, now):
    """`now`, and what it must be: each pixel by mean and deviation of the samples `raw`, 0 where
    these are all equal, for the pixels that have a deviation of at least a 255th of a byte's range
    or none."""
    raw = raw.astype(np.float64)
    deviation = raw.std(0)
    clear = (deviation >= 1) | (deviation == 0)
    assert clear.mean() > 0.9
    wanted = (now - raw.mean(0)) / np.maximum(deviation, 1) * (deviation > 0)
    return wanted[:, clear], clear


@pytest.mark.parametrize("case", CASES)
def test_each_pixel_is_standardised_by_what_clients_see_and_train_on(case):
    federation, first = seen("pixel", **CASES[case])
    _, raw = seen("none", **CASES[case])
    of, x = raw["train"]
    trains = np.asarray(federation.arrive)[of] < NEVER
    _, clear = standardised(x[trains], x[trains])
    inputs = first["train"][1][trains][:, clear].astype(np.float64)
    np.testing.assert_allclose(inputs.mean(0), 0, atol=1e-4)
    varies = np.ptp(x[trains][:, clear], axis=0) > 0
    np.testing.assert_allclose(inputs.std(0), varies, atol=1e-4)
    for round in (0, 3):
        now, raw_now = (seen(how, round, **CASES[case])[1] for how in ("pixel", "none"))
        for split in first:
            wanted, _ = standardised(x[trains], raw_now[split][1])
            np.testing.assert_allclose(now[split][1][:, clear], wanted, atol=2e-4)
            assert np.abs(now[split][1]).max() <= 255


@pytest.mark.parametrize("case", ["rotated", "between quarter turns", rarely("some apart")])
def test_where_images_are_turned_all_samples_are_those_that_clients_see(case):
    _, raw = seen("none", **CASES[case])
    everything = np.concatenate([x for _, x in raw.values()])
    for split, (_, x) in seen("pixel_all", **CASES[case])[1].items():
        wanted, clear = standardised(everything, raw[split][1])
        np.testing.assert_allclose(x[:, clear], wanted, atol=2e-4)
        assert np.abs(x).max() <= 255


def inputs_of(parts, source, normalise="pixel"):
    """(x of the training samples, x of the test samples) of all clients."""
    federation = pack(parts, source, normalise)
    held = [rows_of(split) for split in (federation.train, federation.test)]
    of, rows = (np.concatenate(each) for each in zip(*held, strict=True))
    x, _ = samples(federation, of, rows, np.ones(len(of), bool))
    return np.split(np.asarray(x), [len(held[0][0])])


def a_table(train, test):
    """A source of the columns f32[n, F] of a table."""
    y = [np.zeros(len(x), np.int32) for x in (train, test)]
    train, test = (np.asarray(x, np.float32) for x in (train, test))
    return Source("table", train, y[0], test, y[1], 1)


def test_a_column_that_nobody_trained_with_is_no_input():
    """Columns of a table: a town of two, a town that is in the test samples alone, one that is in
    one training sample, and numbers in small and in large units."""
    rng = np.random.default_rng(0)
    both, unseen, once = rng.integers(2, size=600), np.arange(600) == 550, np.arange(600) == 7
    small, large = 1e-6 * rng.normal(size=600), 1e6 + 1e4 * rng.normal(size=600)
    x = np.stack([both, unseen, once, small, large], axis=1)
    source = a_table(x[:500], x[500:])
    parts = Parts([np.arange(250), np.arange(250, 500)], np.arange(500, 600), np.full(2, -1))
    train, test = inputs_of(parts, source)
    assert not train[:, 1].any() and not test[:, 1].any()
    np.testing.assert_allclose(train.mean(0, dtype=np.float64), 0, atol=1e-4)
    np.testing.assert_allclose(train.std(0, dtype=np.float64), [1, 0, 1, 1, 1], rtol=1e-3)
    assert np.abs(test).max() < 5


def test_a_pixel_that_hardly_varies_in_training_has_bounded_inputs():
    x = np.zeros((2000, 2), np.uint8)
    x[0, 0], x[1990, 0], x[:, 1] = 3, 255, np.arange(2000) % 256
    y = np.zeros(2000, np.int32)
    source = Source("faint", x[:1900], y[:1900], x[1900:], y[1900:], 1)
    parts = Parts([np.arange(1900)], [np.arange(1900, 2000)], np.zeros(1))
    train, test = inputs_of(parts, source)
    assert 0 < np.abs(train[:, 0]).max() < 4 and 254 < np.abs(test[:, 0]).max() <= 255
    np.testing.assert_allclose(train[:, 1].std(), 1, rtol=1e-5)


def test_a_sample_counts_as_often_as_clients_hold_it():
    source = fake(20, 4, shape=(3,))
    rows = [np.array([0, 1, 2]), np.array([2, 3]), np.array([2, 4, 5])]
    train, _ = inputs_of(Parts(rows, np.arange(20, 24), np.zeros(3)), source)
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, rtol=1e-5)


@pytest.mark.parametrize("normalise", ["pixel", "pixel_all"])
def test_a_pixel_that_never_changes_is_0(normalise):
    source, value = fake(shape=(2, 2)), 7
    source = source._replace(
        x_train=np.full_like(source.x_train, value), x_test=np.full_like(source.x_test, value)
    )
    made = Parts([np.arange(1200)], [np.arange(1200, 1500)], np.zeros(1))
    assert not any(x.any() for x in inputs_of(made, source, normalise))
    pool = pack(made, source, normalise).pool
    assert not ((255 - pool.mean) * pool.scale).any()


@pytest.mark.parametrize("kind", ["invert", "offset"])
def test_values_beyond_one_are_not_shifted_as_if_they_were_not(kind):
    """Floats from 0 to 255 keep their values with "unit": 1 - 255 is no inverted image."""
    source = fake()
    wide = source._replace(
        x_train=source.x_train.astype(np.float32), x_test=source.x_test.astype(np.float32)
    )
    made = parts("feature_shift", wide, clients=4, groups=2, kind=kind)
    with pytest.raises(SpecError, match='data.normalise = "unit": .* from 0 to 255, .*"pixel"'):
        pack(made, wide)
    pack(made, wide, "pixel")
    narrow = wide._replace(x_train=wide.x_train / 255, x_test=wide.x_test / 255)
    pack(made, narrow)
    pack(parts("feature_shift", wide, clients=4, groups=2, kind="gain"), wide)
