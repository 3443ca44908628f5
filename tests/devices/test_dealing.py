"""Any jobs, dealt to devices: each is done once, evenly, and its result is in its place on every
device."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cfljax.devices import spread
from cfljax.devices.placement import assign_owners
from cfljax.types import Plan

JOBS, DEVICES = 9, 3
EXAMPLES = settings(max_examples=40, deadline=None)
costs_of = hnp.arrays(np.float32, JOBS, elements=st.integers(0, 40).map(float))
deal = functools.cache(
    lambda room: jax.jit(functools.partial(spread.deal, devices=DEVICES, room=room))
)


def greedily(costs, room):
    """The lists of jobs by a plain program: the longest first, each to the device with the least
    work that has room."""
    lists, loads = [[] for _ in range(DEVICES)], [0.0] * DEVICES
    for job in sorted(range(len(costs)), key=lambda s: -costs[s]):
        device = min((d for d in range(DEVICES) if len(lists[d]) < room), key=lambda d: loads[d])
        lists[device].append(job)
        loads[device] += costs[job]
    return lists, loads


@EXAMPLES
@given(costs_of, st.sampled_from([3, 5, JOBS]), st.permutations(range(JOBS)))
def test_each_job_is_dealt_once_to_the_least_busy_device(costs, room, order):
    lists, place = (np.asarray(each) for each in deal(room)(costs))
    assert lists.shape == (DEVICES, room)
    assert lists.ravel()[place].tolist() == [*range(JOBS)] and (lists >= 0).sum() == JOBS
    wanted, loads = greedily(costs, room)
    assert [[s for s in row if s >= 0] for row in lists.tolist()] == wanted
    if room == JOBS:  # what a device gets last is given when no other has less work
        assert max(loads) <= costs.sum() / DEVICES + (1 - 1 / DEVICES) * costs.max() + 1e-3
    turned, _ = deal(room)(costs[order])
    assert [np.where(row >= 0, costs[order][row], 0).sum() for row in np.asarray(turned)] == loads


@given(st.integers(1, 5000), st.integers(2, 64))
def test_devices_have_room_for_all_jobs_and_few_free_places(jobs, devices):
    even = -(-jobs // devices)
    places = spread._count_slots(jobs, even)
    assert even <= places <= jobs and places - even <= min(spread.RESERVE_SLOTS, even / 2)


@functools.cache
def on_devices(devices, lanes, owned):
    """What each device gets of `spread`, whose jobs return their number's square; a free place
    would be seen."""

    def job(s):
        return jnp.where(s >= 0, s * s, -7), (s >= 0) & (s % 2 == 0)

    def traced(costs, owner):
        token = spread._devices.set(devices)
        try:
            return spread.spread(job, costs, Plan(lanes), owner if owned else None)
        finally:
            spread._devices.reset(token)

    return jax.jit(jax.vmap(traced, (None, None), axis_name=spread.AXIS, axis_size=devices))


@pytest.mark.parametrize("lanes", [1, 0, 2])
@pytest.mark.parametrize(("devices", "owned"), [(1, False), (DEVICES, False), (DEVICES, True)])
def test_every_device_has_the_results_of_all_jobs_in_their_order(devices, lanes, owned):
    @settings(max_examples=15, deadline=None)
    @given(costs_of, hnp.arrays(np.int32, JOBS, elements=st.integers(0, DEVICES - 1)))
    def check(costs, owner):
        squares, even = on_devices(devices, lanes, owned)(costs, owner)
        assert squares.tolist() == [[s * s for s in range(JOBS)]] * devices
        assert even.tolist() == [[s % 2 == 0 for s in range(JOBS)]] * devices

    check()


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 300)), min_size=1, max_size=30),
    st.integers(1, 8),
    st.booleans(),
)
def test_neighbours_belong_to_one_device_and_devices_have_about_as_many_samples(
    clients, devices, shared
):
    train, test = np.array(clients).T
    splits = {
        "train": SimpleNamespace(count=train),
        "test": SimpleNamespace(count=test, shared=shared),
    }
    owner = assign_owners(SimpleNamespace(**splits, splits=splits), devices)
    assert (np.diff(owner) >= 0).all() and owner.min() >= 0 and owner.max() < devices
    held = train + 1 + (0 if shared else test)
    for device in set(
        owner.tolist()
    ):  # the middle of each client's samples lies in the device's part of all samples
        clients = held[owner == device]
        assert clients.sum() <= held.sum() / devices + (clients[0] + clients[-1]) / 2
