"""Execution plans change no result: Gram form, several devices, and what chooses between them."""

import dataclasses
import gc
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import data, keys, models
from cfljax.config import read_spec
from cfljax.devices.machine import TYPICAL, Speed
from cfljax.experiment import assemble, execution
from cfljax.local import gram, predict
from cfljax.local import products as inner_products
from cfljax.local.products import GRAM_SIZES, gram_sizes
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, train_and_mix
from cfljax.local.schedule import Work, group_steps
from cfljax.types import Cohort, Jobs, Plan, Traffic
from tests import machines, toy
from tests.often import rarely

PULLS = {
    "proximal to another model": ({"mu": 0.5}, True, False),
    "all pulls and momentum": ({"momentum": 0.9, "mu": 0.3, "weight_decay": 0.1}, True, False),
    "a velocity to begin with": ({"momentum": 0.9, "weight_decay": 0.1}, False, True),
    "a velocity and both pulls": ({"momentum": 0.5, "mu": 0.3, "weight_decay": 0.1}, True, True),
    "summed losses": ({"mu": 0.2}, False, False),
}


def jobs_of(federation, model, anchored, moving):
    n, k = federation.clients, 3

    def several(seed, scale):
        return np.float32(scale * np.random.default_rng(seed).normal(size=(k, model.size)))

    anchor, velocity = several(2, 0.3) if anchored else None, several(3, 0.1) if moving else None
    clients = np.arange(n, dtype=np.int32)
    part = np.where(clients == 3, np.float32(0.5), np.float32(1))
    return jax.device_put(
        Jobs(clients, clients != 2, part, several(1, 0.3), clients % k, anchor, None, velocity)
    )


def kept(federation, model, most, work):
    """With the matrices made beforehand."""
    sizes = gram_sizes(
        Plan(gram=most), federation.train.longest, toy.pulling_solver(model, **work).work.batch
    )
    grams = jax.device_put(inner_products.compute_grams(federation, sizes))
    return toy.replace(federation, train=toy.replace(federation.train, grams=grams))


ALL = "a velocity and both pulls"
WORKS = {
    "carried along": ({"epochs": 3}, 7),
    "products": ({"epochs": 3}, 30),
    "full": ({"steps": 4, "batch": "full"}, 7),
}
MADE = {"small ones": (64, False), "all": (4096, False), "beforehand": (64, True)}
"""Which clients train on their Gram matrices, and whether these are there before: (most samples,
before)."""
OFTEN = {"carried along": ("small ones",), "products": ("all",), "full": ("beforehand",)}
WAYS = [
    (case, way, made) if case == ALL and made in OFTEN[way] else rarely(case, way, made)
    for case in PULLS
    for way in WORKS
    for made in MADE
]


def trained(case, federation, model, gram, **work):
    """(the jobs, their updates)."""
    numbers, anchored, moving = PULLS[case]
    jobs = jobs_of(federation, model, anchored, moving)
    hyper = {name: np.float32(value) for name, value in ({"lr": 0.05} | numbers).items()}
    return jobs, toy.fit_of(toy.pulling_solver(model, gram=gram, **work))(
        keys.root(5), federation, jobs, hyper
    )


@pytest.mark.parametrize(("case", "way", "made"), WAYS)
def test_on_the_gram_matrix_as_step_by_step(case, way, made):
    (work, hidden), (most, before) = WORKS[way], MADE[made]
    federation, model = toy.federation(), toy.model(hidden)
    assert 64 < federation.train.longest < 256
    work = work | {"summed": case == "summed losses"}
    there = kept(federation, model, most, work) if before else federation
    (_, plain), (_, other) = (
        trained(case, federation, model, 0, **work),
        trained(case, there, model, most, **work),
    )
    assert np.array_equal(plain.steps, other.steps)
    for a, b in ((plain.delta, other.delta), (plain.loss, other.loss)):
        assert np.abs(a - b).max() < 1e-5 * np.abs(a).max()
    assert (plain.velocity is None) == (other.velocity is None)
    if plain.velocity is not None:
        assert np.abs(plain.velocity - other.velocity).max() < 1e-5 * np.abs(plain.velocity).max()


@pytest.mark.parametrize("length", [193, 200, 256])
def test_products_are_those_of_a_client_s_samples(length):
    products = jax.jit(inner_products.products)
    for count in (0, 1, 64, 65, 128, 150, length - 1, length):
        x = np.random.default_rng(count).normal(size=(length, 9)).astype(np.float32)
        x[count:] = 0
        found, exact = np.asarray(products(x, count)), x.astype(np.float64) @ x.T.astype(np.float64)
        assert np.abs(found - exact).max() < 1e-5
    garbage = np.asarray(products(np.ones((length, 9), np.float32), 60))
    assert (
        garbage[:64, :64].all() and not garbage[64:].any() and not garbage[:, 64:].any()
    )  # no more than it needs


def test_clients_of_some_hundred_samples_on_their_gram_matrix_as_step_by_step():
    source = data.load("blobs", {"samples": 2000, "features": 6, "classes": 4}, seed=0)
    federation, model = toy.federation(source=source, clients=4), toy.model(7)
    assert (np.asarray(federation.train.count) > inner_products.MAX_WHOLE_GRAM).sum() > 1
    jobs = jobs_of(federation, model, False, False)
    hyper, fits = (
        {"lr": np.float32(0.05)},
        [toy.fit_of(toy.pulling_solver(model, gram=most, epochs=2)) for most in (0, 4096)],
    )
    plain, other = (fit(keys.root(5), federation, jobs, hyper) for fit in fits)
    assert np.abs(plain.delta - other.delta).max() < 1e-5 * np.abs(plain.delta).max()


def test_a_masked_client_costs_no_step_and_keeps_its_velocity():
    jobs, updates = trained(ALL, toy.federation(), toy.model(7), 4096, epochs=3)
    assert updates.steps[2] == 0
    assert not updates.delta[2].any()
    assert np.array_equal(updates.velocity[2], np.asarray(jobs.velocity)[2])


@pytest.mark.parametrize("way", ["carried along", "full"])
@pytest.mark.parametrize("most", [0, 4096])
def test_a_client_without_samples_stays_where_it_was(way, most):
    federation, (work, hidden) = toy.without_samples(toy.federation(), 4), WORKS[way]
    _, updates = trained(ALL, federation, toy.model(hidden), most, **work, summed=False)
    assert not updates.delta[4].any() and updates.delta[5].any()


def test_a_client_of_any_size_trains_on_the_smallest_matrix_that_holds_it():
    assert gram_sizes(Plan(gram=0), 1000, 10) == ()
    assert gram_sizes(Plan(gram=512), 40, 10) == (70,)  # whole batches
    assert gram_sizes(Plan(gram=512), 400, 10) == (70, 130, 260, 520)
    assert gram_sizes(Plan(gram=256), 10_000, 16) == (64, 128, 256)
    assert gram_sizes(Plan(gram=512), 300, None) == (300,) and gram_sizes(
        Plan(gram=512), 301, None
    ) == (301,)
    assert gram_sizes(Plan(gram=128), 300, None) == (64, 128)
    assert gram_sizes(Plan(False, 512), 300, 7) == (301,)
    assert gram_sizes(Plan(False, 128), 300, 7) == ()


def test_the_gram_form_is_for_models_whose_first_layer_it_is_exact_for():
    assert gram.first_layer(toy.model(5)) is not None
    assert gram.first_layer(models.build("cnn", {"channels": [2], "dense": [3]}, (8, 8), 4)) is None
    assert (
        gram.first_layer(
            models.from_module((lambda key: jnp.zeros((6, 4)), lambda w, x: x @ w), (6,), 4)
        )
        is None
    )


def test_the_discrepancy_of_sketched_updates_is_near():
    federation, model = toy.federation(clients=40), toy.model(200)
    assert model.size > 2000
    ids = np.arange(40, dtype=np.int32)
    cohort = jax.device_put(Cohort(ids, ids >= 0, np.ones(40, np.float32), np.int32(0)))
    old = jax.device_put(np.asarray(model.init(keys.root(1)))[None])
    jobs = Jobs(cohort.ids, cohort.mask, cohort.work, old, jax.device_put(np.zeros(40, np.int32)))
    found = []
    for stream in (0, 7):
        solver, hyper = toy.pulling_solver(model, stream=stream), {"lr": np.float32(0.1)}

        @jax.jit
        def outcome(mix, solver=solver, hyper=hyper):
            trained = train_and_mix(solver, keys.root(2), federation, jobs, hyper, Mixing(mix, old))
            no = Traffic(*(jnp.int32(0),) * 4)
            info = report_trained(
                federation, cohort, trained, jobs.which, trained.mixed.new - old, no
            )
            return trained.kept.moves, info.discrepancy, info.drift, trained.mixed.new

        moves, *numbers = map(np.asarray, outcome(np.full((1, 40), 1 / 40, np.float32)))
        assert moves.shape[1] == (256 if stream else model.size)
        found.append(numbers)
    assert abs(found[1][0] / found[0][0] - 1) < 0.12
    assert abs(found[1][1] / found[0][1] - 1) < 1e-5
    assert np.abs(found[1][2] - found[0][2]).max() < 1e-6


SPEED = Speed(step=4e-6, small=2e-11, large=1e-11, value=2e-10)


def test_the_gram_form_is_taken_where_it_pays():
    wide, narrow = predict.Layer(784, 128), predict.Layer(6, 4)
    many, once = Work(20, None, 10), Work(1, None, None)
    assert predict.gram_limit(SPEED, wide, many, 1000) >= 256
    assert predict.gram_limit(SPEED, wide, many, 100_000) <= GRAM_SIZES[-1]
    assert (
        predict.gram_limit(SPEED, wide, once, 1000) == 0
    )  # one step on all data: its matrix costs more than the step
    assert predict.gram_limit(SPEED, narrow, many, 1000) <= 64
    assert predict.time_gram(SPEED, wide, many, 100, 128) < predict.time_steps(
        SPEED, wide, many, 100
    )


def test_where_the_gram_form_always_pays_all_clients_fit_their_matrices():
    free, many = Speed(step=0.0, small=1.0, large=0.0, value=0.0), Work(20, None, 10)
    assert [predict.gram_limit(free, predict.Layer(784, 128), many, n) for n in (40, 64, 100)] == [
        64,
        64,
        128,
    ]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("hidden", [32, 200])
@pytest.mark.parametrize("clients", [8, 100])
def test_no_plan_is_expected_to_be_slower_than_step_by_step(clients, hidden, keep):
    data, model = {"name": "digits", "clients": clients}, {"name": "mlp", "hidden": [hidden]}
    for work in (
        {"epochs": 1, "batch": 10},
        {"epochs": 20, "batch": 10},
        {"steps": 3, "batch": "full"},
    ):
        train = {"rounds": 2, "plan": {"keep": keep}} | work
        (run,) = read_spec(
            {"data": data, "model": model, "method": ["fedavg"], "train": train}
        ).runs()
        federation = assemble.host_federation(run)
        found = execution.choose_plan(
            run, assemble.model_of(run, federation), federation, machines.cpu()
        )
        assert found.by_gram <= found.by_steps and (found.plan.gram == 0) == (
            found.by_gram == found.by_steps
        )
        if clients == 100 and work.get("epochs") == 1:
            assert found.plan.gram == 0  # of a dozen samples each: most of a matrix would be zeros


def test_predictions_count_what_is_done():
    layer, batches, whole = predict.Layer(100, 20), Work(3, None, 10), Work(None, 7, None)
    only = {
        name: Speed(**(dict.fromkeys(Speed._fields, 0.0) | {name: 1.0})) for name in Speed._fields
    }
    stepwise = {
        name: tuple(predict.time_steps(one, layer, work, 45) for work in (batches, whole))
        for name, one in only.items()
    }
    assert stepwise["step"] == (15, 7) and stepwise["value"] == (15 * 10 * 100, 45 * 100)
    assert stepwise["small"] == (15 * 2 * 10 * 100 * 20, 0) and stepwise["large"] == (
        0,
        7 * 2 * 45 * 100 * 20,
    )
    on_gram = {
        name: tuple(predict.time_gram(one, layer, work, 45, 64) for work in (batches, whole))
        for name, one in only.items()
    }
    once = (
        64 * 100 * (64 + 2 * layer.width)
    )  # all products of samples, the first outputs, the way back
    assert on_gram["step"] == (15, 7) and on_gram["value"] == (64 * 100, 64 * 100)
    fetched = (
        64 * 100 + 15 * 10 * 64
    )  # the rows of a step's samples, unless they are added up on the way
    assert (
        predict.time_gram(only["value"], layer, batches, 45, 64, making="side by side") == fetched
    )
    assert predict.time_gram(only["value"], predict.Layer(100, 21), batches, 45, 64) == fetched
    assert (
        predict.time_gram(only["value"], layer, batches, 1200, 2048) == 2048 * 100 + 3 * 1200 * 2048
    )  # too large to be near
    assert on_gram["small"] == (15 * 10 * 64 * 20, 0) and on_gram["large"] == (
        once,
        once + 7 * 64 * 64 * layer.width,
    )
    larger = predict.time_gram(
        only["large"], layer, batches, 150, 256
    )  # block by block, up to the diagonal
    assert larger == 100 * (150 * (150 + 64) / 2 + 2 * 256 * layer.width)
    for made, products in (("side by side", 256 * 256), ("beforehand", 0)):
        assert predict.time_gram(only["large"], layer, batches, 150, 256, making=made) == 100 * (
            products + 2 * 256 * layer.width
        )


def test_clients_are_dealt_by_what_their_way_of_training_costs(monkeypatch):
    monkeypatch.setattr("cfljax.local.solver.devices", lambda: 2)
    federation, model = toy.federation(), toy.model(7)
    jobs, counts = jobs_of(federation, model, False, False), np.asarray(federation.train.count)
    solver, layer = toy.pulling_solver(model, gram=64, epochs=3), predict.layer_shape(model)
    costs = jax.jit(solver.costs)
    found, (size,) = (
        np.asarray(costs(federation, jobs)),
        gram_sizes(solver.plan, federation.train.longest, 5),
    )
    assert found[2] == 0 and counts.min() < size < counts.max()  # the third is masked
    for c in {*range(federation.clients)} - {2, 3}:
        there = (TYPICAL, layer, solver.work, int(counts[c]))
        expected = (
            predict.time_gram(*there, size) if counts[c] <= size else predict.time_steps(*there)
        )
        assert np.isclose(found[c], expected, rtol=1e-5) == bool(counts[c])
    whole = counts > size
    whole[[2, 3]] = False
    less = np.asarray(
        costs(federation, jobs._replace(work=np.full(federation.clients, 0.5, np.float32)))
    )
    assert whole.any() and np.allclose(
        less[whole], found[whole] / 2, rtol=0.05
    )  # a straggler's steps are half as many
    given = []
    monkeypatch.setattr("cfljax.local.rounds.deal_out", lambda costs, *_: given.append(costs))
    hyper, mixing = (
        {"lr": np.float32(0.05)},
        Mixing(np.zeros((3, federation.clients)), np.zeros((3, model.size))),
    )

    @jax.jit
    def dealt(jobs):
        train_and_mix(
            solver, keys.root(2), federation, jobs, hyper, jax.tree.map(jnp.float32, mixing)
        )
        return given[0]

    assert np.array_equal(dealt(jobs), found)
    side_by_side = toy.pulling_solver(model, gram=64, epochs=3, sequential=False)
    assert np.allclose(
        jax.jit(side_by_side.costs)(federation, jobs),
        np.where(jobs.mask, counts * np.asarray(jobs.work), 0),
    )


def test_nothing_is_kept_of_a_run_whose_plan_was_chosen():
    model = toy.model(5)
    assert predict.layer_shape(model) == predict.Layer(6, 5)
    gc.freeze()  # what is there already need not be looked at
    try:
        before = len(gc.get_objects())
        for _ in range(20):
            assert predict.layer_shape(model) == predict.Layer(6, 5)
        gc.collect()
        assert len(gc.get_objects()) < before + 20
    finally:
        gc.unfreeze()


DEVICES = """
import jax, numpy as np
from tests import play
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("clients",))
assert mesh.size == 3
for name in ("ifca", "fedgroup", "apfl", "per_fedavg"):
    (one,), (three,), (lanes,) = play.on_nine(name), play.on_nine(name, mesh=mesh), play.on_nine(name, mesh=mesh, work={"lanes": 2})
    for more in (three, lanes):
        assert np.array_equal(one.labels, more.labels), name
        assert np.abs(one.models - more.models).max() < 1e-5, name
        assert np.allclose(one.history["accuracy"], more.history["accuracy"], atol=1e-6), name
print("same")
"""


@pytest.mark.long
def test_several_devices_give_the_results_of_one():
    # and as quick to compile as other tests
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=3"
    environment = os.environ | {"XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == "same", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("work", "gram"),
    [({"epochs": 3}, 256), ({"steps": 4, "batch": "full"}, 0), rarely({"epochs": 40}, 0)],
    ids=["gram", "full", "many"],
)
def test_steps_in_blocks_as_one_by_one(work, gram):
    """What a GPU does, on this CPU: steps beyond a client's last change nothing."""
    federation, model = toy.federation(), toy.model(7)
    jobs = jobs_of(federation, model, True, False)
    hyper = {"lr": np.float32(0.05), "momentum": np.float32(0.5), "mu": np.float32(0.2)}
    solver = toy.pulling_solver(model, sequential=False, gram=gram, **work)
    blocks = dataclasses.replace(solver, plan=solver.plan._replace(asks_host=True))
    one, other = (
        toy.fit_of(each)(keys.root(5), federation, jobs, hyper) for each in (solver, blocks)
    )
    assert np.array_equal(one.steps, other.steps) and int(one.steps.max()) > (
        16 if work == {"epochs": 40} else 3
    )
    for a, b in ((one.delta, other.delta), (one.loss, other.loss)):
        assert np.abs(a - b).max() <= 1e-6 * np.abs(a).max()
    assert np.abs(one.delta).max() > 0


def test_how_many_steps_are_done_at_a_time():
    assert (
        group_steps(Work(20, None, 10), 1668) == 16
    )  # 209 times are 3,344, and no client has more than 3,340
    assert group_steps(Work(2, None, 10), 36) == 8 and group_steps(Work(3, None, 10), 100) == 15
    assert (
        group_steps(Work(None, 10, None), 200) == 10 and group_steps(Work(3, None, None), 200) == 3
    )
