"""The columns of a run beside an independent scorer in plain numpy (`tests/reference/scorer.py`): what
clients see, what their models answer, and what was sent."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.experiment.assemble import host_federation
from cfljax.federation import gather
from cfljax.methods.fedavg import FedAvg
from tests.often import rarely
from tests.reference import scorer

gathered = jax.jit(gather.samples)
ROUNDS = 3
DIGITS = {"name": "digits", "clients": 8, "samples_per_client": 24}
ROTATED = DIGITS | {"partition": "rotated", "groups": 2}
SWAPPED = DIGITS | {"partition": "label_swap", "groups": 2}
SHIFTED = DIGITS | {"partition": "iid", "views": [{"name": "feature_shift", "groups": 2}]}
BOTH = DIGITS | {
    "partition": "iid",
    "views": [{"name": "rotated", "groups": 2}, {"name": "label_swap", "groups": 2}],
}
PLAIN = DIGITS | {"partition": "iid"}
PIXEL = {"normalise": "pixel"}
MLP = {"name": "mlp", "hidden": [5]}
CNN = {"name": "cnn", "channels": [3], "kernel": 3, "dense": [], "norm": "batch"}
WHOLE = {"steps": 1, "batch": "full", "lr": 0.3}
"""One step on all samples, so that the loss of a round is that of the models that it begins with."""
IFCA = {"name": "ifca", "clusters": 2}
LIARS = {"attack": {"name": "sign_flip", "share": 0.25}}
ASKED = (4, 2, 1)
"""So many participants of a round are asked more by `Nested`, so many of these, and so many of
those."""


@dataclasses.dataclass(frozen=True)
class Nested(FedAvg):
    """FedAvg with questions inside of questions, whose answers change nothing."""

    def prepare(self, ask, state):
        """Ask."""
        some = ask.of(ask.cohort.ids < ASKED[0])
        some.losses(jnp.tile(state.models, (3, 1)))
        fewer = some.of(ask.cohort.ids < ASKED[1])
        fewer.gradients(jnp.tile(state.models, (2, 1)))
        fewer.upload(7)
        one = fewer.of(ask.cohort.ids < ASKED[2])
        one.losses(jnp.tile(state.models, (5, 1)))
        return state


CASES = [
    ("fedavg", ROTATED, MLP, {}),
    ("fedavg", ROTATED | PIXEL, MLP, {}),
    ("fedavg", SWAPPED | PIXEL, "mclr", LIARS),
    ("fedavg", SHIFTED, MLP, {"compress": {"name": "topk", "keep": 0.3}}),
    ("fedavg", SHIFTED | PIXEL, MLP, {"compress": "int8"}),
    ("fedavg", BOTH | PIXEL, MLP, {"freeze": "head"}),
    ("fedavg", PLAIN | PIXEL | {"validation": 0.2}, "mclr", {"compress": "sign"}),
    ("fedavg", ROTATED | PIXEL | {"drift": {"at": [1], "share": 0.5}}, MLP, {}),
    ("fedavg", PLAIN, CNN, {}),
    ("fedavg", PLAIN, CNN, {"freeze": "body"}),
    ("fedavg", ROTATED | PIXEL, CNN, {"freeze": "norm"}),
    ("fedavg", PLAIN, CNN, {"parts": {"norm": "client"}}),
    ("fedavg", PLAIN, MLP, {"robust": "median"} | LIARS),
    ({"name": "fedavg", "average": "nova"}, PLAIN, MLP, {}),
    ("oracle", ROTATED | PIXEL, MLP, {}),
    ("oracle", BOTH, MLP, {"freeze": "body"}),
    (IFCA, ROTATED | PIXEL, MLP, {}),
    (IFCA, SWAPPED, MLP, LIARS),
    (IFCA, BOTH | PIXEL, MLP, {"parts": {"body": "all"}}),
    (IFCA, SWAPPED, MLP, {"parts": {"head": "client"}}),
    (IFCA, ROTATED, CNN, {"freeze": "norm"}),
    ("fedper", SWAPPED | PIXEL, MLP, {}),
    ("lg_fedavg", BOTH, MLP, LIARS),
    ("fedbn", SHIFTED, CNN, {}),
    ("ditto", ROTATED | PIXEL, MLP, {}),
    ("scaffold", PLAIN, MLP, {}),
    ({"name": "fedem", "clusters": 2}, SWAPPED | PIXEL, MLP, {}),
    ({"name": "nested"}, ROTATED | PIXEL, MLP, {"compress": "int8"}),
]
OFTEN = (5, 10, 17)
"""Those that are ordinary tests."""
SEVERAL = (24, 26)
"""Those of methods whose clients train other models than the one that they are scored by."""


def name_of(at):
    method, data, model, train = CASES[at]
    words = [method if isinstance(method, str) else method["name"], data["partition"]]
    words += [each["name"] for each in data.get("views", ())]
    words += [data.get("normalise", ""), "cnn" if model == CNN else "", *train]
    return "-".join(word for word in words if word)


def cases(left_out=()):
    """Parameters of a test: some of the cases are ordinary tests, the others long ones."""
    numbers = [at for at in range(len(CASES)) if at not in left_out]
    return pytest.mark.parametrize(
        "case", [at if at in OFTEN else rarely(at) for at in numbers], ids=name_of
    )


@pytest.fixture(autouse=True)
def nested(registries):
    cfljax.register_method("nested")(Nested)


@functools.cache
def made(at):
    """(The result after all rounds but one, after all, and what clients see by then)."""
    method, data, model, train = CASES[at]
    results = [
        cfljax.run(method, data, model, train=WHOLE | train | {"rounds": rounds})
        for rounds in (ROUNDS - 1, ROUNDS)
    ]
    spec = {"data": data, "model": model, "method": [method]}
    (run,) = read_spec(spec).runs()
    federation = jax.tree.map(np.asarray, host_federation(run))
    return *results, federation, data.get("normalise", "unit")


def model_of(result, client):
    """The parameters that a client is scored by."""
    own = len(result.models) == len(result.labels)
    return result.params(client if own else int(result.labels[client]))


@cases()
def test_the_columns_are_those_of_an_own_forward_pass(case):
    method, _, _, train = CASES[case]
    _, result, federation, how = made(case)
    clients = len(result.labels)
    data = scorer.Data(federation, how)
    now = scorer.Data(federation, how)
    now.federation = federation.at(ROUNDS)
    samples = [now.samples("test", client) for client in range(clients)]
    for client in range(clients):
        x, y = result.samples(client)
        np.testing.assert_allclose(x, samples[client][0], atol=2e-3, rtol=1e-5)
        assert np.array_equal(y, samples[client][1])

    def log_p_of(client, x):
        if result.mixture is None:
            return scorer.log_softmax(scorer.forward(model_of(result, client), x))
        parts = zip(result.mixture[client], range(len(result.models)), strict=True)
        each = [
            w * np.exp(scorer.log_softmax(scorer.forward(result.params(k), x))) for w, k in parts
        ]
        return np.log(sum(each))

    scored = ~np.isnan(result.client_accuracy)
    assert scored.sum() == clients - ("attack" in train) * round(0.25 * clients)
    right, lost, count = scorer.scores(log_p_of, samples)
    for name, value in scorer.columns(right, lost, count, scored).items():
        assert result.history[name][-1] == pytest.approx(value, abs=1e-5, rel=1e-4), name
    np.testing.assert_allclose(result.client_accuracy[scored], (right / count)[scored], atol=1e-6)
    if "val_loss" in result.history:
        valid = [data.samples("valid", client) for client in range(clients)]
        right, lost, count = scorer.scores(log_p_of, valid)
        assert result.history["val_loss"][-1] == pytest.approx(lost.sum() / count.sum(), rel=1e-4)
        assert result.history["val_accuracy"][-1] == pytest.approx(right.sum() / count.sum())


@cases(left_out=SEVERAL)
def test_the_training_loss_is_that_of_the_models_that_the_round_began_with(case):
    _, _, model, train = CASES[case]
    before, result, federation, how = made(case)
    now = scorer.Data(federation, how)
    now.federation = federation.at(ROUNDS - 1)
    batch = model == CNN and train.get("freeze") not in ("norm", "body")
    total = count = 0.0
    for client in range(len(result.labels)):
        x, y = now.samples("train", client)
        own = len(before.models) == len(before.labels)
        # the cluster that it has chosen in this round
        params = before.params(client if own else int(result.labels[client]))
        total += scorer.losses(scorer.log_softmax(scorer.forward(params, x, batch)), y).sum()
        count += len(y)
    assert result.history["train_loss"][-1] == pytest.approx(total / count, rel=2e-4)


@cases()
def test_what_clients_train_on_is_normalised_as_promised(case):
    _, result, federation, how = made(case)
    data, clients = scorer.Data(federation, how), range(len(result.labels))
    rows = [data.rows("train", client) for client in clients]
    of = np.repeat(clients, [len(each) for each in rows])
    x, y = gathered(federation.at(0), of, np.concatenate(rows), np.ones(len(of), bool))
    inputs = []
    for client in clients:
        mine = np.asarray(x, np.float64)[of == client]
        wanted = data.samples("train", client)
        np.testing.assert_allclose(mine, wanted[0], atol=2e-3, rtol=1e-5)
        assert np.array_equal(np.asarray(y)[of == client], wanted[1])
        view = federation.view
        seen = 0 if view is None else view.of[client]
        gain = 1 if view is None or view.gain is None else view.gain[seen]
        offset = 0 if view is None or view.offset is None else view.offset[seen]
        inputs.append(((mine - offset) / gain).reshape(len(mine), -1))
    inputs = np.concatenate(inputs)
    if how == "unit":
        assert inputs.min() >= 0 and inputs.max() <= 1.00001
        return
    deviation = inputs.std(0)
    assert np.abs(inputs.mean(0)).max() < 1e-3 and deviation.max() < 1.001
    assert np.mean(np.abs(deviation - 1) < 1e-3) > 0.5
    tested = np.concatenate([data.scaled("test", client).ravel() for client in clients])
    assert np.abs(tested).max() <= 255


def bill(method, train, sizes):
    """(Numbers down, bytes up) of a participant of a round: `sizes` of body, head and norm."""
    name, clusters = (method, 1) if isinstance(method, str) else (method["name"], 2)
    d = sum(sizes.values())
    home = {"fedper": "head", "lg_fedavg": "body", "fedbn": "norm"}.get(name)
    kinds = train.get("parts", {}) | ({home: "client"} if home else {})
    kinds |= {train["freeze"]: "frozen"} if "freeze" in train else {}
    if kinds.keys() & {"body"}:  # layers of normalisation are in the body
        kinds = {"norm": kinds["body"]} | kinds
    away = sum(size for part, size in sizes.items() if kinds.get(part) not in ("client", "frozen"))
    for_all = sum(size for part, size in sizes.items() if kinds.get(part) == "all")
    way = train.get("compress")
    up = 4 * away
    if way == "int8":
        up = 4 + away
    elif way == "sign":
        up = 4 + math.ceil(away / 8)
    elif way:
        up = 8 * math.ceil(way["keep"] * away)
    if name == "nested":
        some, fewer, one = (number / DIGITS["clients"] for number in ASKED)
        # beside the model that it trains: two more of three, one more of two, four more of five
        return away * (1 + 2 * some + fewer + 4 * one), up * (1 + fewer) + 7 * 4 * fewer
    times = 2 if name in ("scaffold", "fedem") else 1  # control variates; two models
    if name == "fedavg" and not isinstance(method, str):  # FedNova's lengths
        return away, up + 4
    down = clusters * (away - for_all) + for_all if name == "ifca" else times * away
    assert d >= away > 0
    return down, times * up


@cases()
def test_the_bill_is_what_was_sent(case):
    method, _, _, train = CASES[case]
    _, result, _, _ = made(case)
    sizes = {"body": 0, "head": 0, "norm": 0}
    params = result.params(0)
    layers = {**params, **params.get("head", {})}
    layers = {
        name: layer for name, layer in layers.items() if "kernel" in layer or "scale" in layer
    }
    last = max(name for name in layers if name.startswith("dense_"))
    for name, layer in layers.items():
        part = "head" if name == last else "norm" if "scale" in layer else "body"
        sizes[part] += sum(np.size(leaf) for leaf in jax.tree.leaves(layer))
    assert sum(sizes.values()) == result.models.shape[1]
    down, up = bill(method, train, sizes)
    rounds = np.arange(ROUNDS + 1) * len(result.labels)
    assert result.history["bytes_down"].tolist() == (4 * down * rounds).tolist()
    assert result.history["bytes_up"].tolist() == (up * rounds).tolist()
