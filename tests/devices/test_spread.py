"""Jobs dealt to devices: evenly, and with as few places as that takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.devices import spread
from cfljax.types import Plan

deal = jax.jit(spread.deal, static_argnums=(1, 2))


def test_jobs_are_dealt_longest_first_to_the_least_busy():
    costs = np.float32([5, 1, 9, 1, 1, 1])
    lists, place = deal(costs, 2, 5)
    loads = [sum(float(costs[s]) for s in row if s >= 0) for row in np.asarray(lists)]
    assert sorted(loads) == [9, 9]
    flat = np.asarray(lists).ravel()
    assert [int(flat[p]) for p in np.asarray(place)] == list(range(6))
    full, _ = deal(np.float32([9, 1, 1, 1]), 2, 2)
    assert sorted(np.asarray(full).ravel().tolist()) == [
        0,
        1,
        2,
        3,
    ]  # no device takes more than it has room for


PLACES = [(7, True, 4), (7, False, 6), (20, False, 15), (1000, False, 516), (2, False, 1)]


@pytest.mark.parametrize(("jobs", "alike", "places"), PLACES)
def test_devices_need_few_free_places_and_none_for_equal_clients(jobs, alike, places, monkeypatch):
    monkeypatch.setattr(spread, "devices", lambda: 2)
    each = jax.vmap(
        lambda _: spread.deal_out(jnp.ones(jobs), Plan(alike=alike)).jobs, axis_name=spread.AXIS
    )
    dealt = np.asarray(jax.jit(each)(np.arange(2)))
    assert dealt.shape == (2, places) and sorted(dealt[dealt >= 0]) == [*range(jobs)]


@pytest.mark.parametrize(("jobs", "devices"), [(20, 4), (50, 4), (1000, 8)])
def test_free_places_suffice_for_sizes_after_a_power_law(jobs, devices):
    costs = (
        np.random.default_rng(jobs).permutation(1000 / np.arange(1, jobs + 1)).astype(np.float32)
    )
    lists, _ = deal(costs, devices, spread._count_slots(jobs, -(-jobs // devices)))
    loads = np.where(np.asarray(lists) >= 0, costs[np.asarray(lists)], 0).sum(1)
    assert loads.max() <= 1.05 * max(loads.mean(), float(costs.max()))


def test_a_device_mostly_does_its_own_clients_in_one_block(monkeypatch):
    """Of 1,000 clients on two devices hardly ever more than 750 are one's own, but in every third
    round more than 516."""
    monkeypatch.setattr(spread, "devices", lambda: 2)
    owner, blocks = jnp.arange(1000) % 2, []

    def deal(_):
        blocks.append(spread.deal_out(jnp.ones(1000), Plan(0), owner).block)

    jax.eval_shape(jax.vmap(deal, axis_name=spread.AXIS), jnp.arange(2))
    assert blocks == [750]
