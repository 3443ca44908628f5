"""So many clients at a time: the same results, those of like work together, and how many suit a
federation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfljax import keys
from cfljax.config import read_spec
from cfljax.devices import spread
from cfljax.errors import SpecError
from cfljax.experiment import assemble, execution
from cfljax.local import queue as lanes
from cfljax.local.rounds import Mixing, train_and_mix
from cfljax.local.solver import Solver
from cfljax.types import Jobs, Plan
from tests import machines, play, toy
from tests.often import rarely

UNEQUAL = {
    "name": "blobs",
    "samples": 30_000,
    "partition": "quantity",
    "alpha": 0.3,
    "clients": 2000,
}
EQUAL = {"name": "blobs", "samples": 30_000, "partition": "iid", "clients": 500}


def run_of(plan=None, data=UNEQUAL, **train):
    spec = {"data": data, "model": "mclr", "method": "fedavg"}
    return read_spec(
        spec | {"train": {"rounds": 1, **train} | ({} if plan is None else {"plan": plan})}
    ).runs()[0]


def choice(*given, machine=machines.gpu(), **more):  # noqa: B008
    run = run_of(*given, **more)
    federation = assemble.host_federation(run)
    return execution.choose_plan(run, assemble.model_of(run, federation), federation, machine)


TWO, THREE, BLOCKS = {"lanes": 2}, {"lanes": 2, "stream": 3}, {"stream": 2}
TOGETHER = [
    rarely(*each) for each in (("ifca", TWO), ("local", TWO), ("joint", THREE), ("fedgroup", THREE))
]
TOGETHER += [("ifca", {"lanes": 3, "stream": 4}), rarely("fedgroup", BLOCKS)]
TOGETHER += [rarely(name, BLOCKS | {"lanes": 0}) for name in ("cfl_mgd", "ifca")]
TOGETHER += [rarely(name, BLOCKS) for name in ("fedprox", "ifca", "joint", "cfl_mgd")]


@pytest.mark.parametrize(("name", "work"), TOGETHER, ids=str)
def test_some_at_a_time_as_one_after_another(name, work):
    (alone,), (some,) = play.on_nine(name), play.on_nine(name, work=work)
    assert np.array_equal(alone.labels, some.labels)
    assert np.abs(alone.models - some.models).max() < 1e-5
    for number in ("accuracy", "train_loss", "discrepancy", "nonfinite"):
        assert np.allclose(
            alone.history[number], some.history[number], rtol=1e-4, atol=1e-6, equal_nan=True
        )


def test_those_of_about_equal_work_are_trained_together():
    together = []

    def job(s):
        def note(block):
            return together.append(sorted(np.asarray(block).ravel().tolist())) or np.asarray(
                block, np.int32
            )

        return jax.pure_callback(
            note, jax.ShapeDtypeStruct((), jnp.int32), s, vmap_method="expand_dims"
        )

    costs = jnp.array([5.0, 1, 9, 1, 8, 2, 0])
    found = jax.block_until_ready(jax.jit(lambda: spread.spread(job, costs, Plan(lanes=2)))())
    assert found.tolist() == [*range(7)]
    assert sorted(together) == [[-1, 6], [0, 5], [1, 3], [2, 4]]


def test_participants_in_blocks_are_trained_in_even_parts_of_them():
    equal, unequal = np.full(1000, 5), np.arange(1000)[::-1] ** 3
    for block in (0, 1, 60, 130, 300, 1000):  # of 130, 128 would leave two to wait for
        assert lanes.choose_width(equal, block) == 0
    assert [lanes.choose_width(unequal, block) for block in (0, 600, 130, 60)] == [250, 300, 0, 0]
    steep = np.append([10_000] * 300, [1] * 9_700)
    assert lanes.choose_width(steep) == 313 and lanes.choose_width(steep, 2500) == 313


def test_an_accelerator_trains_some_unequal_clients_side_by_side_and_a_cpu_one():
    assert choice(machine=machines.cpu()).plan.lanes == 1
    assert choice(data=EQUAL).plan.lanes == 0 and choice(participation=20).plan.lanes == 0
    found = choice()
    assert lanes.MIN_LANES <= found.plan.lanes < 2000 and len(found.steps) == 2000
    assert len(choice(machine=machines.gpu(4)).steps) == 500
    assert choice({"stream": 500}).plan.lanes == 250 and choice({"stream": 1}).plan.lanes == 0
    assert (
        choice(batch="full", steps=3).plan.lanes == choice(steps=3).plan.lanes == 0
    )  # all have as many


def test_steps_are_those_that_clients_do():
    twice, four = {"epochs": 2, "batch": 10}, EQUAL | {"samples": 400, "clients": 4}
    for train, wanted in (
        (twice, [4, 2, 2, 0]),
        (twice | {"batch": "full"}, [2, 2, 2, 0]),
        ({"steps": 7}, [7, 7, 7, 0]),
    ):
        run = run_of(data=four, **train)
        federation = assemble.host_federation(run)
        federation = toy.replace(
            federation,
            train=toy.replace(federation.train, count=np.array([0, 1, 10, 11], np.int32)),
        )
        found = execution.choose_plan(
            run, assemble.model_of(run, federation), federation, machines.gpu()
        )
        assert found.steps.tolist() == wanted


@pytest.mark.parametrize(
    ("width", "wanted"), [(0, [[3, 4, 0], [2, 5, 1]]), (1, [[0, 3, 4], [1, 2, 5]])]
)
def test_a_device_trains_the_clients_whose_samples_it_has_the_largest_first_where_they_wait(
    width, wanted, monkeypatch
):
    monkeypatch.setattr(spread, "devices", lambda: 2)
    costs, owner = jnp.float32([1, 2, 5, 9, 3, 4]), jnp.int32([0, 1, 1, 0, 0, 1])
    each = jax.vmap(
        lambda _: spread.deal_out(costs, Plan(width), owner).jobs, axis_name=spread.AXIS
    )
    jobs = np.asarray(jax.jit(each)(np.arange(2)))
    assert [[int(s) for s in row if s >= 0] for row in jobs] == wanted


def test_lanes_can_be_forced():
    assert (
        choice({"lanes": 9}, machine=machines.cpu()).plan.lanes
        == choice({"lanes": 9}).plan.lanes
        == 9
    )
    assert choice({"lanes": 1}).plan.sequential and not choice({"lanes": 2}).plan.sequential
    with pytest.raises(SpecError, match="train.plan.side_by_side: there is no such option"):
        run_of({"side_by_side": True})  # its name before it was called lanes


def test_the_plan_says_what_other_lanes_would_take():
    found = choice({"lanes": 500})
    words = execution.explain_plan("run", found)
    real, at_once = found.steps.sum(), lanes.count_round_cost(found.steps, 0)
    assert "clients 500 at a time side by side" in words
    idle = f"of all that is computed {1 - real / at_once.computed:.0%} is for clients that are done"
    assert (
        f"with 2000 at a time {at_once.in_a_row} ({idle})" in words
        and words.rstrip().count("clients that are done") >= 1
    )
    assert f"with 1 at a time {real}" in words and f"with 1 at a time {real} (" not in words
    assert "after one another" not in execution.explain_plan("run", choice(machine=machines.cpu()))
    assert "clients 2000 at a time" in execution.explain_plan("run", choice({"lanes": 5000}))


def test_the_plan_says_what_lanes_take_in_blocks_of_participants():
    found = choice({"lanes": 500, "stream": 200})
    words, at_once = execution.explain_plan("run", found), lanes.count_round_cost(found.steps, 200)
    assert (
        "clients 200 at a time side by side" in words
        and "2000 at a time" not in words
        and "500 at a time" not in words
    )
    assert f"with 200 at a time {at_once.in_a_row}" in words
    assert f"with 128 at a time {lanes.count_round_cost(found.steps, 128, 200).in_a_row}" in words


def test_blocks_of_participants_who_wait_for_each_other_are_of_about_equal_work():
    federation, model, together = toy.federation(), toy.model(), []
    clients = np.arange(federation.clients, dtype=np.int32)
    ones, start = np.ones(len(clients), np.float32), np.zeros((1, model.size), np.float32)
    jobs = jax.device_put(Jobs(clients, clients >= 0, ones, start, 0 * clients))
    mix = jax.device_put(ones[None] / len(clients))
    for width in (0, 1):

        class Noting(Solver):
            def fit(self, key, federation, jobs, hyper):
                jax.debug.callback(
                    lambda c: together.append(np.asarray(c).tolist()), jobs.client, ordered=True
                )
                return super().fit(key, federation, jobs, hyper)

        noting, mixing = (
            Noting(**vars(toy.solver(model, lanes=width, stream=3))),
            Mixing(mix, jobs.start),
        )
        train = jax.jit(
            functools.partial(
                train_and_mix, noting, keys.root(0), federation, jobs, {"lr": 0.1}, mixing
            )
        )
        jax.block_until_ready(train())
        jax.effects_barrier()
    sizes = np.asarray(federation.train.count)
    several, one = (
        np.concatenate(together[: len(together) // 2]),
        np.concatenate(together[len(together) // 2 :]),
    )
    assert one[: len(clients)].tolist() == clients.tolist()  # none waits
    assert sorted(several[: len(clients)].tolist()) == clients.tolist()
    assert (np.diff(sizes[several[: len(clients)]]) <= 0).all() and len(set(sizes.tolist())) > 3


some_steps = st.lists(st.integers(0, 60), min_size=1, max_size=24)


def packed(steps, width, block):
    """(steps in a row, clients' steps computed, clients trained): blocks one after another, and
    parts of a block."""
    in_a_row = computed = trained = 0
    block = min(block or len(steps), len(steps))
    width = min(width or block, block)
    for begin in range(0, len(steps), block):
        of_block = steps[begin : begin + block]
        for first in range(0, len(of_block), width):
            part = of_block[first : first + width]
            in_a_row += max(part)
            computed += width * max(part)
            trained += len(part)
    return in_a_row, computed, trained


@given(some_steps, st.integers(0, 30), st.integers(0, 30))
def test_steps_in_a_row_are_those_of_the_slowest_of_each_part(steps, width, block):
    steps = np.sort(steps)[::-1]
    in_a_row, computed, trained = packed(steps.tolist(), width, block)
    assert lanes.count_round_cost(steps, width, block) == (in_a_row, computed) and trained == len(
        steps
    )
    assert in_a_row >= steps.max() and computed >= steps.sum()


@given(some_steps, st.integers(1, 50))
def test_a_typical_round_has_the_spread_of_all_clients(steps, participants):
    found = lanes.typical_steps(np.array(steps), participants)
    ranked = sorted(steps, reverse=True)
    assert found.tolist() == [
        ranked[int((2 * s + 1) * len(steps) / (2 * participants))] for s in range(participants)
    ]
    times = participants // len(steps)
    if times * len(steps) == participants:
        assert found.tolist() == [each for each in ranked for _ in range(times)]


@pytest.mark.parametrize("least", [2, 5])
def test_the_best_number_has_the_least_price_of_all_even_parts(least, monkeypatch):
    monkeypatch.setattr(lanes, "MIN_LANES", least)

    @given(some_steps, st.integers(0, 24))
    def check(steps, block):
        steps = sorted(steps, reverse=True)
        number = min(block or len(steps), len(steps))

        def price(width):
            in_a_row, computed, _ = packed(steps, width, block)
            return in_a_row / max(packed(steps, 0, block)[0], 1) + computed / max(sum(steps), 1)

        parts = {-(-number // int(2 ** (i / 2))) for i in range(2, 40)} | {least}
        allowed = [0, *(width for width in parts if least <= width < number)]
        best = lanes.choose_width(np.array(steps), block)
        assert best in allowed and price(best) == min(map(price, allowed))

    check()
