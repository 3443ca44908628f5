"""Runs whose data change (`data.drift`): every method trains and is scored on the data of the
round, true groups follow, and nothing else changes."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import cfljax
from cfljax import keys
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.afterwards import make_end, place_newcomers
from cfljax.engine.simulate import simulate
from cfljax.errors import SpecError
from cfljax.experiment.assemble import assemble, assemble_batch, host_federation, model_of
from cfljax.experiment.batching import make_batches
from cfljax.launch.batch import run_batch
from cfljax.local.attacks import Attack, attackers, flip_labels
from cfljax.local.send import Sending
from cfljax.methods import METHODS
from cfljax.report.tables import write_comparison
from cfljax.round.common import first_model
from tests import toy
from tests.often import every, rarely
from tests.reference import plain
from tests.reference.drift import Turning

DIGITS = {
    "name": "digits",
    "partition": "rotated",
    "groups": 2,
    "clients": 6,
    "samples_per_client": 30,
}
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
    "fl_hc": {"threshold": 1.0, "warmup_rounds": 1}, "cfl_sattler": {"min_rounds": 1, "eps1": 10.0, "eps2": 0.0, "split_every": 2},
    "joint": {"local_steps": 2},
}  # fmt: skip
KEEP_NOT = {"keep": False}
TRAIN = {"rounds": 6, "lr": 0.2, "participation": 1.0, "batch": 10}


def runs(name="fedavg", drift=None, data=BLOBS, train=None, seeds=(0,), **options):
    fields = METHODS.entry(name).options.__dataclass_fields__
    method = (
        {"name": name}
        | QUICK.get(name, {})
        | ({"clusters": 2} if "clusters" in fields else {})
        | options
    )
    data = data if drift is None else data | {"drift": drift}
    model = toy.named_model(name)
    spec = {
        "data": data,
        "model": model,
        "train": TRAIN | (train or {}),
        "method": [method],
        "seeds": list(seeds),
    }
    return read_spec(spec).runs()


def outputs(runs, change=lambda federation: federation, sequential=True, **more):
    (batch,) = make_batches(runs, len(runs))
    parts = assemble_batch(batch, describe_machine())
    settings = parts.settings._replace(sequential=sequential)
    parts = parts._replace(federation=change(parts.federation), settings=settings)
    return simulate(parts, batch.seeds, batch.hypers, **more)


def same(one, other, exact=True):
    for name, values in one.history.items():
        compare = (
            np.testing.assert_array_equal
            if exact
            else lambda a, b, **kw: np.testing.assert_allclose(a, b, atol=1e-4, **kw)
        )
        compare(values, other.history[name], err_msg=name)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.models, other.models, atol=0 if exact else 1e-5)


@pytest.mark.parametrize("name", [rarely("fedavg"), "oracle"])
def test_models_accuracies_and_groups_are_those_of_a_plain_program(tmp_path, name):
    changes = [(2, 0, 1), (2, 4, 0), (3, 0, 0), (5, 1, 1), (5, 2, 1)]
    file = tmp_path / "changes.csv"
    file.write_text("round,client,group\n" + "".join(f"{t},{c},{g}\n" for t, c, g in changes))
    (run,) = runs(name, {"file": str(file)}, DIGITS)
    (output,) = outputs([run])
    federation = host_federation(run)
    images = np.asarray(federation.pool.x, np.float64)[..., 0] * float(federation.pool.scale)
    rows, test = (
        [np.asarray(split.rows)[a : a + n] for a, n in zip(split.start, split.count, strict=True)]
        for split in (federation.train, federation.test)
    )
    world = Turning(
        images, np.asarray(federation.pool.y), rows, test, [0, 0, 0, 1, 1, 1], changes, (0, 2)
    )
    net, start = (
        plain.Net(images[0].size, 10),
        np.asarray(first_model(keys.root(0), model_of(run, federation)), np.float64),
    )
    wanted = world.fedavg(net, start, 6, 0.2, 0, 10, grouped=name == "oracle")
    np.testing.assert_allclose(output.models, np.stack(wanted[-1])[: len(output.models)], atol=2e-5)
    for t, accuracy in enumerate(output.history["accuracy"]):
        assert accuracy == pytest.approx(
            world.accuracy(net, wanted[t], t, name == "oracle"), abs=2e-3
        ), t
    assert output.history["groups_changed"].tolist() == [0, 0, 2, 1, 0, 2, 0]
    if name == "oracle":
        assert output.labels.tolist() == [world.group(t).tolist() for t in range(7)]
        assert output.history["ari"].tolist() == [1.0] * 7


@pytest.mark.parametrize("name", ["fedavg"])
def test_a_change_between_two_equal_groups_changes_no_bit(name):
    """Both groups see the samples as they are; methods that are told the true groups would still
    tell them apart."""

    def alike(federation):
        return dataclasses.replace(
            federation,
            view=federation.view._replace(labels=np.tile(np.arange(4, dtype=np.int32), (2, 1))),
        )

    train = {"rounds": 4, "plan": KEEP_NOT}
    never, drift = runs(name, train=train), runs(name, {"at": [1, 3], "share": 0.5}, train=train)
    (one,), (other,) = outputs(never, alike), outputs(drift, alike)
    assert other.history.pop("groups_changed").sum() == 12
    for clustering in ("ari", "nmi", "purity"):
        del one.history[clustering], other.history[clustering]
    one.diag.pop("ari", None), other.diag.pop("ari", None)
    same(one, other)


@pytest.mark.parametrize(
    "name",
    every(
        (
            "cfl_sattler",
            "ditto",
            "fedavg",
            "fedem",
            "fedgroup",
            "fedrep",
            "feddyn",
            "ifca",
            "oracle",
            "scaffold",
        ),
        often=("fedgroup",),
    ),
)
def test_rounds_after_a_change_are_those_of_a_federation_that_was_always_so(name):
    """Two rounds, then a checkpoint, from which a run without drift goes on with the groups and
    views of the second phase."""
    federation = host_federation(runs(name, {"at": [2], "share": 0.5}, train={"rounds": 4})[0])
    drifting, plain_run = (
        runs(name, {"at": [2], "share": 0.5}, train={"rounds": 4}),
        runs(name, train={"rounds": 4, "plan": KEEP_NOT}),
    )
    kept = []
    whole = outputs(drifting)[0]
    assert (
        outputs(plain_run, until=2, checkpoint=lambda make: kept.append(make()), chunk_rounds=2)
        == []
    )
    at = kept[-1]
    second = federation.at(2)

    def changed(federation):
        return dataclasses.replace(federation, group=second.group, view=second.view)

    carry = dict(at.carry)
    if name == "oracle":  # whose labels are the true groups
        carry[".state.labels"] = np.asarray(second.group)[None]
    later = outputs(plain_run, changed, resume=at._replace(carry=carry))[0]
    np.testing.assert_array_equal(whole.models, later.models)
    for quantity in ("accuracy", "loss", "ari", "train_loss", "accuracy_clusters"):
        np.testing.assert_array_equal(
            whole.history[quantity][3:], later.history[quantity][3:], err_msg=quantity
        )


@pytest.mark.parametrize("name", ["oracle", *map(rarely, ("ifca", "fedgroup"))])
def test_clusters_are_scored_against_the_groups_of_the_round(name):
    (run,) = runs(name, {"at": [2, 5], "share": 0.5}, train={"eval_every": 2})
    (output,) = outputs([run])
    federation = host_federation(run)
    for t, labels, ari in zip(
        output.history["round"], output.labels, output.history["ari"], strict=True
    ):
        wanted = (
            adjusted_rand_score(federation.at(int(t)).group, labels)
            if (labels >= 0).all()
            else np.nan
        )
        assert ari == pytest.approx(wanted, abs=1e-6, nan_ok=True)
    assert np.isfinite(output.history["ari"][1:]).all()
    assert output.history["groups_changed"].tolist() == [0, 6, 0, 6]  # at rounds 0, 2, 4, 6
    if name == "oracle":
        assert (output.history["ari"] == 1).all()


@pytest.mark.long
def test_runs_side_by_side_in_chunks_and_after_a_pause_are_the_same():
    drift = {"kind": "incremental", "at": [1, 4], "share": 0.5}
    three = runs("ifca", drift, BLOBS | {"validation": 0.2}, seeds=(0, 1, 2))
    whole, kept = outputs(three), []
    for one, other in zip(whole, outputs(three, sequential=False), strict=True):
        same(one, other, exact=False)
    assert (
        outputs(three, until=3, checkpoint=lambda make: kept.append(make()), chunk_rounds=1) == []
    )
    for one, other in zip(whole, outputs(three, resume=kept[-1]), strict=True):
        same(one, other)
    assert (
        np.isfinite(whole[0].history["val_accuracy"]).all()
        and whole[0].history["groups_changed"].sum() == 6
    )


def test_attackers_flip_the_labels_that_they_see_in_the_round():
    sending, hyper = Sending(attack=Attack("label_flip", 0.0)), {"attack.share": np.float32(0.5)}
    federation = jax.device_put(host_federation(runs(drift={"at": [2], "share": 0.5})[0]))
    lies = np.asarray(attackers(sending.attack, hyper, federation))
    assert 0 < lies.sum() < 12
    for t in (1, 2):
        now = federation.at(t)
        seen = flip_labels(sending.attack, hyper, now)
        labels, wanted = (
            np.asarray(each.view.labels)[np.asarray(each.view.of)] for each in (seen, now)
        )
        np.testing.assert_array_equal(labels, np.where(lies[:, None], 3 - wanted, wanted))


def test_new_clients_are_placed_and_scored_with_what_they_see_at_the_end():
    data = BLOBS | {"new_clients": {"share": 0.5, "shots": 20, "steps": [0]}}
    (run,) = runs("oracle", {"at": [3], "share": 1.0}, data, train={"rounds": 5})
    parts = assemble(run, 1, describe_machine())
    (output,) = outputs([run])
    assert output.newcomers["ari_new"] == 1.0
    labels = np.asarray(host_federation(run).at(5).group)
    state = parts.method.init(keys.root(0), parts.federation, {}, {})._replace(models=output.models)
    end = jax.jit(make_end(parts, parts.newcomers, "newcomers", place_newcomers))
    found = end(keys.root(0), state, {"lr": np.float32(0.2)}, np.int32(5), parts.federation)
    assert np.asarray(found["place"]).tolist() == labels[list(parts.newcomers.ids)].tolist()
    right = float(found["correct"].sum() / found["samples"].sum())
    assert output.newcomers["accuracy_new_0"] == pytest.approx(right)
    early = end(keys.root(0), state, {"lr": np.float32(0.2)}, np.int32(2), parts.federation)
    assert (np.asarray(early["place"]) != np.asarray(found["place"])).all()


def test_the_summary_and_the_groups_of_the_last_round_are_kept():
    (batch,) = make_batches(runs("oracle", {"at": [2], "share": 0.5}), 1)
    ((record, arrays),) = run_batch(batch, describe_machine(), catch=False)
    assert {"recovery_rounds", "accuracy_in_drift", "ari_in_drift"} <= set(record["summary"])
    assert record["summary"]["ari_in_drift"] == 1.0
    assert record["summary"]["accuracy_in_drift"] == pytest.approx(
        arrays["history/accuracy"][2:].mean(), abs=1e-6
    )
    assert (
        arrays["group"].tolist()
        == host_federation(batch.first).at(6).group.tolist()
        == arrays["labels"][-1].tolist()
    )
    assert (
        arrays["groups"].tolist() == arrays["labels"].tolist()
        and (arrays["groups"][1] != arrays["groups"][2]).sum() == 6
    )
    (plain_batch,) = make_batches(runs("oracle"), 1)
    ((record, arrays),) = run_batch(plain_batch, describe_machine(), catch=False)
    assert (
        "recovery_rounds" not in record["summary"]
        and "history/groups_changed" not in arrays
        and "groups" not in arrays
    )


def test_confusions_are_of_what_a_client_sees_at_the_end():
    result = cfljax.run("oracle", DIGITS | {"drift": {"at": [1], "share": 1.0}}, "mclr", rounds=3)
    for client in range(6):
        table = result.confusion(client)
        assert np.trace(table) / table.sum() == pytest.approx(
            result.client_accuracy[client], abs=1e-6
        )
    assert (result.summary["ari_last"], result.history["groups_changed"].tolist()) == (
        1.0,
        [0, 6, 0, 0],
    )
    assert (
        result.groups.shape == (4, 6)
        and result.groups[-1].tolist() == result.labels.tolist() != result.groups[0].tolist()
    )


@pytest.mark.long
@pytest.mark.parametrize("train", [
    rarely({"server": {"name": "adam", "lr": 0.01}}), rarely({"parts": {"dense_0/bias": "client"}}),
    {"compress": {"name": "topk", "keep": 0.2, "feedback": True}},
])  # fmt: skip
def test_an_optimiser_of_the_server_shared_parts_and_what_clients_keep_leave_the_true_groups_to_the_method(
    train,
):
    drift = {"at": [2, 4], "share": 0.5}
    (run,) = runs("oracle", drift, train=train)
    (output,) = outputs([run])
    federation = host_federation(run)
    if "parts" in train:  # each client is scored by a model of its own
        assert output.diag["cluster_of_client"].tolist() == federation.at(6).group.tolist()
    else:
        assert output.labels.tolist() == [federation.at(t).group.tolist() for t in range(7)]
    plain_output = outputs(runs("oracle", train=train))[0]
    np.testing.assert_array_equal(
        output.history["accuracy"][:2], plain_output.history["accuracy"][:2]
    )
    assert not np.array_equal(output.models, plain_output.models)


def test_a_record_whose_changes_a_file_says_is_read_as_the_run_that_it_is_of(tmp_path):
    file = tmp_path / "changes.csv"
    file.write_text("round,client,group\n1,0,1\n")
    result = cfljax.run("oracle", DIGITS | {"drift": {"file": str(file)}}, "mclr", rounds=2)
    assert result.record["config"]["data"]["drift"] == {"what": "group", "file": str(file)}
    table = result.confusion(0)
    assert np.trace(table) / table.sum() == pytest.approx(result.client_accuracy[0], abs=1e-6)


def test_the_table_of_a_sweep_says_how_many_of_its_runs_have_recovered(tmp_path):
    drift = BLOBS | {"drift": {"at": [2], "share": 0.5}}
    results = cfljax.sweep(
        {
            "data": drift,
            "model": "mclr",
            "train": {"rounds": 3},
            "method": ["fedavg"],
            "seeds": [0, 1],
        },
        tmp_path / "out",
    )
    summaries = [record["summary"] for record in results.records.values()]
    for each, rounds in zip(summaries, (1.0, None), strict=True):
        each["recovery_rounds"] = rounds
    text = write_comparison(results)
    assert "in drift" in text and "1 (1 of 2)" in text
    summaries[1]["recovery_rounds"] = 3.0
    assert "of 2)" not in write_comparison(results)


@pytest.mark.parametrize(
    "name, options",
    [
        ("fedgroup", {"clusters": 2, "alpha": 6}),
        rarely("ocfl", {"pretrain_epochs": 5, "merge_to": 2}),
    ],
)
def test_who_clusters_anew_finds_the_groups_of_the_round(name, options):
    drift, train = {"at": [3], "share": 0.5}, {"rounds": 8, "epochs": 3}
    (once,) = outputs(runs(name, drift, train=train, **options))
    (anew,) = outputs(runs(name, drift, train=train, every=4, **options))
    np.testing.assert_array_equal(once.history["accuracy"][:4], anew.history["accuracy"][:4])
    assert anew.history["ari"][-1] == 1.0 > once.history["ari"][-1]
    assert anew.history["accuracy"][-1] > once.history["accuracy"][-1] + 0.1


def test_new_clusters_are_refused_where_updates_of_the_old_ones_arrive_later():
    with pytest.raises(
        SpecError, match="pending updates would belong to clusters that no longer exist"
    ):
        runs("fedgroup", train={"clock": {"step_ms": 1}, "asynchronous": {"buffer": 2}}, every=4)
