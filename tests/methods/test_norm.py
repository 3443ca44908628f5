"""Statistics of batches (BatchNorm) and the part `norm`: against a plain program, with any padding,
in every way of training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import cfljax
from cfljax import keys, models
from cfljax.config import read_spec
from cfljax.contract.padding import pad
from cfljax.devices.machine import describe_machine
from cfljax.errors import SpecError
from cfljax.experiment.assemble import assemble, host_federation
from cfljax.local.compressors.sign import Sign
from cfljax.local.parts import divide_model, find_sent_statistics
from cfljax.local.send import Sending
from cfljax.methods.fedgroup import AssignmentMemory
from cfljax.models.flat import columns_of_statistics, head_of, part_of, paths_of
from cfljax.round.state import State
from cfljax.types import Jobs, LocalStep, Plan
from tests import play, toy
from tests.methods.norm import (
    LR,
    MODEL,
    NET,
    NORM,
    WIDTH,
    assert_is_plain,
)
from tests.methods.served import run as run_served
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import batched, plain

STATISTICS = NORM & (np.arange(MODEL.size) // WIDTH % 3 > 0)


IFCA = rarely("ifca", {"clusters": 3, "average": "samples"})


@pytest.mark.parametrize(("name", "options"), [rarely("fedavg", {}), IFCA])
def test_batch_statistics_follow_the_plain_program(name, options):
    assert_is_plain(name, options)


def updates(fed, plan, batch=5, **more):
    """The updates of the clients 0 to 6, in another order and back."""
    solver = dataclasses.replace(toy.solver(MODEL, batch=batch, **more), plan=plan)
    which = jnp.array([3, 1, 6, 0, 2, 5, 4], jnp.int32)
    start = MODEL.init(keys.root(1))[None]
    jobs = Jobs(which, which >= 0, jnp.ones(7), start, jnp.zeros(7, jnp.int32))
    delta = jax.jit(solver.fit)(keys.root(0), fed, jobs, {"lr": 0.1}).delta
    return np.asarray(delta)[np.argsort(which)]


@pytest.mark.parametrize("batch", [5, rarely("full")])
def test_padding_and_the_way_of_training_change_no_statistics(batch):
    wanted = updates(federation(), Plan(1), batch)
    assert np.abs(wanted[:, STATISTICS]).max() > 0.1
    ways = [
        (pad(federation(), 2, 3), Plan(1)),
        (pad(federation(), 0, 4), Plan(0)),
        (federation(), Plan(3, asks_host=True)),
    ]
    for fed, plan in [*ways, (pad(federation(), 1, 2), Plan(0, queue=2))]:
        np.testing.assert_allclose(updates(fed, plan, batch), wanted, atol=2e-5)


def test_a_full_step_sees_all_samples_of_a_large_client():
    fed = toy.federation(
        "iid",
        clients=1,
        source=cfljax.data.load("blobs", {"samples": 700, "features": 6, "classes": 4}),
    )
    x, y = plain.Clients(fed).train[0]
    assert len(y) > 256
    jobs = Jobs(
        jnp.zeros(1, jnp.int32),
        jnp.ones(1, bool),
        jnp.ones(1),
        (w := MODEL.init(keys.root(1)))[None],
        jnp.zeros(1, jnp.int32),
    )
    delta = np.asarray(
        toy.solver(MODEL, batch="full").fit(keys.root(0), fed, jobs, {"lr": LR}).delta
    )[0]
    assert np.abs(delta + LR * NET.gradient(np.asarray(w, np.float64), x, y)).max() < 1e-5


def test_optimiser_decay_and_pull_leave_statistics_to_the_batches():
    plainly = updates(federation(), Plan(1), batch=400, epochs=1)
    pulled = lambda hyper: LocalStep(hyper["lr"], 0.9, 0.5, 0.7)  # noqa: E731
    for more in ({"step_of": pulled}, {"optimizer": "adam"}):
        moved = updates(federation(), Plan(1), batch=400, **more)
        np.testing.assert_allclose(moved[:, STATISTICS], plainly[:, STATISTICS], atol=1e-6)
        assert np.abs(moved - plainly).max() > 1e-3


def test_an_optimiser_of_the_server_leaves_statistics_as_they_are_averaged():
    plainly, served = (
        run_served("fedavg", optimiser, model=MODEL, rounds=1).models()[0]
        for optimiser in (None, ("adam", ()))
    )
    assert np.array_equal(plainly[STATISTICS], served[STATISTICS])
    assert np.abs(plainly - served).max() > 0.1


def test_inter_group_aggregation_leaves_statistics_as_they_are_averaged():
    """They count in no distance between groups either."""
    groups, both = np.arange(7, dtype=np.int32) % 2, np.ones(2, bool)
    models = np.random.default_rng(0).uniform(0.5, 1.0, (2, MODEL.size)).astype(np.float32)
    begun = State(
        models, groups, groups, memory=AssignmentMemory(models[0], models, both, both, groups < 2)
    )
    first, second, *moved = (
        model.astype(np.float64)
        for eta_g in (0.0, 0.5)
        for model in play.rounds(
            "fedgroup", federation(), 1, state=begun, model=MODEL, clusters=2, eta_g=eta_g
        ).models()
    )
    apart = np.where(STATISTICS, 0.0, second - first)
    pull = 0.5 * apart / np.linalg.norm(apart)
    np.testing.assert_allclose(moved, [first + pull, second - pull], atol=1e-5)
    assert np.abs(second - first)[STATISTICS].max() > 1e-2 and np.abs(pull).max() > 1e-2


def test_padding_alone_and_evaluation_move_nothing():
    params, x = MODEL.unravel(MODEL.init(keys.root(1))), np.ones((3, 6), np.float32)
    loss = lambda params, *given: MODEL.forward(params, x, *given).sum()  # noqa: E731
    for given in ((), (keys.root(0), np.zeros(3, bool)), (keys.root(0),)):
        norm = jax.jit(jax.grad(loss))(params, *given)["BatchNorm_0"]
        assert not norm["running_mean"].any() and not norm["running_var"].any()


class Residual(linen.Module):
    """A ResNet of one block with batch normalisation, as a user writes it."""

    @linen.compact
    def __call__(self, x, train: bool):
        norm = lambda: linen.BatchNorm(use_running_average=not train, momentum=0.7)  # noqa: E731
        x = linen.relu(norm()(linen.Conv(4, (3, 3), strides=2)(x)))
        x = linen.relu(x + norm()(linen.Conv(4, (3, 3))(x)))
        return linen.Dense(10)(x.mean((1, 2)))


DATA = {"name": "digits", "partition": "rotated", "groups": 2, "clients": 4}
SEVERAL = [
    {"name": "ifca", "clusters": 2},
    rarely("fedavg"),
    rarely({"name": "fedem", "clusters": 2}),
    rarely("ditto"),
    rarely("fedper"),
]


@pytest.mark.parametrize("method", SEVERAL, ids=str)
def test_a_users_resnet_trains(method):
    models.MODELS.add("residual", lambda options, sample_shape, classes: Residual())
    out = cfljax.run(method, data=DATA, model="residual", rounds=4, epochs=2, batch=20, lr=0.1)
    assert out.history["accuracy"][-1] > 0.3
    last = out.params(int(out.labels[0]))
    assert (last["BatchNorm_0"]["running_var"] != 1).all() and (
        last["BatchNorm_1"]["running_mean"] != 0
    ).any()
    x = np.random.default_rng(0).random((9, 8, 8, 1))
    whole, one = (out.predict(0, some, cluster=0) for some in (x, x[:1]))
    assert np.array_equal(whole[:1], one)


class TwoNorms(linen.Module):
    """A network with two layers of batch normalisation, of which those in `fixed` always use their
    running statistics."""

    fixed: tuple = ()

    @linen.compact
    def __call__(self, x, train: bool):
        for number in range(2):
            still = not train or number in self.fixed
            x = linen.BatchNorm(use_running_average=still, momentum=0.7)(linen.Dense(5)(x))
            x = linen.relu(x)
        return linen.Dense(4)(x)


def frozen_rounds(fixed, table, batch):
    """(d, what a participant's update and loss are, and the loss of its model when it is scored)
    with the parts of the table frozen, from a model whose running statistics are not as they
    begin."""
    model = models.from_module(TwoNorms(fixed), (6,), 4, name="two")
    solver = toy.solver(model, batch=batch, steps=1 if batch == "full" else 4)
    solver = solver.with_parts(divide_model(model, [(name, "frozen") for name in table]))
    start = jnp.abs(jax.random.normal(jax.random.key(3), (1, model.size))) + 0.2
    clients = jnp.arange(4, dtype=jnp.int32)
    jobs = Jobs(clients, clients >= 0, jnp.ones(4), start, jnp.zeros(4, jnp.int32))
    found = solver.fit(keys.root(0), federation(), jobs, {"lr": 0.1})
    scored = solver.losses(federation(), start, clients, clients >= 0, None)
    return model, np.asarray(found.delta), np.asarray(found.loss), np.asarray(scored[0])


@pytest.mark.parametrize("table", [("body",), ("norm",), ("norm", "Dense_0")], ids=str)
def test_frozen_normalisation_trains_the_model_that_is_scored(table):
    model, delta, trained, scored = frozen_rounds((), table, "full")
    np.testing.assert_allclose(trained, scored, rtol=1e-5)
    still = np.concatenate([part_of(model, path)[None] for path in model.statistics]).any(0)
    assert len(model.statistics) == 4 and not delta[:, still].any() and delta.any()


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("batch", [5, rarely("full")])
def test_of_two_layers_of_normalisation_one_is_frozen(layer, batch):
    table = (f"BatchNorm_{layer}",)
    model, found, *losses = frozen_rounds((), table, batch)
    _, wanted, *other = frozen_rounds((layer,), table, batch)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(losses, other, rtol=1e-5)
    moved = [part_of(model, f"BatchNorm_{n}/running_mean") for n in (0, 1)]
    assert not found[:, moved[layer]].any() and found[:, moved[1 - layer]].all()


@pytest.mark.parametrize("part", ["body", rarely("norm")])
def test_the_losses_of_a_run_with_frozen_normalisation_are_those_of_its_models(part):
    """What the second round trains on is the model of the first, as it is scored."""
    data = {"name": "blobs", "samples": 300, "features": 6, "classes": 4} | {
        "partition": "iid",
        "clients": 3,
        "normalise": "none",
    }
    given = {"data": data, "model": toy.named_model("fedbn"), "lr": 0.5, "freeze": part}
    one, two = (
        cfljax.run("fedavg", **given, steps=1, batch="full", rounds=rounds) for rounds in (1, 2)
    )
    (run,) = read_spec({"data": data, "method": ["fedavg"]}).runs()
    clients, net = plain.Clients(host_federation(run)), batched.Net(6, 4, 4, 0.5)
    w = np.asarray(one.models[0], np.float64)
    losses = [net.loss(w, x, y) for x, y in clients.train]
    np.testing.assert_allclose(two.history["train_loss"][-1], np.mean(losses), rtol=1e-4)


@pytest.mark.parametrize(
    "name", [rarely("resnet20"), rarely("resnet18"), rarely("mobilenet_v2"), "cnn"]
)
def test_models_of_the_package_have_batch_normalisation_and_a_part_norm(name):
    small = {
        "cnn": {"channels": [3], "dense": [5]},
        "mobilenet_v2": {"width": 0.1, "depth": 0.1},
    }.get(name, {"width": 4})
    model = models.build(name, small | {"norm": "batch"}, (8, 8, 1), 10)
    running, params = set(model.statistics), model.unravel(model.init(keys.root(0)))
    sizes = {path: leaf.size for path, leaf in paths_of(model)}
    norms = [path for path in sizes if "norm" in path]
    assert len(norms) == 2 * len(running) and running < set(norms)
    assert all(
        (leaf == 0).all() or (leaf == 1).all() for leaf in jax.tree.leaves(params) if leaf.ndim == 1
    )
    first = min(running)
    found = divide_model(
        model, (("body", "all"), ("head", "all"), ("norm", "client"), (first, "cluster"))
    )
    assert len(found.columns("cluster")) == sizes[first]
    assert len(find_sent_statistics(model, None)) == sum(sizes[path] for path in running)
    assert len(find_sent_statistics(model, found)) == sizes[first]
    assert find_sent_statistics(model, divide_model(model, [("norm", "client")])) == ()
    assert len(found.home) == sum(sizes[path] for path in norms) - sizes[first]
    assert models.build(name, small, (8, 8, 1), 10).statistics == ()


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("scaffold", {}, "cannot move the running statistics of BatchNorm"),
        ("feddyn", {}, "cannot move the running statistics of BatchNorm"),
        ("apfl", {}, "cannot move the running statistics of BatchNorm"),
        ("joint", {}, "cannot move the running statistics of BatchNorm"),
        (
            {"name": "ifca", "aggregate": "gradient"},
            {},
            "cannot move the running statistics of BatchNorm",
        ),
        (
            {"name": "fedavg", "average": "nova"},
            {},
            "cannot move the running statistics of BatchNorm",
        ),
        (
            "fedavg",
            {"privacy": {"clip": 1.0, "noise": 0.1}},
            'train.privacy with model "cnn": .*parts = { norm = "client" }',
        ),
        (
            "fedbn",
            {"model": "mlp"},
            'model "mlp": has no layers of normalisation for the part "norm"; use',
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_line(method, more, said):
    given = {
        "model": {"name": "cnn", "channels": [2], "kernel": 3, "dense": [4], "norm": "batch"},
        "rounds": 1,
    } | more
    with pytest.raises(SpecError, match=said) as raised:
        cfljax.run(method, data=DATA, **given)
    assert "\n" not in str(raised.value)


def test_statistics_are_sent_as_they_are_beside_compressed_numbers():
    """They are no steps: their sizes and signs have nothing to do with those of the others."""
    plainly, signed = (
        updates(federation(), Plan(1), batch=400, sending=sending)
        for sending in (Sending(), Sending(Sign(), uncompressed=tuple(np.flatnonzero(STATISTICS))))
    )
    steps = plainly[:, ~STATISTICS].astype(np.float64)
    assert np.array_equal(signed[:, STATISTICS], plainly[:, STATISTICS])
    wanted = np.sign(steps) * np.abs(steps).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(signed[:, ~STATISTICS], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("parts", "kept"), [({}, 0), ({"norm": "client"}, 8), ({"head": "client"}, 50)]
)
def test_the_bill_of_compressed_updates_has_statistics_in_full(parts, kept):
    model = {"name": "cnn", "channels": [2], "kernel": 3, "dense": [4], "norm": "batch"}
    train = {"rounds": 1, "compress": "sign"} | ({"parts": parts} if parts else {})
    table = {"data": DATA, "model": model, "method": ["fedavg"], "train": train, "seeds": [0]}
    made = assemble(read_spec(table).runs()[0], 1, describe_machine())
    columns, sent = columns_of_statistics(made.model), made.model.size - kept
    if "head" in parts:
        columns = columns[~part_of(made.model, head_of(made.model))]
    found = made.settings.sending.uncompressed
    statistics = 0 if "norm" in parts else 4
    assert len(found) == statistics and list(found) == np.flatnonzero(columns)[:statistics].tolist()
    assert made.settings.vector_up == 4 * statistics + 4 + -(-(sent - statistics) // 8)
