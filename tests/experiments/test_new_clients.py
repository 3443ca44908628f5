"""`data.new_clients`: who they are, that they influence nothing, where they are placed, and how
they are scored."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine import afterwards
from cfljax.engine.afterwards import batch_width
from cfljax.engine.simulate import simulate
from cfljax.errors import SpecError
from cfljax.experiment.assemble import assemble, assemble_batch, host_federation
from cfljax.experiment.batching import make_batches
from cfljax.experiment.privacy import find_crowd
from cfljax.launch import checkpoints
from cfljax.methods import METHODS
from cfljax.registry.options import list_traced
from cfljax.report.tables import write_comparison
from cfljax.types import Method
from cfljax.types.federation import NEVER
from tests import play, toy
from tests.often import every, rarely

NEW = {"share": 0.25, "shots": 8, "steps": [0, 1, 3]}
BLOBS = {
    "name": "blobs",
    "samples": 400,
    "features": 6,
    "classes": 4,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 12,
}
QUICK = {
    "flux": {"cluster_after": 1},
    "fl_hc": {"threshold": 1.0, "warmup_rounds": 1},
    "cfl_sattler": {"min_rounds": 1},
}
UNLABELLED = {"share": 0.4, "shots": 0, "rule": "entropy"}
every_method = pytest.mark.parametrize("name", every(often=("ifca",)))


def runs(name="fedavg", data=None, train=None, seeds=(0,), **options):
    method = (
        {"name": name}
        | QUICK.get(name, {})
        | ({"clusters": 2} if "clusters" in _fields(name) else {})
        | options
    )
    data = BLOBS | {"new_clients": NEW} | (data or {})
    train = {"rounds": 3, "lr": 0.2, "participation": 1.0} | (train or {})
    model = toy.named_model(name)
    return read_spec(
        {"data": data, "model": model, "train": train, "method": [method], "seeds": list(seeds)}
    ).runs()


def _fields(name):
    return METHODS.entry(name).options.__dataclass_fields__


def outputs(runs, change=lambda federation: federation, sequential=True, wide=0, **more):
    """`wide`: how many newcomers train at a time, if not as many as take part in a round."""
    (batch,) = make_batches(runs, len(runs))
    parts = assemble_batch(batch, describe_machine())
    plan, settings = (
        parts.plan._replace(stream=wide or parts.plan.stream),
        parts.settings._replace(sequential=sequential),
    )
    parts = parts._replace(plan=plan, federation=change(parts.federation), settings=settings)
    return simulate(
        parts,
        [run.seed for run in runs],
        [{"lr": 0.2} | list_traced(run.options) for run in runs],
        **more,
    )


def rows_of(split, client):
    start, count = int(split.start[client]), int(split.count[client])
    return np.asarray(split.rows)[start : start + count]


def newcomers(federation):
    return np.flatnonzero(np.asarray(federation.arrive) == NEVER)


def test_who_they_are_is_drawn_with_the_partition_and_they_keep_a_few_samples():
    (run,), (other,), (plain,) = (
        runs(),
        runs(data={"seed": 7}),
        runs(data={"new_clients": {"share": 0.25}, "validation": 0.3}),
    )
    federation, valid = host_federation(run), host_federation(plain)
    ids = newcomers(federation)
    assert (
        ids.tolist() == [2, 3, 5] != newcomers(host_federation(other)).tolist()
    )  # as in earlier versions
    assert (np.asarray(federation.train.count)[ids] == 8).all() and not np.asarray(
        federation.trains
    )[ids].any()
    assert (
        np.asarray(valid.valid.count)[newcomers(valid)] == 0
    ).all() and plain.data.new_clients.steps == (0, 1, 5)
    assert (np.asarray(federation.train.count)[np.asarray(federation.trains)] > 8).all()
    (late,) = runs(
        data={"arrive": {"clients": 9, "round": 1}}
    )  # all that train may come late, and nobody else
    assert np.asarray(host_federation(late).arrive).tolist().count(1) == 9


def with_samples(federation, clients, make, only=("train", "test")):
    """The federation in which these clients hold `make(client, x, y)` in place of their samples x,
    y, of which nobody else holds any. `only`: these of their samples."""
    x, y = np.asarray(federation.pool.x), np.asarray(federation.pool.y)
    splits = {}
    for name, split in federation.splits.items():
        rows = np.array(split.rows)
        for client in clients if name in only else ():
            at = int(split.start[client]) + np.arange(int(split.count[client]))
            new = make(client, x[rows[at]], y[rows[at]])
            x, y = (
                np.concatenate(pair).astype(pair[0].dtype) for pair in ((x, new[0]), (y, new[1]))
            )
            rows[at] = len(y) - len(at) + np.arange(len(at))
        splits[name] = dataclasses.replace(split, rows=rows)
    return dataclasses.replace(
        federation.with_splits(splits), pool=federation.pool._replace(x=x, y=y)
    )


def apart(federation):
    """The same samples, those of newcomers in rows of their own, as they are in `spoiled`."""
    return with_samples(federation, newcomers(federation), lambda _, x, y: (x, y))


def spoiled(federation):
    """Other samples for the newcomers, for training and for tests."""
    return with_samples(federation, newcomers(federation), lambda _, x, y: (x + 3.0, (y + 1) % 4))


def absent(federation):
    """The federation in which newcomers are dummies."""
    new = np.asarray(federation.arrive) == NEVER
    uid, group = (
        np.where(new, -1, np.asarray(federation.uid)),
        np.where(new, -1, np.asarray(federation.group)),
    )
    return dataclasses.replace(federation, uid=uid.astype(np.int32), group=group.astype(np.int32))


@pytest.mark.parametrize("name", ["ifca"])
def test_newcomers_influence_nothing_and_are_scored(name):
    few = {"participation": 5, "eval_clients": 6} if name not in play.EVERYBODY else {}
    planned = runs(name, train=few)
    changes = (apart, spoiled, lambda federation: absent(apart(federation)))
    (a,), (b,), (c,) = (outputs(planned, change) for change in changes)
    mine = newcomers(host_federation(runs(name)[0]))
    own = a.models.shape[0] == len(
        a.labels[-1]
    )  # a model for each client: newcomers may have theirs
    others = np.delete(np.arange(len(a.models)), mine) if own else slice(None)
    for other in (b, c):
        assert a.models[others].tobytes() == other.models[others].tobytes()
        assert a.labels.tobytes() == other.labels.tobytes()
        assert [q for q in a.history if a.history[q].tobytes() != other.history[q].tobytes()] == []
        kept, same = (
            {q: _of_others(v, mine, len(a.labels[-1])) for q, v in each.diag.items()}
            for each in (a, other)
        )
        assert [q for q in kept if kept[q].tobytes() != same[q].tobytes()] == []
    if few:
        assert (a.history["scored"] == 6).all()
    assert (a.labels[:, mine] == -1).all() and np.isnan(a.client_accuracy[mine]).all()
    assert list(a.newcomers) == ["accuracy_new_0", "accuracy_new_1", "accuracy_new_3", "ari_new"]
    assert (
        all(0 <= a.newcomers[f"accuracy_new_{s}"] <= 1 for s in (0, 1, 3))
        and a.newcomers != b.newcomers
    )


def _of_others(values, newcomers, clients):
    return np.delete(values, newcomers, 0) if values.ndim and len(values) == clients else values


def test_pixels_are_normalised_by_those_that_train():
    (run,) = runs(
        data={"normalise": "pixel", "copies": False}
    )  # else clients of another group have a newcomer's samples, too
    federation = host_federation(run)
    rows = [rows_of(federation.train, client) for client in np.flatnonzero(federation.trains)]
    seen = np.asarray(federation.pool.x, np.float64)[np.concatenate(rows)]
    np.testing.assert_allclose(federation.pool.mean, seen.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(federation.pool.scale, 1 / seen.std(0), rtol=1e-4)


def test_privacy_and_shares_count_those_that_train():
    (run,) = runs(train={"participation": 0.5})
    federation = host_federation(run)
    assert find_crowd(federation).clients == 9 and find_crowd(federation).arrived == ((0, 9),)
    assert (
        assemble(run, 1, describe_machine()).settings.participants == run.train.participants(9) == 4
    )


def test_newcomers_train_in_blocks_as_they_do_together():
    data = {"clients": 30, "samples": 900, "new_clients": NEW | {"share": 0.4}}
    (few,), (many,) = (
        runs("fedavg", data, {"participation": 5}),
        runs("fedavg", data, {"participation": 1.0}),
    )
    (a,), (b,) = outputs([few]), outputs([few], lambda federation: federation, wide=18)
    at = [assemble(run, 1, describe_machine()) for run in (few, many)]
    assert [batch_width(parts, parts.newcomers) for parts in at] == [5, 12]
    assert a.newcomers == pytest.approx(b.newcomers, abs=1e-6)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def moved(w, x, y, steps, lr):
    """Full-batch gradient descent of multinomial regression, in plain numpy."""
    for _ in range(steps):
        gradient = softmax(x @ w[:-1] + w[-1])
        gradient[np.arange(len(y)), y] -= 1
        w = w - lr * np.vstack([x.T @ gradient, gradient.sum(0)]) / len(y)
    return w


@pytest.mark.parametrize(
    ("name", "epochs", "options"),
    [rarely("fedavg", 1, {}), ("ifca", 1, {}), rarely("fesem_flexcfl", 30, {})],
    ids=["fedavg", "ifca", "fesem_flexcfl"],
)
def test_newcomers_agree_with_plain_numpy(name, epochs, options):
    """Placed by the least loss on their labelled samples; their test samples would say another
    group. In FedGroup's program FeSEM's `score` would give all clients that were never drawn one
    centre."""

    def change(federation):
        return with_samples(
            federation, newcomers(federation), lambda _, x, y: (x, (y + 1) % 4), only=("test",)
        )

    train = {"batch": "full", "participation": 3, "rounds": 6, "epochs": epochs}
    (run,) = runs(
        name, {"new_clients": NEW | {"share": 0.4}}, train, seeds=(5,), **options
    )  # by which IFCA finds both groups
    (output,) = outputs([run], change)
    federation = change(host_federation(run))
    unravel = jax.jit(assemble(run, 1, describe_machine()).model.unravel)
    params = [unravel(each) for each in output.models]
    leaves = [
        {leaf.ndim: np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(each)}
        for each in params
    ]
    weights = [np.vstack([each[2], each[1]]) for each in leaves]
    assert len(set(output.labels[-1]) - {-1}) == len(weights)
    right, count = dict.fromkeys((0, 1, 3), 0), 0
    for client in newcomers(federation):
        shots, tests = (
            _samples(federation, split, client) for split in (federation.train, federation.test)
        )
        losses = [
            -np.log(softmax(shots[0] @ w[:-1] + w[-1])[np.arange(8), shots[1]]).mean()
            for w in weights
        ]
        for steps in right:
            w = moved(weights[int(np.argmin(losses))], *shots, steps, 0.2)
            right[steps] += int(((tests[0] @ w[:-1] + w[-1]).argmax(1) == tests[1]).sum())
        count += len(tests[1])
    assert {f"accuracy_new_{s}": n / count for s, n in right.items()} == pytest.approx(
        {q: v for q, v in output.newcomers.items() if q != "ari_new"}, abs=1e-6
    )
    assert output.newcomers["ari_new"] == (0 if name == "fedavg" else 1)


def _samples(federation, split, client):
    rows = rows_of(split, client)
    x, y = np.asarray(federation.pool.x, np.float64)[rows], np.asarray(federation.pool.y)[rows]
    return x, np.asarray(federation.view.labels)[int(federation.view.of[client])][y]


def test_pacfl_places_newcomers_by_their_data_alone():
    """The samples of each group lie along an axis. With `how = "smallest"` a newcomer's labels do
    not matter."""

    def turned(federation, shift=0):
        def make(client, x, y):
            axis = np.eye(x.shape[1])[int(federation.group[client])]
            new = federation.arrive[client] == NEVER
            return 5 * axis + 0.01 * np.random.default_rng(client).normal(size=x.shape), (
                y + shift
            ) % 4 if new else y

        return with_samples(federation, range(federation.clients), make)

    (run,) = runs(
        "pacfl", {"new_clients": NEW | {"share": 0.5}}, how="smallest", p=1, threshold=20.0
    )
    (a,), (b,) = outputs([run], turned), outputs([run], lambda federation: turned(federation, 1))
    new = newcomers(host_federation(run))
    assert set(np.asarray(host_federation(run).group)[new]) == {0, 1} and a.diag["found"] == 2
    assert a.newcomers["ari_new"] == b.newcomers["ari_new"] == 1
    assert a.newcomers["accuracy_new_0"] != b.newcomers["accuracy_new_0"]


@every_method
def test_labels_of_clients_without_labels_change_nothing(name):
    def relabelled(federation, by=1):
        return with_samples(
            federation, newcomers(federation), lambda _, x, y: (x, (y + by) % 4), only=("train",)
        )

    options = {"how": "smallest"} if name == "pacfl" else {}
    data = {"new_clients": {k: v for k, v in UNLABELLED.items() if k != "rule" or name != "pacfl"}}
    planned = runs(name, data, **options)
    (a,), (b,) = (
        outputs(planned, lambda federation: relabelled(federation, 4)),
        outputs(planned, relabelled),
    )
    assert (
        list(a.newcomers) == ["accuracy_new_unlabelled", "ari_new"] and a.newcomers == b.newcomers
    )
    assert 0 < a.newcomers["accuracy_new_unlabelled"] <= 1


@pytest.mark.parametrize("name", ["ifca", rarely("fedem")], ids=["ifca", "fedem"])
def test_clients_without_labels_take_the_surest_model_as_in_plain_numpy(name):
    def change(
        federation,
    ):  # clients of both groups see the same inputs, which then have the same surest model
        def elsewhere(client, x, y):
            return (
                x + 2 * np.random.default_rng(client).normal(size=x.shape[1]),
                y,
            )

        return with_samples(federation, newcomers(federation), elsewhere)

    (run,) = runs(name, {"new_clients": UNLABELLED}, {"batch": "full", "rounds": 6}, seeds=(5,))
    (output,), federation = outputs([run], change), change(host_federation(run))
    unravel = jax.jit(assemble(run, 1, describe_machine()).model.unravel)
    right, count, chosen = 0, 0, []
    leaves = [
        {leaf.ndim: np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(unravel(each))}
        for each in output.models
    ]
    weights = [np.vstack([each[2], each[1]]) for each in leaves]
    for client in newcomers(federation):
        (x, _), (tests, y) = (
            _samples(federation, split, client) for split in (federation.train, federation.test)
        )
        assert len(x) > 20  # it keeps all its inputs
        surest = [(p := softmax(x @ w[:-1] + w[-1])) * np.log(p) for w in weights]
        chosen.append(int(np.argmax([each.sum(1).mean() for each in surest])))
        w = weights[chosen[-1]]
        right, count = right + int(((tests @ w[:-1] + w[-1]).argmax(1) == y).sum()), count + len(y)
    assert len(set(chosen)) == 2  # both models are the surest for some
    assert output.newcomers["accuracy_new_unlabelled"] == pytest.approx(right / count)


def test_the_entropy_is_of_the_classes_that_a_model_predicts():
    logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    one, p = np.array([0, 1, 2, 0, 1]), softmax(logits)
    entropy = jax.jit(afterwards._entropy)
    np.testing.assert_allclose(entropy(logits, one), -(p * np.log(p)).sum(1), rtol=1e-5)
    each = 1 / (1 + np.exp(-logits))
    binary = -(each * np.log(each) + (1 - each) * np.log(1 - each))
    np.testing.assert_allclose(entropy(logits, np.zeros((5, 3))), binary.sum(1), rtol=1e-5)
    np.testing.assert_allclose(entropy(logits[:, :1], one), binary[:, 0], rtol=1e-5)


def test_a_method_that_places_clients_by_labels_says_so_before_anything_is_loaded():
    nowhere = {
        "name": "/nowhere",
        "partition": "iid",
        "clients": 4,
        "new_clients": {"share": 0.4, "shots": 0},
    }
    for method, more, told in (
        (
            "ifca",
            {},
            "data.new_clients.shots = 0 with method.ifca: it places new clients by labels; "
            'give .*rule = "entropy"',
        ),
        ("fedem", {}, "with method.fedem: it places"),
        ("pacfl", {}, "with method.pacfl: it places"),
        ("per_fedavg", {}, "with method.per_fedavg: it places"),
        (
            "fedavg",
            {"steps": [0, 1]},
            r"data.new_clients.steps = \[0, 1\]: clients cannot train with shots = 0; leave "
            r"steps out",
        ),
        (
            "ifca",
            {"shots": 5, "rule": "entropy"},
            'data.new_clients.rule = "entropy": is for clients without labels; give shots = 0',
        ),
        ("ifca", {"rule": "entropy"}, r"entropy\" \(without parts of clients\)"),
    ):
        data = nowhere | {"new_clients": nowhere["new_clients"] | more}
        train = {"parts": {"head": "client"}} if "parts" in told else {}
        with pytest.raises(SpecError, match=told):
            read_spec({"data": data, "model": "mlp", "method": [method], "train": train}).runs()


@pytest.mark.long
def test_runs_side_by_side_and_resumed_runs_have_the_same_newcomers():
    batch, saved = runs("ifca", seeds=(0, 1, 2)), []
    alone = outputs(batch, checkpoint=lambda make: saved.append(make()), chunk_rounds=1)
    together = outputs(batch, sequential=False)
    again = outputs(batch, resume=checkpoints.from_arrays(*checkpoints.to_arrays(saved[0])))
    for a, b, c in zip(alone, together, again, strict=True):
        assert a.newcomers == c.newcomers and a.newcomers == pytest.approx(b.newcomers, abs=0.02)
    assert len({each.newcomers["accuracy_new_3"] for each in alone}) > 1


def test_a_method_whose_clients_choose_no_model_leaves_newcomers_without_a_label_in_the_first():
    """The second model has a smaller loss for all of them."""
    (run,) = runs()
    parts = assemble(run, 1, describe_machine())
    clients, size = parts.federation.clients, parts.model.size
    models = np.stack([10 * np.random.default_rng(0).normal(size=size), np.zeros(size)])
    labels = np.where(np.asarray(parts.federation.arrive) == NEVER, -1, 1)

    def placed(chooses):
        method = Method(
            None, None, models=lambda state: (jnp.float32(models), labels), chooses=chooses
        )

        @jax.jit
        def which(federation):
            of = parts._replace(method=method)
            return afterwards.place_newcomers(
                of, None, {"lr": 0.1}, np.int32(3), federation
            ).at.which

        return which(parts.federation).tolist()

    assert placed(chooses=False) == np.maximum(labels, 0).tolist() != [1] * clients
    assert placed(chooses=True) == [1] * clients


def test_the_record_and_the_frame_have_them(tmp_path):
    spec = {
        "data": BLOBS | {"new_clients": {"share": 0.25, "shots": [0, 8]}},
        "model": "mclr",
        "train": {"rounds": 2},
        "method": ["fedavg"],
    }
    results = cfljax.sweep(spec, tmp_path / "both", quiet=True)
    columns = [
        "accuracy_new_unlabelled",
        "accuracy_new_0",
        "accuracy_new_1",
        "accuracy_new_5",
        "ari_new",
    ]
    frame = results.to_pandas()
    assert list(frame.columns)[-5:] == columns
    assert frame["accuracy_new_0"].dropna().between(0, 1).tolist() == [True]
    head = write_comparison(results).splitlines()[0]
    assert (
        "new clients, unlabelled" in head
        and "new clients, 0 steps" in head
        and "1 step" not in head
    )


def test_what_cannot_be_is_said_in_one_line():
    for table, told in (
        ({"share": 1.0}, r"data.new_clients.share = 1.0: must be less than 1"),
        ({"share": 0}, r"data.new_clients.share = 0"),
        ({}, r"data.new_clients.share: missing"),
        ({"share": 0.1, "shots": -1}, r"data.new_clients.shots = -1"),
        (
            {"share": 0.1, "steps": [3, 1]},
            r"data.new_clients.steps = \[3, 1\]: must be whole numbers in ascending order",
        ),
        ({"share": 0.1, "shoots": 3}, r"data.new_clients.shoots: there is no such option.*shots"),
    ):
        with pytest.raises(SpecError, match=told):
            runs(data={"new_clients": table})
    with pytest.raises(
        SpecError,
        match=r"data.new_clients.share = 0.99: 12 clients have training samples, and none would "
        r"train",
    ):
        host_federation(runs(data={"new_clients": {"share": 0.99}})[0])


def test_a_client_that_never_trains_makes_another_program_of_the_end(monkeypatch):
    """The programs of the end are kept by a name; federations of equal shapes may differ in who
    trains."""
    names = []

    def compile_later(f, forms, key, **more):
        names.append(key)
        return original(f, forms, key, **more)

    original = afterwards.compile_later
    monkeypatch.setattr(afterwards, "compile_later", compile_later)

    def without(federation):
        train = federation.train
        return dataclasses.replace(
            federation, train=dataclasses.replace(train, count=train.count.at[0].set(0))
        )

    for change in (lambda federation: federation, without):
        outputs(runs(train={"finetune_steps": 1, "rounds": 1}), change)
    assert len(names) == 4 and len(set(names)) == 4
