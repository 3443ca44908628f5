"""Parts of models that do not train in the rounds (`train.freeze`): against a plain numpy program,
in all ways of training."""

import numpy as np
import pytest

import cfljax
from cfljax.config import Train, read_spec
from cfljax.devices.machine import describe_machine
from cfljax.errors import SpecError
from cfljax.experiment.assemble import assemble
from cfljax.experiment.execution import choose_plan
from tests.methods.parts import (
    FROZEN,
    HEAD,
    MODEL,
    NET,
    PARTICIPANTS,
    ROUNDS,
    SEED,
    run,
    starts,
    two_rounds,
)
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import parts, plain


@pytest.mark.parametrize(
    "kinds",
    [
        rarely(FROZEN),
        rarely(np.where(HEAD, "cluster", "frozen")),
        np.where(HEAD, "frozen", "all"),
        np.where(HEAD, "client", "frozen"),
    ],
    ids=["head", "body", "head, body for all", "body, own head"],
)
def test_ifca_with_frozen_parts_follows_the_plain_program(kinds):
    if "client" in kinds:  # with nothing that is learnt together, there is nothing to follow
        with pytest.raises(SpecError, match="train.freeze: no shared part is left"):
            run("ifca", {"body": "frozen", "head": "client"}, clusters=3)
        return
    out = run("ifca", {"body": kinds[~HEAD][0], "head": kinds[HEAD][0]}, clusters=3)
    wanted, _, labels = parts.run(
        NET, plain.Clients(federation()), starts(3), SEED, ROUNDS, PARTICIPANTS, kinds, "uniform"
    )
    assert np.array_equal(out.labels(), labels) and np.abs(out.models() - wanted).max() < 1e-5


def test_a_part_of_the_model_of_a_plug_in_is_frozen_by_its_path():
    out = run("fedavg", {"dense_0/bias": "frozen"})
    bias = np.arange(MODEL.size) < 7
    assert (
        np.array_equal(out.models()[:, bias], out.models(0)[:, bias])
        and (out.models() != out.models(0))[:, ~bias].any()
    )


@pytest.mark.parametrize(
    ("work", "way"),
    [
        ({}, {"gram": 500}),
        rarely({}, {"sequential": False}),
        rarely({}, {"stream": 2}),
        rarely({"batch": "full"}, {"gram": 500}),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "table",
    [{"head": "frozen"}, rarely({"body": "frozen"}), rarely({"dense_0/bias": "frozen"})],
    ids=str,
)
def test_all_ways_of_training_give_the_same(table, work, way):
    """With weight decay and momentum, which would move what has no gradient."""
    hyper = {"weight_decay": np.float32(0.1), "momentum": np.float32(0.5)}
    one, other = (
        run("ifca", table, work | more, hyper=hyper, clusters=2).models() for more in ({}, way)
    )
    assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("part", ["head"])
@pytest.mark.parametrize("name", ["fedgroup"])
def test_what_is_frozen_stays_as_it_began_and_the_rest_moves(name, part):
    out = two_rounds(name, {part: "frozen"})[0]
    still = HEAD if part == "head" else ~HEAD
    for t in (1, 2):
        assert np.array_equal(out.models(t)[:, still], out.models(0)[:, still])
    assert not np.array_equal(out.models()[:, ~still], out.models(0)[:, ~still])


def test_noise_and_a_lying_client_do_not_move_what_is_frozen():
    data = {
        "name": "blobs",
        "samples": 300,
        "features": 6,
        "classes": 4,
        "partition": "iid",
        "clients": 9,
    }
    train = {
        "freeze": "head",
        "privacy": {"clip": 1.0, "noise": 0.5},
        "attack": {"name": "noise", "share": 0.3},
    }
    model = {"name": "mlp", "hidden": [7]}
    first, last = (
        cfljax.run("fedavg", data, model, rounds=rounds, train=train).models for rounds in (1, 3)
    )
    assert np.array_equal(first[:, HEAD], last[:, HEAD]) and not np.array_equal(
        first[:, ~HEAD], last[:, ~HEAD]
    )


def planned(train, method="fedavg"):
    """The choice of an execution plan of a run."""
    spec = {
        "data": "digits",
        "model": {"name": "mlp", "hidden": [7]},
        "method": [method],
        "train": {"rounds": 9} | train,
    }
    (single,) = read_spec(spec).runs()
    made = assemble(single, 1, describe_machine())
    return choose_plan(single, made.model, made.federation, describe_machine())


def test_a_frozen_first_layer_needs_no_gram_matrix_and_a_frozen_head_may_have_one():
    gram = {"plan": {"gram": 500}}
    assert planned(gram | {"freeze": "head"}).gram_sizes and planned(gram, "fedbabu").gram_sizes
    assert not planned(gram | {"freeze": "body"}).gram_sizes


def test_a_part_and_a_list_with_it_are_the_same_run():
    assert Train(freeze="head") == Train(freeze=("head",)) != Train() and Train(
        freeze=("b", "a")
    ) == Train(freeze=("a", "b"))
