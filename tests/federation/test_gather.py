"""Gathering: what a model sees, against plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.contract.padding import pad
from cfljax.federation import gather
from cfljax.federation.groups import even_angles, rotation, rotations
from cfljax.federation.pack import pack
from cfljax.types import Parts, View
from tests.federation.helpers import fake, parts

CASES = {
    "plain": ("iid", {}, "unit"), "standardised": ("iid", {}, "pixel"),
    "rotated": ("rotated", {"groups": 3, "angles": [0.0, 90.0, 33.0]}, "pixel"),
    "labels": ("label_permutation", {"groups": 3}, "none"), "gain": ("feature_shift", {}, "unit"),
    "offset": ("feature_shift", {"kind": "offset"}, "pixel"),
}  # fmt: skip
jitted = jax.jit(gather.samples)
rows_of = jax.jit(gather.client_rows)


def by_hand(federation, client, rows):
    """One sample, in numpy."""
    pool, view = federation.pool, federation.view
    x, y = pool.x[rows].astype(np.float32), pool.y[rows]
    of = None if view is None else view.of[client]
    if view is not None and view.pixels is not None:
        source = view.pixels[of]
        x = np.where(source < 0, 0, x.ravel()[source]).reshape(x.shape)
    x = (x - pool.mean) * pool.scale
    if view is not None:
        x = x * (1 if view.gain is None else view.gain[of]) + (
            0 if view.offset is None else view.offset[of]
        )
        y = y if view.labels is None else view.labels[of, y]
    return x, y


@pytest.mark.parametrize("case", CASES)
def test_samples_are_what_numpy_finds_and_masked_ones_are_zero(case):
    name, options, normalise = CASES[case]
    source = fake(shape=(5, 5))
    federation = pack(parts(name, source, clients=6, **options), source, normalise)
    rng = np.random.default_rng(0)
    client, mask = rng.integers(6, size=40), rng.random(40) < 0.7
    rows = np.where(mask, rng.integers(len(federation.pool.y), size=40), 10**9)
    client = np.where(mask, client, -5)
    for run in (jitted, gather.samples) if case == "rotated" else (jitted,):
        x, y = map(np.asarray, run(federation, client, rows, mask))
        assert x.dtype == jnp.float32 and y.dtype == jnp.int32 and x.shape == (40, 5, 5)
        for b in range(40):
            if mask[b]:
                expected_x, expected_y = by_hand(federation, client[b], rows[b])
                assert np.allclose(x[b], expected_x, rtol=1e-6, atol=1e-6) and y[b] == expected_y
            else:
                assert not x[b].any() and y[b] == 0


def test_a_masked_nan_does_not_pass():
    source = fake(10, 10)
    source = source._replace(
        x_train=np.full((10, 4, 4), np.nan, np.float32), x_test=np.ones((10, 4, 4), np.float32)
    )
    federation = pack(Parts([np.arange(10)], [np.arange(10, 20)], np.zeros(1)), source)
    x, _ = jitted(federation, np.zeros(2, int), np.array([3, 13]), np.array([False, True]))
    assert not np.asarray(x[0]).any() and np.all(np.asarray(x[1]) == 1)


def test_token_ids_are_looked_up():
    source = fake(20, 10, shape=(7,))
    table = np.random.default_rng(0).normal(size=(256, 3)).astype(np.float32)
    ids = source._replace(
        x_train=source.x_train.astype(np.int32), x_test=source.x_test.astype(np.int32), table=table
    )
    federation = pack(parts("iid", ids, clients=2), ids)
    x, _ = jitted(federation, np.zeros(3, int), np.array([4, 25, 0]), np.array([True, True, False]))
    assert (
        np.array_equal(x[:2], table[federation.pool.x[[4, 25]]])
        and x.shape == (3, 7, 3)
        and not np.asarray(x[2]).any()
    )


def test_it_works_under_vmap():
    source = fake()
    federation = pack(parts("rotated", source, clients=8), source)
    rows, mask = np.arange(12).reshape(4, 3), np.ones((4, 3), bool)
    client = np.broadcast_to(np.arange(0, 8, 2)[:, None], (4, 3))
    batched = jax.jit(jax.vmap(gather.samples, (None, 0, 0, 0)))(federation, client, rows, mask)
    flat = jitted(federation, client.ravel(), rows.ravel(), mask.ravel())
    assert all(np.array_equal(a.reshape(b.shape), b) for a, b in zip(batched, flat, strict=True))


def test_one_client_sees_all_alike_also_as_a_tpu_finds_it(monkeypatch):
    source = fake(shape=(5, 5))
    federation = pack(
        parts("rotated", source, clients=6, groups=3, angles=[0.0, 90.0, 33.0]), source, "pixel"
    )
    assert (np.asarray(federation.view.pixels) < 0).any()  # pixels that come from beyond the edge
    rows, mask = np.where(np.arange(12) % 4 == 3, 10**9, np.arange(12)), np.arange(12) % 4 < 3
    of_all = jax.jit(jax.vmap(gather.samples, (None, 0, None, None)))

    def lowered(kind):
        return (
            of_all.trace(federation, np.arange(6), rows, mask)
            .lower(lowering_platforms=(kind,))
            .as_text()
        )

    one_by_one = "12x25x2xi32"  # where each number of each sample is
    assert (
        one_by_one in lowered("cpu")
        and one_by_one in lowered("cuda")
        and one_by_one not in lowered("tpu")
    )
    apart = [jitted(federation, np.full(12, client), rows, mask) for client in range(6)]
    here = of_all(federation, np.arange(6), rows, mask)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *given, tpu, default: tpu(*given))
    as_a_tpu = jax.jit(jax.vmap(lambda *given: gather.samples(*given), (None, 0, None, None)))(
        federation, np.arange(6), rows, mask
    )
    for found in (here, as_a_tpu):
        for a, b in zip(found, map(np.stack, zip(*apart, strict=True)), strict=True):
            assert np.array_equal(a, b)


def test_client_rows_stay_inside_the_client():
    source = fake()
    federation = pack(parts("quantity", source, clients=9), source)
    split = federation.train
    for c in range(9):
        mine, n = split.rows[split.start[c] : split.start[c] + split.count[c]], split.count[c]
        found = np.asarray(rows_of(split, c, np.arange(-2, split.longest + 3)))
        assert (
            np.array_equal(found[2 : 2 + n], mine)
            and np.all(found[:2] == mine[0])
            and np.all(found[2 + n :] == mine[-1])
        )
    empty = np.asarray(
        rows_of(pad(federation, clients=1).train, 9, np.arange(4))
    )  # any rows: all of them are masked
    assert empty.shape == (4,) and np.all((empty >= 0) & (empty < len(federation.pool.y)))


def test_gathering_stays_on_the_device():
    source = fake()
    federation = pack(parts("rotated", source, clients=8), source)
    jaxpr = str(
        jax.make_jaxpr(gather.samples)(
            federation, jnp.zeros(4, int), jnp.zeros(4, int), jnp.ones(4, bool)
        )
    )
    assert "callback" not in jaxpr
    assert jaxpr.count("gather[") == 4  # view, pixel map, pool, labels: the pool is read once


@pytest.mark.parametrize("shape", [(4, 4), (5, 5), (4, 4, 3), (16,)])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_quarter_turns_are_exact(shape, turns):
    image = np.random.default_rng(0).integers(256, size=shape)
    side = image.reshape(4, 4) if shape == (16,) else image
    assert np.array_equal(
        image.ravel()[rotation(shape, 90.0 * turns)], np.rot90(side, turns).ravel()
    )


@pytest.mark.parametrize("shape", [(6, 6), (7, 7)])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_other_angles_turn_the_same_way(shape, turns):
    assert np.array_equal(rotation(shape, 90 * turns + 1e-6), rotation(shape, 90 * turns))


def test_what_comes_from_outside_the_image_is_zero():
    corner = rotation((9, 9), 45.0)
    assert corner[0] == -1 and corner[40] == 40 and corner.min() == -1 and corner.max() <= 80
    view = View(np.zeros(1, np.int32), pixels=corner[None])
    source = fake(3, 2, shape=(9, 9))
    federation = pack(
        Parts([np.arange(3)], [np.arange(3, 5)], np.zeros(1), view=view.of, pixels=view.pixels),
        source,
    )
    x, _ = jitted(federation, np.zeros(1, int), np.zeros(1, int), np.ones(1, bool))
    assert x[0, 0, 0] == 0 and np.isclose(x[0, 4, 4], source.x_train[0, 4, 4] / 255)


def test_an_image_that_is_not_square_can_be_turned_upside_down():
    image = np.arange(12).reshape(3, 4)
    assert np.array_equal(image.ravel()[rotation((3, 4), 180)], image[::-1, ::-1].ravel())
    assert np.sum(rotation((3, 4), 90) == -1) > 0


def test_angles_divide_the_circle():
    assert [even_angles(k) for k in (1, 2, 3, 4)] == [
        (0,),
        (0, 180),
        (0, 90, 180),
        (0, 90, 180, 270),
    ]
    assert rotations((4, 4), even_angles(8)).shape == (8, 16)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "length", [1, gather.MAX_COMPARED_LENGTH, gather.MAX_COMPARED_LENGTH + 1, 300]
)
def test_places_in_a_line_are_those_of_numpy(length, side):
    rng = np.random.default_rng(length)
    line, values = np.sort(rng.integers(0, 40, length)), np.arange(-2, 43)
    assert (
        gather.insertion_points(jnp.asarray(line), jnp.asarray(values), side).tolist()
        == np.searchsorted(line, values, side).tolist()
    )
