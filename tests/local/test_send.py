"""What arrives of an update, against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.federation.gather import samples
from cfljax.local.aggregation import server_rule
from cfljax.local.attacks import Attack, attackers, exact_share, flip_labels
from cfljax.local.compressors.int8 import Int8
from cfljax.local.compressors.sign import Sign
from cfljax.local.compressors.topk import TopK
from cfljax.local.send import Sending, modifies, receive
from cfljax.types import Jobs
from tests import toy

ROW = np.random.default_rng(0).normal(size=1000).astype(np.float32)
KEY = keys.root(3)


def send(row=ROW, sending=Sending(), uid=5, unit=1.0, key=KEY, **numbers):  # noqa: B008
    return np.asarray(
        receive(
            sending,
            {k.replace("_", ".", 1): v for k, v in numbers.items()},
            key,
            jnp.int32(uid),
            row,
            unit=unit,
        )[0]
    )


@pytest.mark.parametrize(
    "attack, on_its_way", [("", False), ("label_flip", False), ("sign_flip", True), ("noise", True)]
)
def test_what_happens_to_updates_on_their_way(attack, on_its_way):
    made = Attack(attack, 0.0) if attack else None
    assert modifies(Sending(attack=made), {}) == on_its_way
    assert modifies(Sending(attack=made, compress=Int8()), {})
    assert modifies(Sending(attack=made), {"privacy.clip": 1.0})


def test_clipping_shortens_and_leaves_short_ones_to_the_bit():
    length = np.linalg.norm(ROW)
    np.testing.assert_allclose(send(privacy_clip=1.0), ROW / length, rtol=1e-5)
    assert send(privacy_clip=100.0).tobytes() == ROW.tobytes()
    np.testing.assert_allclose(send(privacy_clip=1.0, unit=0.1), ROW / length * 10, rtol=1e-5)
    assert not send(np.zeros(4, np.float32), privacy_clip=1.0).any()
    assert not send(
        privacy_clip=1.0, unit=0.0
    ).any()  # a buffer, after the learning rate has decayed to 0: it gets no noise


def test_the_largest_numbers_are_sent():
    found = np.asarray(TopK(keep=0.013).encode(KEY, ROW))
    kept = np.argsort(-np.abs(ROW))[:13]
    assert set(np.flatnonzero(found)) == set(kept) and (found[kept] == ROW[kept]).all()


def test_eight_bits():
    step = np.abs(ROW).max() / 127
    nearest = np.asarray(Int8(rounding="nearest").encode(KEY, ROW))
    np.testing.assert_allclose(nearest, np.round(ROW / step) * step, atol=1e-6)
    drawn = jax.jit(jax.vmap(lambda n: Int8().encode(keys.fold(KEY, "a", n), ROW)))
    each = np.asarray(drawn(np.arange(64)))
    assert np.abs(each - ROW).max() < step * 1.001
    assert (
        np.abs(each.mean(axis=0) - ROW).max() < step * 0.35
    )  # unbiased: the mean error is step · 0.5 / 8 at most
    assert not np.asarray(Int8().encode(KEY, jnp.zeros(3))).any()


def test_signs_with_their_scale():
    np.testing.assert_allclose(
        Sign().encode(KEY, ROW), np.sign(ROW) * np.abs(ROW).mean(), rtol=1e-5
    )


def test_lies():
    np.testing.assert_array_equal(
        send(sending=Sending(attack=Attack("sign_flip", 0.0)), attack_share=1.0, attack_factor=2.0),
        -2 * ROW,
    )
    assert (
        send(
            sending=Sending(attack=Attack("sign_flip", 0.0)), attack_share=0.0, attack_factor=2.0
        ).tobytes()
        == ROW.tobytes()
    )
    noise = send(sending=Sending(attack=Attack("noise", 0.0)), attack_share=1.0, attack_factor=2.0)
    assert np.linalg.norm(noise) == pytest.approx(2 * np.linalg.norm(ROW), rel=0.1)
    assert abs(np.corrcoef(noise, ROW)[0, 1]) < 0.15


WAYS = [
    Sending(TopK(keep=0.1)),
    Sending(Int8()),
    Sending(Sign()),
    Sending(attack=Attack("sign_flip", 0.0)),
    Sending(),
]


@pytest.mark.parametrize("sending", WAYS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_update_stays_broken(sending, bad):
    row = ROW.copy()
    row[7] = bad
    assert not np.isfinite(
        send(row, sending, privacy_clip=1.0, attack_share=1.0, attack_factor=1.0)
    ).all()


def test_an_exact_share_lies_and_dummies_do_not_count():
    federation, sending = toy.federation(clients=10), Sending(attack=Attack("sign_flip", 0.0))
    for share, number in ((0.0, 0), (0.3, 3), (0.25, 3), (1.0, 10)):
        numbers = exact_share(sending.attack, {"attack.share": share}, federation)
        who = np.asarray(attackers(sending.attack, numbers, federation))
        assert who.sum() == number
    order = np.random.default_rng(0).permutation(10)
    numbers = exact_share(sending.attack, {"attack.share": 0.3}, federation)
    who = np.asarray(attackers(sending.attack, numbers, federation))
    uid = np.asarray(federation.uid)
    turned = toy.replace(federation, uid=jax.device_put(uid[order]))
    assert (np.asarray(attackers(sending.attack, numbers, turned)) == who[order]).all()
    padded = toy.replace(federation, uid=jax.device_put(np.where(uid == uid[3], np.int32(-1), uid)))
    assert not np.asarray(
        attackers(
            sending.attack, exact_share(sending.attack, {"attack.share": 1.0}, padded), padded
        )
    )[3]


def test_who_never_trains_is_not_counted_among_those_who_may_lie():
    sending, federation = (
        Sending(attack=Attack("sign_flip", 0.0)),
        toy.federation("iid", clients=10),
    )
    alone = np.arange(10) < 5
    count = jax.device_put(np.where(alone, np.int32(0), federation.train.count))
    federation = toy.replace(federation, train=toy.replace(federation.train, count=count))
    who = np.asarray(
        attackers(
            sending.attack,
            exact_share(sending.attack, {"attack.share": 0.4}, federation),
            federation,
        )
    )
    assert who.sum() == 2 and not who[alone].any()


@pytest.mark.parametrize(
    ("partition", "options"),
    [("quantity", {}), ("label_permutation", {}), ("feature_shift", {"kind": "gain"})],
)
def test_flipped_labels_are_those_of_the_attackers(partition, options):
    federation, sending = (
        toy.federation(partition, **options),
        Sending(attack=Attack("label_flip", 0.0)),
    )
    numbers = exact_share(sending.attack, {"attack.share": 0.5}, federation)
    seen, who = (
        flip_labels(sending.attack, numbers, federation),
        np.asarray(attackers(sending.attack, numbers, federation)),
    )
    rows, mask = np.arange(30), np.ones(30, bool)
    look = jax.jit(lambda federation, client: samples(federation, jnp.full(30, client), rows, mask))
    for client in range(federation.clients):
        x, y = map(np.asarray, look(federation, client))
        also, flipped = look(seen, client)
        np.testing.assert_array_equal(x, also)
        np.testing.assert_array_equal(flipped, federation.classes - 1 - y if who[client] else y)


def test_the_noise_of_a_rule():
    hyper = {"privacy.clip": 2.0, "privacy.noise": 0.5}
    assert server_rule("", KEY, hyper).noise == 1.0
    assert server_rule("", KEY, hyper, 0.1).noise == pytest.approx(10.0)
    assert server_rule("", KEY, hyper, 0.0).noise == 0.0
    assert server_rule("", KEY, {}).noise is None and server_rule("", KEY, {}).statistic == ""
    assert server_rule("krum", KEY, {"robust.liars": 0.3}).number == 0.3


def test_noise_in_place_of_an_update_is_each_clients_and_each_rounds_own():
    federation, model = toy.federation("iid", clients=4), toy.model()
    clients, rows = np.arange(4, dtype=np.int32), np.ones((4, model.size), np.float32)
    jobs = Jobs(
        clients,
        clients >= 0,
        np.ones(4, np.float32),
        np.zeros((1, model.size), np.float32),
        0 * clients,
    )
    hyper = {
        "lr": np.float32(0.1),
        "attack.share": np.float32(1.0),
        "attack.factor": np.float32(1.0),
    }
    for sequential in (True, False):
        solver = toy.solver(
            model, sequential=sequential, sending=Sending(attack=Attack("noise", 0.0))
        )
        send = jax.jit(solver.send)
        one, again, other = (
            np.asarray(send(keys.root(seed), federation, jobs, rows, hyper)) for seed in (0, 0, 1)
        )
        assert np.array_equal(one, again) and not np.isclose(one, other).all(axis=1).any()
        assert len({row.tobytes() for row in one}) == 4 and not np.isclose(one, 1).all(axis=1).any()
