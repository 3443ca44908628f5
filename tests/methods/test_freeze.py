"""Parts of models that do not train in the rounds (`train.freeze`): against a plain numpy program, in all ways of training, what is
sent, and refusals."""

import numpy as np
import pytest

import cfljax
from cfljax.config import Train
from cfljax.config.parts import list_pairs
from cfljax.devices.machine import describe_machine
from cfljax.errors import SpecError
from cfljax.experiment.assemble import assemble
from cfljax.experiment.execution import choose
from cfljax.local.parts import divide_model
from cfljax.methods import METHODS
from tests import play, toy
from tests.methods.test_parts import (
    HEAD,
    METHODS_IN_PARTS,
    MODEL,
    NET,
    PARTICIPANTS,
    ROUNDS,
    SEED,
    federation,
    run,
    starts,
    two_rounds,
)
from tests.often import every, rarely
from tests.reference import parts, plain

FROZEN = np.where(HEAD, "frozen", "cluster")


@pytest.mark.parametrize(
    "kinds",
    [FROZEN, np.where(HEAD, "cluster", "frozen"), np.where(HEAD, "frozen", "all"), np.where(HEAD, "client", "frozen")],
    ids=["head", "body", "head, body for all", "body, own head"],
)
def test_ifca_with_frozen_parts_follows_the_plain_program(kinds):
    if "client" in kinds:  # with nothing that is learnt together, there is nothing to follow
        with pytest.raises(SpecError, match="train.freeze: no shared part is left"):
            run("ifca", {"body": "frozen", "head": "client"}, clusters=3)
        return
    out = run("ifca", {"body": kinds[~HEAD][0], "head": kinds[HEAD][0]}, clusters=3)
    wanted, _, labels = parts.run(NET, plain.Clients(federation()), starts(3), SEED, ROUNDS, PARTICIPANTS, kinds, "uniform")
    assert np.array_equal(out.labels(), labels) and np.abs(out.models() - wanted).max() < 1e-5


@pytest.mark.parametrize("average", ["samples", "uniform"])
def test_fedbabu_follows_the_plain_program(average):
    out = play.rounds("fedbabu", federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL, average=average)
    clients = plain.Clients(federation())
    wanted, _, _ = parts.run(NET, clients, starts(1), SEED, ROUNDS, PARTICIPANTS, FROZEN, average, assign=[0] * 7)
    assert np.abs(out.models() - wanted).max() < 1e-5 and np.array_equal(out.models()[:, HEAD], out.models(0)[:, HEAD])


def test_a_part_of_the_model_of_a_plug_in_is_frozen_by_its_path():
    out = run("fedavg", {"dense_0/bias": "frozen"})
    bias = np.arange(MODEL.size) < 7
    assert np.array_equal(out.models()[:, bias], out.models(0)[:, bias]) and (out.models() != out.models(0))[:, ~bias].any()


@pytest.mark.parametrize(
    ("work", "way"),
    [({}, {"gram": 500}), rarely({}, {"sequential": False}), ({}, {"stream": 2}), rarely({"batch": "full"}, {"gram": 500})],
    ids=str,
)
@pytest.mark.parametrize("table", [{"head": "frozen"}, rarely({"body": "frozen"}), rarely({"dense_0/bias": "frozen"})], ids=str)
def test_all_ways_of_training_give_the_same(table, work, way):
    """With weight decay and momentum, which would move what has no gradient."""
    hyper = {"weight_decay": np.float32(0.1), "momentum": np.float32(0.5)}
    one, other = (run("ifca", table, work | more, hyper=hyper, clusters=2).models() for more in ({}, way))
    assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("part", ["head", rarely("body")])
@pytest.mark.parametrize("name", every(METHODS_IN_PARTS, often=("ifca", "fedgroup")))
def test_what_is_frozen_stays_as_it_began_and_the_rest_moves(name, part):
    out = two_rounds(name, {part: "frozen"})[0]
    still = HEAD if part == "head" else ~HEAD
    for t in (1, 2):
        assert np.array_equal(out.models(t)[:, still], out.models(0)[:, still])
    assert not np.array_equal(out.models()[:, ~still], out.models(0)[:, ~still])


def test_noise_and_a_lying_client_do_not_move_what_is_frozen():
    data = {"name": "blobs", "samples": 300, "features": 6, "classes": 4, "partition": "iid", "clients": 9}
    train = {"freeze": "head", "privacy": {"clip": 1.0, "noise": 0.5}, "attack": {"name": "noise", "share": 0.3}}
    model = {"name": "mlp", "hidden": [7]}
    first, last = (cfljax.run("fedavg", data, model, rounds=rounds, train=train).models for rounds in (1, 3))
    assert np.array_equal(first[:, HEAD], last[:, HEAD]) and not np.array_equal(first[:, ~HEAD], last[:, ~HEAD])


def planned(train, method="fedavg"):
    """(the choice of an execution plan, the solver's frozen numbers) of a run."""
    from cfljax.config import read_spec

    spec = {"data": "digits", "model": {"name": "mlp", "hidden": [7]}, "method": [method], "train": {"rounds": 9} | train}
    (single,) = read_spec(spec).runs()
    made = assemble(single, 1, describe_machine())
    return choose(single, made.model, made.federation, describe_machine()), divide_model(
        made.model, list_pairs(single.options, single.train)
    )


def test_a_frozen_first_layer_needs_no_gram_matrix_and_a_frozen_head_may_have_one():
    gram = {"plan": {"gram": 500}}
    assert planned(gram | {"freeze": "head"})[0].gram_sizes and planned(gram, "fedbabu")[0].gram_sizes
    assert not planned(gram | {"freeze": "body"})[0].gram_sizes


BOTH_MODELS = {"name": "ifca", "clusters": 2}
BODY, HEAD_SIZE = 49, 32


@pytest.mark.parametrize(
    ("method", "train", "down", "up"),
    [
        ("fedbabu", {}, BODY, BODY),
        rarely("fedavg", {"freeze": "body"}, HEAD_SIZE, HEAD_SIZE),
        (BOTH_MODELS, {"freeze": "head"}, 2 * BODY, BODY),
        rarely(BOTH_MODELS, {"freeze": ["head"], "parts": {"body": "all"}}, BODY, BODY),
        rarely("fedavg", {"freeze": ["head", "dense_0/bias"]}, 42, 42),
        rarely("fedbabu", {"compress": {"name": "topk", "keep": 0.5}}, BODY, 2 * 25),
    ],
    ids=str,
)
def test_what_is_frozen_is_not_sent(method, train, down, up):
    data = {"name": "blobs", "samples": 300, "features": 6, "classes": 4, "partition": "iid", "clients": 9}
    more = {"rounds": 2, "participation": 5, "finetune_steps": 2}
    history = cfljax.run(method, data, {"name": "mlp", "hidden": [7]}, train=more | train).history
    assert (float(history["bytes_down"][-1]) / 40, float(history["bytes_up"][-1]) / 40) == (down, up)


@pytest.mark.parametrize(
    ("method", "train", "told"),
    [
        ("ditto", {"freeze": "head"}, "train.freeze with method.ditto: it keeps other models"),
        ("fedper", {"freeze": "body"}, r"train.freeze with method.fedper: it has parts itself \(head = \"client\"\)"),
        ("fedbabu", {"parts": {"body": "all"}}, r"train.parts with method.fedbabu: it has parts itself \(head = \"frozen\"\)"),
        ("fedavg", {"freeze": ["body", "head"]}, "train.freeze: no shared part is left to train"),
        ("fedavg", {"freeze": "head", "parts": {"head": "all"}}, 'train.freeze = "head": train.parts lists it too'),
        ("fedavg", {"freeze": "conv"}, 'has no parameters "conv"'),
        ("fedavg", {"freeze": []}, r"train.freeze = \[\]: must name a part"),
        ("fedavg", {"freeze": "head", "schedule": "alternate"}, 'train.freeze = .*schedule = "alternate" trains body and head'),
        ("fedbabu", {"schedule": "alternate"}, "train.schedule = .*does not train in the rounds"),
        ("fedavg", {"finetune_steps": -1}, "train.finetune_steps = -1: must be at least 0"),
        ({"name": "ifca", "clusters": "auto"}, {"freeze": "head"}, "train.freeze with method.ifca: .*number of clusters"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(method, train, told):
    with pytest.raises(SpecError, match=told) as caught:
        cfljax.run(method, "digits", "mlp", rounds=1, train=train)
    assert "\n" not in str(caught.value)


def test_a_model_of_one_layer_has_no_head_to_freeze():
    with pytest.raises(SpecError, match="one layer"):
        divide_model(toy.model(), METHODS.entry("fedbabu").options.parts)


def test_a_part_and_a_list_with_it_are_the_same_run():
    assert Train(freeze="head") == Train(freeze=("head",)) != Train() and Train(freeze=("b", "a")) == Train(freeze=("a", "b"))
