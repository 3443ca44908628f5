"""So many clients at a time: the same results, those of like work together, and how many suit a federation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import assemble, execution
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.local import lanes, spread
from cfljax.local.plan import Plan
from tests.methods import contract

UNEQUAL = {"name": "blobs", "samples": 30_000, "partition": "quantity", "alpha": 0.3, "clients": 2000}
EQUAL = {"name": "blobs", "samples": 30_000, "partition": "iid", "clients": 500}


def run_of(plan=None, data=UNEQUAL, **train):
    spec = {"data": data, "model": "mclr", "method": "fedavg"}
    return read_spec(spec | {"train": {"rounds": 1, **train} | ({} if plan is None else {"plan": plan})}).runs()[0]


def choice(*given, in_turn=False, devices=1, **more):
    run = run_of(*given, **more)
    federation = assemble.host_federation(run)
    return execution.choose(run, assemble.model_of(run, federation), federation, in_turn, devices)


@pytest.mark.parametrize(
    ("name", "lanes", "stream"),
    [("ifca", 2, 0), ("local", 2, 0), ("joint", 2, 3), ("fedgroup", 2, 3), ("cfl_mgd", 0, 2), ("ifca", 3, 4)],
)
def test_some_at_a_time_as_one_after_another(name, lanes, stream):
    (alone,), (some,) = contract.run(name), contract.run(name, plan={"lanes": lanes, "stream": stream})
    assert np.array_equal(alone.labels, some.labels)
    assert np.abs(alone.models - some.models).max() < 1e-5
    for number in ("accuracy", "train_loss", "discrepancy", "nonfinite"):
        assert np.allclose(alone.history[number], some.history[number], rtol=1e-4, atol=1e-6, equal_nan=True)


def test_those_of_about_equal_work_are_trained_together():
    together = []

    def job(s):
        note = lambda block: together.append(sorted(np.asarray(block).ravel().tolist())) or np.asarray(block, np.int32)  # noqa: E731
        return jax.pure_callback(note, jax.ShapeDtypeStruct((), jnp.int32), s, vmap_method="expand_dims")

    costs = jnp.array([5.0, 1, 9, 1, 8, 2, 0])
    found = jax.block_until_ready(jax.jit(lambda: spread.spread(job, costs, Plan(lanes=2)))())
    assert found.tolist() == [*range(7)]
    assert sorted(together) == [[-1, 6], [0, 5], [1, 3], [2, 4]]


def test_a_round_is_predicted_by_its_blocks():
    steps = lanes.typical(np.array([1, 40, 7, 3]), 8)
    assert steps.tolist() == [40, 40, 7, 7, 3, 3, 1, 1] and lanes.typical(steps, 2).tolist() == [7, 1]
    assert lanes.packed(steps, 0) == (40, 320) and lanes.packed(steps, 1) == (102, 102)
    assert lanes.packed(steps, 3) == (40 + 7 + 1, 3 * 48)


def test_no_more_at_a_time_than_a_block_of_participants_has():
    equal, unequal = np.full(1000, 5), np.arange(1000)[::-1] ** 3
    assert [lanes.best(equal, most) for most in (0, 300, 60, 1000)] == [0, 300, 60, 0]
    assert [lanes.best(unequal, most) for most in (0, 300, 60)] == [250, 300, 60]


@pytest.mark.parametrize("participants", [20, 128, 300, 1000, 10_000])
@pytest.mark.parametrize("law", [1.01, 1.3, 2.0, None])
def test_neither_steps_in_a_row_nor_work_are_doubled_but_where_a_device_would_be_idle(participants, law):
    rng = np.random.default_rng(0)
    sizes = np.full(1000, 60) if law is None else np.minimum(5000, rng.pareto(law, 1000) * 30 + 1).astype(int)
    steps = lanes.typical(sizes, participants)
    width = lanes.best(steps)
    assert width == 0 or lanes.LEAST <= width < participants
    if law is None or participants <= lanes.LEAST:
        assert width == 0
    found = lanes.packed(steps, width)
    assert found.in_a_row <= 3 * lanes.packed(steps, 0).in_a_row
    assert found.computed <= 3 * steps.sum() or (width or participants) < 2 * lanes.LEAST


def test_an_accelerator_trains_unequal_clients_so_many_at_a_time_and_a_cpu_one():
    assert choice(in_turn=True).plan.lanes == 1
    assert choice(data=EQUAL).plan.lanes == 0 and choice(participation=20).plan.lanes == 0
    found = choice()
    assert lanes.LEAST <= found.plan.lanes < 2000 and len(found.steps) == 2000
    assert len(choice(devices=4).steps) == 500
    assert choice({"stream": 40}).plan.lanes == choice({"stream": 40}).plan.stream == 40
    assert choice(batch="full", steps=3).plan.lanes == choice(steps=3).plan.lanes == 0  # all have as many


def test_steps_are_those_that_clients_do():
    counts = np.array([0, 1, 10, 11])
    twice = {"epochs": 2, "batch": 10}
    for train, wanted in ((twice, [0, 2, 2, 4]), (twice | {"batch": "full"}, [0, 2, 2, 2]), ({"steps": 7}, [0, 7, 7, 7])):
        assert execution._steps(execution.work_of(run_of(**train)), counts).tolist() == wanted


def test_lanes_can_be_forced():
    assert choice({"lanes": 9}, in_turn=True).plan.lanes == choice({"lanes": 9}).plan.lanes == 9
    assert [choice({"side_by_side": value}).plan.lanes for value in (True, False)] == [0, 1]
    assert choice({"lanes": 1}).plan.sequential and not choice({"lanes": 2}).plan.sequential
    with pytest.raises(SpecError, match="leave out one"):
        run_of({"lanes": 4, "side_by_side": True})


def test_the_plan_says_what_other_lanes_would_take():
    found = choice({"lanes": 500})
    words = execution.explain("run", found)
    real, all_at_once = found.steps.sum(), lanes.packed(found.steps, 0)
    assert "500 at a time side by side" in words
    assert f"all at a time {all_at_once.in_a_row} steps in a row, {all_at_once.computed / real:.3g} times those there are" in words
    assert f"1 at a time {real} steps in a row, 1 times those there are" in words
    assert "in a row" not in execution.explain("run", choice(in_turn=True))
