"""Methods whose clients take steps of their own (APFL, pFedMe, Per-FedAvg): who is scored with the
global model, and other plans."""

import numpy as np
import pytest

from tests import toy
from tests.methods.own_steps import adapted, global_model, play_on
from tests.methods.ways import WAYS
from tests.often import rarely
from tests.play import seven_clients as federation

NAMES = ("apfl", "pfedme", "per_fedavg")


@pytest.mark.parametrize("name", NAMES)
def test_clients_without_samples_are_scored_with_the_global_model(name):
    made = toy.without_samples(federation(), 3)
    out = play_on(name, made=made)
    models = adapted(out, 0.4, made) if name == "per_fedavg" else out.models()
    assert np.array_equal(models[3], global_model(out)[0]) and not np.allclose(models[2], models[3])
    assert not np.array_equal(global_model(out)[0], global_model(out, 0)[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_client_harms_nobody(name):
    made = toy.broken(federation(), 1)
    out = play_on(name, made=made)
    models = adapted(out, 0.4, made) if name == "per_fedavg" else out.models()
    assert np.isfinite(models).all() and np.array_equal(models[1], global_model(out)[0])
    assert sum(int(info.nonfinite) for info in out.infos) > 0


LANES, GRAM = {"lanes": 2}, {"gram": 64}


@pytest.mark.parametrize(("name", "plan"), [
    rarely("apfl", LANES), ("pfedme", GRAM), rarely("per_fedavg", GRAM), rarely("per_fedavg", {"stream": 2}), rarely("apfl", GRAM),
    rarely("pfedme", LANES), rarely("per_fedavg", LANES),
], ids=str)  # fmt: skip
def test_other_plans_give_the_same(name, plan):
    usual, other = play_on(name), play_on(name, WAYS["batches"] | plan)
    assert np.allclose(global_model(usual), global_model(other), atol=1e-6)
    assert np.allclose(usual.models(), other.models(), atol=1e-6)
