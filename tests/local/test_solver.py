"""The local solver against a plain numpy loop over one client at a time, for every option."""

import jax
import numpy as np
import optax
import pytest

from cfljax import data, keys
from cfljax.contract.padding import pad
from cfljax.local.data import shuffle
from cfljax.local.schedule import Task, Work, train_steps
from cfljax.types import Jobs
from tests import toy
from tests.often import rarely
from tests.reference import plain

KEY = keys.fold(keys.root(3), "round", 0)
OPTIONS = {
    "one epoch": {}, "two epochs": {"epochs": 2}, "steps within an epoch": {"steps": 3}, "steps over several epochs": {"steps": 40},
    "full batch": {"batch": "full", "steps": 4}, "batch larger than a client": {"batch": 32, "epochs": 2},
    "single samples": {"batch": 1, "epochs": 2}, "proximal": {"epochs": 2, "hyper": {"mu": 0.7}},
    "momentum": {"epochs": 2, "hyper": {"momentum": 0.9}}, "weight decay": {"epochs": 2, "hyper": {"weight_decay": 0.1}},
    "all of them": {"epochs": 2, "hyper": {"mu": 0.3, "momentum": 0.5, "weight_decay": 0.01}},
    "full batch with all of them": {"batch": "full", "steps": 5, "hyper": {"mu": 0.3, "momentum": 0.5, "weight_decay": 0.01}},
}  # fmt: skip


def everyone(federation, start, mask=None, work=None, **more):
    n = federation.clients
    mask = np.ones(n, bool) if mask is None else mask
    work = np.ones(n, np.float32) if work is None else np.float32(work)
    return Jobs(
        np.arange(n, dtype=np.int32),
        mask,
        work,
        np.asarray(start)[None],
        np.zeros(n, np.int32),
        **more,
    )


def begin_of(model, seed=1):
    return np.asarray(model.init(jax.random.key(seed)))


def fit(federation, model, sequential=True, hyper=None, start=None, jobs=None, **plan_and_work):
    solver = toy.pulling_solver(model, sequential=sequential, **plan_and_work)
    start = begin_of(model) if start is None else start
    jobs = everyone(federation, start) if jobs is None else jobs
    hyper = {"lr": np.float32(0.1)} | {k: np.float32(v) for k, v in (hyper or {}).items()}
    return toy.fit_of(solver)(KEY, federation, jobs, hyper), np.asarray(start, np.float64)


PLANS = {
    "sequence": {}, "side by side": {"lanes": 0}, "two at a time": {"lanes": 2}, "Gram": {"gram": 4096},
    "Gram side by side": {"lanes": 0, "gram": 4096}, "Gram two at a time": {"lanes": 2, "gram": 4096},
}  # fmt: skip
MUCH = ("all of them", "full batch with all of them")
OFTEN = {
    "sequence": (*MUCH, "steps over several epochs", "batch larger than a client"), "Gram": MUCH,
    "side by side": ("full batch with all of them",), "two at a time": ("all of them",),
    "Gram side by side": ("all of them",), "Gram two at a time": (),
}  # fmt: skip
"""Options that make another program of a way. One after another, mu and momentum are alone in tests
below."""
WAYS = [
    (case, way) if case in OFTEN[way] else rarely(case, way) for case in OPTIONS for way in PLANS
]


@pytest.mark.parametrize(("case", "way"), WAYS)
def test_agrees_with_a_plain_loop_over_one_client(case, way):
    hidden = None if "lanes" in PLANS[way] else 7
    options = dict(OPTIONS[case])
    hyper = options.pop("hyper", {})
    federation, model = toy.federation(clients=5), toy.model(hidden)
    updates, start = fit(federation, model, hyper=hyper, **PLANS[way], **options)
    net, clients = plain.Net(6, 4, hidden), plain.Clients(federation)
    assert len(set(clients.size)) > 2
    for c in range(federation.clients):
        key = plain.local_key(KEY, clients.uid[c])
        want, _ = plain.fit(
            net, start, clients.train[c], key, 0.1, **({"batch": 5} | options), **hyper
        )
        error = np.abs(updates.delta[c] - (want - start)).max()
        assert error < 1e-5 * max(1.0, np.abs(want - start).max())


@pytest.mark.parametrize("batch", [5, rarely(64)])
def test_extra_samples_change_no_bit_of_minibatch_training(batch):
    federation, model = toy.federation(clients=5), toy.model(7)
    padded = jax.device_put(pad(federation, samples=37, rng=np.random.default_rng(0)))
    assert padded.train.longest == federation.train.longest + 37
    for sequential, gram in ((True, 0), (False, 0), (True, 4096)):
        plain_run, _ = fit(federation, model, sequential, epochs=2, batch=batch, gram=gram)
        with_padding, _ = fit(padded, model, sequential, epochs=2, batch=batch, gram=gram)
        assert np.array_equal(plain_run.delta, with_padding.delta)


@pytest.mark.parametrize("samples", [5, 400])
def test_extra_samples_hardly_change_full_batch_training(samples):
    federation, model = toy.federation(clients=5), toy.model(7)
    padded = jax.device_put(pad(federation, samples=samples, rng=np.random.default_rng(0)))
    a, _ = fit(federation, model, steps=4, batch="full")
    b, _ = fit(padded, model, steps=4, batch="full")
    assert np.abs(a.delta - b.delta).max() < 1e-6


def test_dummy_clients_and_order_change_no_bit():
    federation, model = toy.federation(clients=5), toy.model(7)
    order = np.array([3, 0, 4, 1, 2])
    a, _ = fit(federation, model, epochs=2)
    b, _ = fit(jax.device_put(federation.take(order)), model, epochs=2)
    c, _ = fit(jax.device_put(pad(federation, clients=3)), model, epochs=2)
    assert np.array_equal(a.delta[order], b.delta)
    assert np.array_equal(a.delta, c.delta[:5])
    assert not np.any(c.delta[5:])


def test_a_masked_job_does_nothing_and_a_straggler_does_a_part():
    federation, model = toy.federation(clients=5), toy.model(7)
    full = 2 * -(-np.asarray(federation.train.count) // 5)
    jobs = everyone(
        federation, begin_of(model), np.array([True, False, True, True, True]), [1, 1, 0.5, 1, 1]
    )
    updates, _ = fit(federation, model, jobs=jobs, epochs=2)
    assert full[2] > 4 and updates.steps.tolist() == [full[0], 0, full[2] / 2, *full[3:]]
    assert not np.any(updates.delta[1]) and np.any(updates.delta[2])


def test_the_proximal_term_pulls_to_the_anchor_that_is_given():
    federation, model = toy.federation(clients=4), toy.model()
    start, anchor = begin_of(model, 0), begin_of(model, 7)
    jobs = everyone(federation, start, anchor=anchor[None])
    updates, _ = fit(federation, model, jobs=jobs, hyper={"mu": 0.5}, epochs=2)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    w0, goal = np.asarray(start, np.float64), np.asarray(anchor, np.float64)
    for c in range(4):
        want, _ = plain.fit(
            net,
            w0,
            clients.train[c],
            plain.local_key(KEY, c),
            0.1,
            batch=5,
            epochs=2,
            mu=0.5,
            anchor=goal,
        )
        assert np.allclose(updates.delta[c], want - w0, atol=1e-5)


def test_an_anchor_without_its_number_is_refused_where_participants_choose():
    federation, model = toy.federation(clients=4), toy.model()
    start = begin_of(model)
    with pytest.raises(ValueError, match="anchor_of"):
        fit(
            federation,
            model,
            jobs=everyone(federation, start, anchor=start[None])._replace(which=None),
        )


def test_momentum_buffers_go_in_and_come_out():
    federation, model = toy.federation(clients=4), toy.model()
    start, velocity = (
        begin_of(model),
        np.random.default_rng(2).normal(size=(1, model.size)).astype(np.float32),
    )
    updates, _ = fit(
        federation,
        model,
        jobs=everyone(federation, start, velocity=velocity),
        hyper={"momentum": 0.8},
        epochs=2,
    )
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    w0, u0 = np.asarray(start, np.float64), np.asarray(velocity[0], np.float64)
    for c in range(4):
        key = plain.local_key(KEY, c)
        want, buffer = plain.fit(
            net, w0, clients.train[c], key, 0.1, batch=5, epochs=2, momentum=0.8, velocity=u0
        )
        assert np.allclose(updates.delta[c], want - w0, atol=1e-5)
        assert np.allclose(updates.velocity[c], buffer, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("adam", ()), ("adamw", (("weight_decay", 0.1),)), rarely("rmsprop", (("momentum", 0.5),))],
)
def test_any_optax_optimiser(name, arguments):
    federation, model = toy.federation(clients=3), toy.model()
    solver = toy.pulling_solver(model, steps=6, batch=5, optimizer=name, arguments=arguments)
    start = begin_of(model)
    updates = jax.jit(solver.fit)(
        KEY, federation, everyone(federation, start), {"lr": np.float32(0.05)}
    )
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    rule = getattr(optax, name)(0.05, **dict(arguments))
    update = jax.jit(rule.update)
    for c in range(3):
        w, (x, y) = start, clients.train[c]
        state = rule.init(w)
        for rows in plain.batches(plain.local_key(KEY, c), len(y), 5, steps=6):
            change, state = update(
                np.float32(net.gradient(np.float64(w), x[rows], y[rows])), state, w
            )
            w = w + np.asarray(change)
        assert np.allclose(np.asarray(updates.delta)[c], w - start, atol=2e-5)


def test_full_gradient_is_summed_over_tiles_for_long_clients(monkeypatch):
    federation, model = toy.federation(clients=3), toy.model(5)
    start = begin_of(model)

    def gradient():
        return [
            np.asarray(a) for a in jax.jit(solver.gradient)(federation, everyone(federation, start))
        ]

    solver = toy.pulling_solver(model)
    whole = gradient()
    monkeypatch.setattr("cfljax.local.train.MAX_TILE", 16)
    solver = toy.pulling_solver(model)  # of which nothing is compiled
    tiled = gradient()
    net, clients = plain.Net(6, 4, 5), plain.Clients(federation)
    assert federation.train.longest > 32
    for c in range(3):
        want = net.gradient(np.asarray(start, np.float64), *clients.train[c])
        assert np.allclose(whole[0][c], want, atol=1e-6) and np.allclose(
            tiled[0][c], want, atol=1e-6
        )
        assert np.isclose(
            tiled[1][c], net.loss(np.asarray(start, np.float64), *clients.train[c]), atol=1e-6
        )


def test_batch_gradient_is_on_the_batch_that_fit_would_take_first():
    federation, model = toy.federation(clients=3), toy.model()
    solver, start = toy.pulling_solver(model, steps=1, batch=5), begin_of(model)
    gradient, _ = jax.jit(solver.batch_gradient, static_argnums=3)(
        KEY, federation, everyone(federation, start), 5
    )
    updates = toy.fit_of(solver)(
        KEY, federation, everyone(federation, start), {"lr": np.float32(1.0)}
    )
    assert np.allclose(-np.asarray(gradient), updates.delta, atol=1e-6)


def test_training_loss_is_the_mean_over_the_samples_visited():
    federation, model = toy.federation(clients=2), toy.model()
    updates, start = fit(federation, model, steps=1, batch="full")
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    assert np.allclose(
        updates.loss, [net.loss(start, *clients.train[c]) for c in range(2)], atol=1e-5
    )


@pytest.mark.parametrize("gram", [0, 64])
def test_small_clients_beside_a_very_large_one_are_as_alone(gram):
    source = data.load("blobs", {"samples": 12_000, "features": 6, "classes": 4}, seed=1)
    federation, model = toy.federation(source=source), toy.model()
    counts, rows = (
        np.int32([9_000, 1_025, 1_024, 700, 60, 0, 1, 250]),
        np.arange(9_600, dtype=np.int32),
    )
    split = toy.replace(
        federation.train, start=np.zeros(8, np.int32), count=counts, rows=rows, longest=9_000
    )
    federation = toy.replace(federation, train=jax.device_put(split))
    together, _ = fit(federation, model, batch=50, gram=gram)
    by_side, _ = fit(federation, model, batch=50, sequential=False)
    assert np.array_equal(together.steps, -(-counts // 50))
    assert np.allclose(together.delta, by_side.delta, atol=1e-5) and np.allclose(
        together.loss, by_side.loss, atol=1e-5
    )


def test_a_broken_sample_of_one_client_stays_with_that_client():
    federation, model = toy.federation(clients=5), toy.model(7)
    x = np.array(federation.pool.x)
    x[np.asarray(federation.train.rows)[np.asarray(federation.train.start)[2]]] = np.nan
    broken = toy.replace(federation, pool=federation.pool._replace(x=jax.device_put(x)))
    good, _ = fit(federation, model, epochs=2)
    bad, _ = fit(broken, model, epochs=2)
    assert np.array_equal(np.delete(good.delta, 2, 0), np.delete(bad.delta, 2, 0))
    assert np.isnan(bad.delta[2]).any()


def test_shuffles_are_uniform_and_independent_of_length():
    n = 5
    shuffled = jax.jit(keys.permutation, static_argnums=2)
    drawn = np.asarray(
        jax.vmap(lambda k: shuffled(k, n, n))(jax.random.split(jax.random.key(0), 600))
    )
    assert np.array_equal(np.sort(drawn, axis=1), np.tile(np.arange(n), (600, 1)))
    first = np.bincount(drawn[:, 0], minlength=n)
    assert first.min() > 80 and first.max() < 165
    key = jax.random.key(4)
    for longer in (6, 64, 1000):
        assert np.array_equal(shuffled(key, n, n), np.asarray(shuffled(key, n, longer))[:n])


def test_a_shuffle_in_turn_is_the_same_whatever_is_sorted():
    each = jax.random.split(keys.root(1), 200)
    cases = [
        (5, 6, 1),
        (64, 64, 1),
        (700, 1000, 1),
        (0, 70, 10),
        (67, 70, 10),
        (512, 512, 10),
        (1024, 1024, 10),
        (1030, 1100, 50),
    ]
    for count, longest, batch in cases:
        length = -(-longest // batch) * batch

        @jax.jit
        def shuffles(count):
            plain = jax.vmap(lambda k: keys.permutation(k, count, length))(each)  # noqa: B023
            in_turn = [
                shuffle(each, count, longest, batch, True, rungs)  # noqa: B023
                for rungs in ((), (0, 64, 512))
            ]
            return plain, in_turn, shuffle(each[0], count, longest, batch, False)  # noqa: B023

        plain, (one, other), alone = shuffles(np.int32(count))
        assert np.array_equal(one, plain) and np.array_equal(other, plain), (count, longest)
        assert np.array_equal(alone, np.asarray(plain)[0])


def test_equal_numbers_stay_in_their_order():
    each = jax.random.split(keys.root(1), 200)
    both = jax.jit(
        jax.vmap(
            lambda k: (
                keys._draw(k, keys.SHORT_LENGTH),
                keys.short_permutation(k, keys.SHORT_LENGTH, keys.SHORT_LENGTH),
            )
        )
    )
    drawn, orders = map(np.asarray, both(each))
    assert np.array_equal(orders, np.argsort(drawn, axis=1, kind="stable"))
    equal = np.diff(np.sort(drawn, axis=1), axis=1) == 0
    assert 20 < equal.sum() < 100, "one in four of 1,024 numbers of 21 bits"


def test_the_steps_of_a_client_are_known_beforehand():
    federation = toy.federation(clients=4)
    federation = toy.replace(
        federation, train=toy.replace(federation.train, count=np.int32([23, 23, 0, 23]))
    )
    for work, full in ((Work(2, None, 5), 10), (Work(None, 7, 5), 7), (Work(3, None, None), 3)):
        for client, mask, share, steps in (
            (0, True, 1.0, full),
            (1, False, 1.0, 0),
            (2, True, 1.0, 0),
            (3, True, 0.01, 1),
        ):
            task = Task(
                KEY, np.int32(client), np.array(mask), np.float32(share), np.zeros(3), None, None
            )
            assert train_steps(federation, task, work) == steps
