"""Short runs on a CPU are compiled quickly (`Plan.quick`)."""

import jax
import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices import compiled as quick
from cfljax.devices.compiled import compile_later
from cfljax.devices.machine import TYPICAL, Speed
from cfljax.engine.simulate import simulate
from cfljax.experiment.assemble import assemble, host_federation, model_of
from cfljax.experiment.batching import make_batches
from cfljax.experiment.execution import choose_plan, explain_plan
from cfljax.launch.batch import describe_plan
from tests import machines
from tests.often import rarely

DATA = {
    "name": "blobs",
    "samples": 400,
    "features": 6,
    "classes": 4,
    "partition": "quantity",
    "clients": 8,
}
IMAGES = {"name": "digits", "partition": "rotated", "groups": 2, "clients": 8}


def run_of(model="mclr", plan=None, data=DATA, rounds=20, method="fedavg", **train):
    train = {"rounds": rounds, "lr": 0.1, **train} | ({} if plan is None else {"plan": plan})
    return read_spec({"data": data, "model": model, "method": [method], "train": train}).runs()[0]


def choice_of(run, machine=None):
    federation = host_federation(run)
    return choose_plan(run, model_of(run, federation), federation, machine or machines.cpu())


def test_short_runs_of_dense_models_are_compiled_quickly_and_others_thoroughly():
    assert choice_of(run_of()).plan.quick and "compiled in half the time" in explain_plan(
        "fedavg", choice_of(run_of())
    )
    long = choice_of(run_of(rounds=10**6))
    assert not long.plan.quick and "half the time" not in explain_plan("fedavg", long)
    cnn = {"name": "cnn", "channels": [2], "kernel": 3, "dense": [4]}
    assert not choice_of(run_of(cnn, data=IMAGES, rounds=1)).plan.quick


def test_the_work_of_a_round_counts():
    few, many = run_of(rounds=2000, batch=10), run_of(rounds=2000, batch=10, epochs=50)
    assert choice_of(few).plan.quick and not choice_of(many).plan.quick
    assert not choice_of(run_of({"name": "mlp", "hidden": [4000]}, rounds=2000)).plan.quick


def test_times_of_short_runs_are_said_to_be_those_of_a_typical_core():
    slow = machines.cpu(known_speed=Speed(*(100 * each for each in TYPICAL)))
    short, long = (
        explain_plan("fedavg", choice_of(run_of(rounds=rounds), slow)) for rounds in (20, 10**6)
    )
    assert "for that layer on a typical core: step by step" in short and "typical" not in long
    assert short == explain_plan("fedavg", choice_of(run_of(rounds=20)))
    assert "on a typical core" in explain_plan(
        "fedavg", choice_of(run_of(rounds=20, plan={"quick": False}), slow)
    )


@pytest.mark.parametrize("wanted", [True, False])
def test_the_spec_may_say_it(wanted):
    assert (
        choice_of(run_of(rounds=10**6 if wanted else 1, plan={"quick": wanted})).plan.quick
        == wanted
    )


def test_never_on_an_accelerator():
    assert not choice_of(run_of(plan={"quick": True}), machines.gpu()).plan.quick
    assert not choice_of(run_of(), machines.tpu()).plan.quick


@pytest.mark.parametrize("method", ["ifca", rarely("fedgroup")])
def test_both_ways_agree(method):
    found = []
    for wanted in (True, False):
        (batch,) = make_batches(
            [run_of(plan={"quick": wanted}, method={"name": method, "clusters": 2}, rounds=4)], 1
        )
        parts = assemble(batch.first, batch.width, machines.cpu())
        assert (
            parts.plan.quick == wanted
            and ("quick = true" in describe_plan(parts, 1, machines.cpu())) == wanted
        )
        found += simulate(parts, batch.seeds, batch.hypers)
    np.testing.assert_allclose(found[0].models, found[1].models, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0].labels, found[1].labels)


def test_a_program_is_kept_apart_from_one_compiled_the_other_way(monkeypatch):
    asked = []
    monkeypatch.setattr("cfljax.devices.compiled.quick_options", lambda: asked.append(1))
    forms = (jax.ShapeDtypeStruct((3,), np.float32),)
    slow = compile_later(jax.jit(lambda x: x + 1), forms, "test_quick")
    begun = len(asked)
    fast = compile_later(jax.jit(lambda x: x + 1), forms, "test_quick", quick=True)
    assert (
        fast is not slow
        and len(asked) == begun + 1
        and compile_later(jax.jit(lambda x: x + 1), forms, "test_quick") is slow
    )


def test_options_that_xla_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(
        quick, "QUICK", {"xla_cpu_of_another_year": True, "xla_backend_optimization_level": "1"}
    )
    quick.quick_options.cache_clear()
    try:
        assert quick.quick_options() == {"xla_backend_optimization_level": "1"}
    finally:
        quick.quick_options.cache_clear()


def test_a_function_of_the_host_is_compiled_for_each_of_its_static_arguments():
    double = quick.quick_jit(lambda x, times: x * times, static=(1,))
    assert [int(double(np.int32(3), times)) for times in (2, 4, 2)] == [6, 12, 6]
