"""Runs on data of several sizes, with room for the largest: one program, and each run as alone."""

import numpy as np
import pytest

import cfljax
from cfljax.devices import compiled
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play
from tests.often import every

ROOM = {"clients": 9, "samples": 60, "pool_samples": 200, "groups": 3, "phases": 3}
SMALL = {"partition": "dirichlet", "alpha": 0.5, "clients": 6}
LARGE = {"partition": "label_permutation", "groups": 2, "clients": 9}
LARGE |= {"drift": {"kind": "sudden", "at": [2], "share": 0.25, "what": "group"}}


def played(method, data, participation, plan):
    return cfljax.run(
        method,
        {"name": "blobs", "samples": 180, "validation": 0.2} | data,
        {"name": "mlp", "hidden": [3]},
        seed=1,
        progress=False,
        rounds=3,
        train={
            "batch": 8,
            "participation": participation,
            "clock": {"step_ms": 5.0},
            "finetune_steps": 2,
            "plan": {"quick": True, "gram": 0} | plan,
        },
    )


# FedBN needs a model with normalisation. FL+HC begins with all clients, then draws some
@pytest.mark.parametrize("name", every([name for name in METHODS if name != "fedbn"], ["fl_hc"]))
def test_other_data_and_participants_share_programs_and_change_nothing(name, monkeypatch):
    # else a process that has run many tests may drop all programs between the two cases
    monkeypatch.setattr(compiled, "MAX_KEPT", 2 * compiled.MAX_KEPT)
    options = {key: value for key, value in play.options(name).items() if key != "model"}
    method = {"name": name} | options
    small = SMALL if name != "oracle" else {"partition": "label_swap", "groups": 3, "clients": 6}
    cases = [(LARGE, 1.0), (small, 1.0 if name in play.EVERYBODY else 0.5)]
    padded = []
    for case in cases:
        before = compiled.compilations
        padded.append(played(method, *case, ROOM))
        made = compiled.compilations - before
    assert made == 0
    plain = played(method, *cases[1], {})
    assert set(plain.arrays) - {"models"} <= set(padded[1].arrays)
    for each in ("labels", "group", "train_size", "history/bytes_up", "history/bytes_down"):
        assert np.array_equal(plain.arrays[each], padded[1].arrays[each]), each
    for each in ("client_accuracy", "history/accuracy", "history/val_accuracy", "history/clock_s"):
        assert np.allclose(plain.arrays[each], padded[1].arrays[each], atol=1e-5), each
    for each in ("accuracy_finetuned", "accuracy_worst10"):
        assert plain.summary[each] == pytest.approx(padded[1].summary[each], abs=1e-5)


def test_a_result_has_the_clients_of_its_data_and_says_the_room():
    found = played("fedavg", SMALL, 0.5, ROOM)
    assert [len(found.samples(client)[1]) > 0 for client in range(6)] == [True] * 6
    with pytest.raises(SpecError, match="client"):
        found.samples(6)
    assert (
        "clients = 9, samples = 60, pool_samples = 200, groups = 3, phases = 3"
        in found.record["plan"]
    )


def test_an_asynchronous_server_has_no_slots_for_clients():
    with pytest.raises(SpecError, match=r"train\.plan\.clients = 9"):
        cfljax.run(
            rounds=1,
            train={
                "clock": {"step_ms": 5.0},
                "asynchronous": {"buffer": 2},
                "plan": {"clients": 9},
            },
        )
