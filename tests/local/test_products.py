"""Gram matrices made once, before the first round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.engine.simulate import simulate
from cfljax.errors import SpecError
from cfljax.experiment import assemble, execution
from cfljax.local import products
from cfljax.local.products import gram_sizes
from cfljax.types import Jobs, Plan
from tests import machines, toy
from tests.often import rarely
from tests.reference import plain

BLOBS = {
    "name": "blobs",
    "samples": 600,
    "features": 6,
    "classes": 4,
    "partition": "quantity",
    "clients": 12,
    "normalise": "none",
}
TURNED = {
    "name": "digits",
    "partition": "rotated",
    "groups": 4,
    "clients": 8,
    "samples_per_client": 30,
}
TRAIN = {"participation": 4, "epochs": 2, "batch": 5, "lr": 0.1, "rounds": 6}


def run_of(plan, data=BLOBS, **train):
    train = TRAIN | train | {"plan": {"gram": 64} | plan}
    return read_spec(
        {"data": data, "model": {"name": "mclr"}, "method": [{"name": "fedavg"}], "train": train}
    ).runs()[0]


@pytest.mark.parametrize("tile", [7, 2048])
@pytest.mark.parametrize("data", [BLOBS, TURNED], ids=["unequal", "turned"])
def test_each_client_finds_its_own_products(monkeypatch, data, tile):
    monkeypatch.setattr(products, "FETCHED_SAMPLES", tile)
    federation = assemble.federation_of(run_of({}, data))
    counts, sizes = np.array(federation.train.count), (20, 40)
    counts[4] = 0
    federation = toy.replace(
        federation, train=toy.replace(federation.train, count=jax.device_put(counts))
    )
    exact = [x @ x.T for x, _ in plain.Clients(federation).train]
    grams = products.compute_grams(federation, sizes)
    assert grams.sizes == sizes and products.count_gram_bytes(counts, sizes) == sum(
        each.nbytes for each in grams.rows
    )
    with_one = 0
    for client, count in enumerate(counts):
        which = int(np.searchsorted(sizes, count))
        if count and which < len(sizes):
            begin, rows = grams.start[client], grams.rows[which]
            assert np.allclose(
                rows[begin : begin + count, :count], exact[client], rtol=1e-5, atol=1e-5
            )
            assert not rows[begin : begin + count, count:].any()
            assert begin + sizes[which] <= len(rows)  # a whole matrix can be read there
            with_one += 1
    assert with_one >= 5 and (data is TURNED or counts.max() > sizes[-1])


@pytest.mark.parametrize(
    "train",
    [{}, rarely({"batch": "full", "steps": 3, "epochs": None}), rarely({"momentum": 0.5})],
    ids=["batches", "full", "momentum"],
)
def test_a_run_is_the_same_with_matrices_kept(train):
    train = {name: value for name, value in (TRAIN | train).items() if value is not None}
    found = []
    for keep in (False, True):
        spec = {
            "data": BLOBS,
            "model": {"name": "mclr"},
            "method": [{"name": "ifca", "clusters": 2}],
        }
        run = read_spec(spec | {"train": train | {"plan": {"gram": 64, "keep": keep}}}).runs()[0]
        parts = assemble.assemble(run, 1, machines.cpu())
        assert (parts.federation.train.grams is not None) == keep
        hyper = {"lr": 0.1} | ({"momentum": 0.5} if "momentum" in train else {})
        found.append(simulate(parts, [0], [hyper])[0])
    made, kept = found
    assert np.array_equal(made.labels, kept.labels) and np.allclose(
        made.models, kept.models, atol=1e-5
    )
    assert np.allclose(
        made.history["train_loss"], kept.history["train_loss"], rtol=1e-4, equal_nan=True
    )
    assert np.abs(made.models).max() > 0.1


@pytest.mark.long
def test_matrices_made_beforehand_are_used_where_they_fit():
    federation, model = toy.federation(), toy.model()
    n = federation.clients
    jobs = Jobs(
        jnp.arange(n),
        jnp.ones(n, bool),
        jnp.ones(n),
        model.init(keys.root(1))[None],
        jnp.zeros(n, jnp.int32),
    )

    def update(sizes, **more):
        grams = products.compute_grams(federation, sizes)
        wrong = grams._replace(rows=tuple(0 * each for each in grams.rows))
        there = toy.replace(
            federation, train=toy.replace(federation.train, grams=jax.device_put(wrong))
        )
        return np.asarray(
            toy.solver(model, gram=4096, **more)
            .fit(keys.root(2), there, jobs, {"lr": jnp.float32(0.1)})
            .delta
        )

    right = np.asarray(
        toy.solver(model).fit(keys.root(2), federation, jobs, {"lr": jnp.float32(0.1)}).delta
    )
    sizes = gram_sizes(Plan(gram=4096), federation.train.longest, 5)
    assert np.abs(update(sizes) - right).max() > 1e-3  # zeros for matrices
    assert np.abs(update((64, 4096)) - right).max() < 1e-5  # made for another plan
    assert (
        np.abs(update(sizes, sequential=False) - right).max() < 1e-5
    )  # side by side each makes its own


@pytest.mark.parametrize("batch", [5, "full"])
def test_a_broken_client_breaks_no_neighbour(batch):
    federation, model = toy.federation(), toy.model()
    work = (
        {"batch": batch, "steps": 3} if batch == "full" else {"batch": batch, "epochs": 2}
    )  # filler ends an epoch
    solver = toy.solver(model, gram=4096, **work)
    sizes = gram_sizes(solver.plan, federation.train.longest, solver.work.batch)
    counts = np.asarray(federation.train.count)
    which = np.searchsorted(sizes, counts)
    bad = next(c for c in range(1, len(counts)) if which[c] == which[c - 1] and counts[c - 1] % 5)
    federation = toy.broken(federation, bad)
    grams = products.compute_grams(federation, sizes)
    federation = toy.replace(
        federation, train=toy.replace(federation.train, grams=jax.device_put(grams))
    )
    clients, start = (
        np.arange(len(counts), dtype=np.int32),
        np.asarray(model.init(keys.root(1)))[None],
    )
    jobs = Jobs(clients, clients >= 0, np.ones(len(counts), np.float32), start, 0 * clients)
    delta = toy.fit_of(solver)(keys.root(2), federation, jobs, {"lr": np.float32(0.1)}).delta
    assert np.isnan(delta[bad]).any() and np.isfinite(np.delete(delta, bad, 0)).all()


def test_matrices_are_kept_where_that_pays():
    def kept(plan, machine=machines.cpu(), **train):  # noqa: B008
        run = run_of(plan, **train)
        federation = assemble.federation_of(run)
        return execution.choose_plan(
            run, assemble.model_of(run, federation), federation, machine
        ).kept

    assert kept({}) == kept({}, rounds=600) > 0  # twelve clients, four a round: twice each
    assert kept({}, rounds=5) == 0 and kept({"keep": True}, rounds=5) > 0
    assert (
        kept({"keep": False}) == 0
        and kept({"gram": 0}) == 0
        and kept({}, machine=machines.gpu()) == 0
    )
    assert kept({"pool": "sharded"}) == 0


def test_matrices_that_memory_has_no_room_for_are_made_in_turn(monkeypatch):
    run = run_of({})
    federation = assemble.federation_of(run)
    model = assemble.model_of(run, federation)
    bytes_ = execution.choose_plan(run, model, federation, machines.cpu(3)).kept
    monkeypatch.setattr(execution, "MAX_KEPT_GRAM_BYTES", 4 * bytes_ - 1)
    assert (
        execution.choose_plan(run, model, federation, machines.cpu(2)).kept == bytes_
    )  # what is made, and two copies
    assert execution.choose_plan(run, model, federation, machines.cpu(3)).kept == 0
    assert (
        execution.choose_plan(run_of({"keep": True}), model, federation, machines.cpu(3)).kept
        == bytes_
    )


def test_clients_are_alike_where_all_have_as_much_to_do():
    def alike(partition, model="mclr", **train):
        spec = {
            "data": {"name": "blobs", "samples": 404, "partition": partition, "clients": 8},
            "model": model,
            "method": "fedavg",
        }
        run = read_spec(spec | {"train": {"rounds": 1, **train}}).runs()[0]
        federation = assemble.federation_of(run)
        return execution.choose_plan(
            run, assemble.model_of(run, federation), federation, machines.cpu(2)
        ).plan.alike

    assert alike("iid") and alike("iid", optimizer="adam")
    assert not alike("quantity") and not alike("iid", stragglers=0.5)


def test_the_plan_says_what_is_kept():
    run = run_of({})
    federation = assemble.federation_of(run)
    choice = execution.choose_plan(
        run, assemble.model_of(run, federation), federation, machines.cpu()
    )
    words = execution.explain_plan("a run", choice)
    assert f"Gram matrices made once, before the first round: {choice.kept / 1e6:.3g} MB" in words
    assert "made once" not in execution.explain_plan("a run", choice._replace(kept=0))


def test_keeping_is_a_yes_or_a_no():
    with pytest.raises(SpecError, match=r"train\.plan\.keep"):
        run_of({"keep": 3})
