"""`train.finetune_steps`: the last score after some local steps, which no other number of the run
sees."""

import dataclasses

import jax
import numpy as np
import pytest

import cfljax
from cfljax.devices.machine import describe_machine
from cfljax.engine.afterwards import place_scored
from cfljax.experiment.assemble import assemble, host_federation
from cfljax.launch import checkpoints
from cfljax.methods import METHODS
from cfljax.types import Method
from tests import play
from tests.experiments.finetuning import BLOBS, MLP, NAMES, outputs, runs
from tests.often import rarely
from tests.reference import parts, plain


@pytest.mark.parametrize(
    "method", ["ifca", *map(rarely, ("fedem", "ditto", "fedbabu", "fedavg", "fedper"))]
)
def test_it_agrees_with_a_plain_program(method):
    """From the models that the run ends with, which the tests of each method look at; of a mixture,
    that of the largest weight."""
    few, everybody = (
        ({"clusters": 2}, {"participation": 1.0} if method == "fedem" else {})
        if method in ("ifca", "fedem")
        else ({}, {})
    )
    (single,) = runs(
        {"name": method} | few, train={"finetune_steps": 7, "lr_decay": 0.5} | everybody
    )
    (output,) = outputs([single])
    clients, (whole, each) = plain.Clients(host_federation(single)), (NAMES[0], NAMES[1:])
    labels = scored_by(output, single)
    accuracy, of_clients = parts.finetuned(
        plain.Net(6, 4, 7), clients, output.models.astype(np.float64), labels, 0, 7, 0.2, 10
    )
    assert output.finetuned[whole] == pytest.approx(accuracy, abs=1e-6)
    assert [output.finetuned[name] for name in each] == pytest.approx(
        [np.sort(of_clients)[:2].mean(), of_clients.std()], abs=1e-6
    )


def test_validation_samples_are_scored_after_fine_tuning_too():
    (single,) = runs(data={"validation": 0.2}, train={"finetune_steps": 7})
    (output,) = outputs([single])
    federation = host_federation(single)
    clients = plain.Clients(dataclasses.replace(federation, test=federation.valid))
    models = output.models.astype(np.float64)
    labels = np.zeros(federation.clients, int)
    accuracy, _ = parts.finetuned(plain.Net(6, 4, 7), clients, models, labels, 0, 7, 0.2, 10)
    assert output.finetuned["val_accuracy_finetuned"] == pytest.approx(accuracy, abs=1e-6)


def scored_by(output, single):
    """The model of each client: its label, or, of IFCA's clients that were never drawn, that of the
    least loss."""
    labels, net = output.labels[-1].copy(), plain.Net(6, 4, 7)
    clients = plain.Clients(host_federation(single))
    for i in np.flatnonzero(labels < 0):
        if len(output.models) == len(labels):
            labels[i] = i
        else:
            labels[i] = np.argmin(
                [net.loss(w.astype(np.float64), *clients.train[i]) for w in output.models]
            )
    return labels


def test_who_mixes_models_starts_from_the_one_with_the_largest_weight():
    """In a method that gives fixed weights, so that nothing needs to train."""
    made = assemble(runs()[0], 1, describe_machine())
    clients = made.federation.clients
    weights = np.random.default_rng(0).dirichlet(np.ones(3), clients).astype(np.float32)
    models = np.zeros((3, made.model.size), np.float32)
    mixing = Method(
        None,
        None,
        models=lambda state: (models, np.zeros(clients, np.int32)),
        mixture=lambda state, federation, hyper: weights,
    )
    made = made._replace(method=mixing)

    @jax.jit
    def placed(federation):
        at = place_scored(made, None, {"lr": 0.1}, np.int32(3), federation).at
        return at.which, at.mixture

    which, mixture = placed(made.federation)
    assert which.tolist() == weights.argmax(1).tolist() and np.array_equal(mixture, weights)


@pytest.mark.parametrize("name", ["fedavg"])
def test_it_changes_nothing_else_of_any_method(name):
    quick = (
        {"warmup_rounds": 1}
        if name == "fl_hc"
        else {"min_rounds": 1}
        if name == "cfl_sattler"
        else {}
    )
    method = (
        {"name": name}
        | quick
        | (
            {"clusters": 2}
            if "clusters" in METHODS.entry(name).options.__dataclass_fields__
            else {}
        )
    )
    everybody = {"participation": 1.0} if name in play.EVERYBODY else {}
    (plain_run,), (tuned,) = (
        runs(method, train={"finetune_steps": steps} | everybody) for steps in (0, 7)
    )
    (a,), (b,) = outputs([plain_run]), outputs([tuned])
    assert not a.finetuned and list(b.finetuned) == NAMES and 0 <= b.finetuned[NAMES[0]] <= 1
    assert all(
        np.array_equal(a.history[q], b.history[q], equal_nan=True) for q in a.history
    ) and np.array_equal(a.models, b.models)


def test_those_are_fine_tuned_whom_the_last_evaluation_scores():
    """Newcomers, clients of which nobody asked, and attackers are not; those without training
    samples are scored as before."""
    more = {"new_clients": {"share": 0.25, "steps": [0]}, "test_clients": 2}
    (tuned,) = runs(
        data=more,
        train={
            "finetune_steps": 1,
            "lr": 0.0,
            "eval_clients": 6,
            "attack": {"name": "noise", "share": 0.3},
        },
    )
    (still,) = runs(
        data=more,
        train={
            "finetune_steps": 0,
            "lr": 0.0,
            "eval_clients": 6,
            "attack": {"name": "noise", "share": 0.3},
        },
    )
    (found,) = outputs([tuned])
    assert still.id != tuned.id
    for quantity in ("accuracy", "accuracy_worst10"):
        assert found.finetuned[f"{quantity}_finetuned"] == pytest.approx(
            float(found.history[quantity][-1]), abs=1e-6
        )


@pytest.mark.long
def test_blocks_runs_side_by_side_and_resumed_runs_end_alike():
    batch, saved = (
        runs("fedbabu", train={"participation": 4, "finetune_steps": 3}, seeds=(0, 1, 2)),
        [],
    )
    alone = outputs(batch, checkpoint=lambda make: saved.append(make()), chunk_rounds=1)
    together, at_once = outputs(batch, sequential=False), outputs(batch, wide=12)
    again = outputs(batch, resume=checkpoints.from_arrays(*checkpoints.to_arrays(saved[0])))
    for a, b, c, d in zip(alone, together, again, at_once, strict=True):
        assert a.finetuned == c.finetuned and a.finetuned == pytest.approx(d.finetuned, abs=1e-6)
        assert a.finetuned == pytest.approx(b.finetuned, abs=0.02)


@pytest.mark.parametrize("name", ["fedbabu", "fedavg_ft", "fedprox_ft"])
def test_methods_that_fine_tune_do_so_for_50_steps_unless_they_are_told_otherwise(name):
    def steps(**train):
        found = assemble(runs(name, train=train)[0], 1, describe_machine()).finetuned
        return found and found.steps

    assert (steps(), steps(finetune_steps=3), steps(finetune_steps=0)) == ((50,), (3,), None)


def test_the_summary_and_the_frame_have_columns_of_their_own(tmp_path):
    train = {"rounds": 3, "lr": 0.2, "participation": 5}
    spec = {"data": BLOBS, "model": MLP, "train": train, "method": ["fedavg", "fedbabu"]}
    frame = cfljax.sweep(spec, out=tmp_path).to_pandas().set_index("method")
    assert list(frame.columns)[-3:] == NAMES
    assert np.isnan(frame.loc["fedavg", NAMES[0]]) and 0 < frame.loc["fedbabu", NAMES[0]] <= 1
    assert frame.loc["fedbabu", NAMES[0]] != frame.loc["fedbabu", "accuracy_last"]
