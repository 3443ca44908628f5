"""Federations that are padded to shapes that they share (`train.plan.clients` and the others)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.devices.compiled import shape_key
from cfljax.errors import SpecError
from cfljax.federation.gather import client_rows, samples
from cfljax.federation.room import Room, find_phases, make_room
from cfljax.types import Drift
from tests import toy

ROOM = Room(clients=12, samples=420, pool_samples=900, groups=5, phases=4)


@jax.jit
def seen(federation, client):
    """The training samples of a client, as it sees them, then zeros."""
    positions = jnp.arange(400)
    rows = client_rows(federation.train, client, positions)
    return samples(federation, client, rows, positions < federation.train.count[client])


def test_clients_see_what_they_saw():
    for partition, options in (("label_swap", {"groups": 3}), ("quantity", {})):
        plain = toy.federation(partition, **options)
        padded = jax.device_put(make_room(jax.device_get(plain), ROOM))
        assert padded.clients == 12 and padded.real.tolist() == [True] * 8 + [False] * 4
        assert padded.trains.tolist() == plain.trains.tolist() + [False] * 4
        for client in range(8):
            was, now = (jax.device_get(seen(each, jnp.int32(client))) for each in (plain, padded))
            assert np.array_equal(was[0], now[0]) and np.array_equal(was[1], now[1])


def test_other_data_have_the_same_shapes():
    every = (
        toy.federation("label_swap", groups=3),
        toy.federation("quantity", seed=1, clients=5),
        toy.federation("dirichlet", seed=2, clients=12, alpha=0.5),
    )
    padded = [make_room(jax.device_get(each), ROOM) for each in every]
    assert len({shape_key(each) for each in every}) == 3
    assert len({shape_key(each) for each in padded}) == 1


@pytest.mark.parametrize("name", ["clients", "samples", "pool_samples", "groups"])
def test_room_for_less_than_there_is_is_an_error(name):
    federation = jax.device_get(toy.federation("label_swap", groups=3))
    with pytest.raises(SpecError, match=rf"train\.plan\.{name} = 2: .*give \d+ or more"):
        make_room(federation, Room(**{name: 2}))


def test_phases_that_never_begin_change_nothing():
    plain = jax.device_get(toy.federation("label_swap", groups=3))
    group = np.asarray(plain.group)
    moved = np.stack([group, (group + 1) % 3]).astype(np.int32)
    drift = Drift(np.array([0, 2], np.int32), moved, moved)
    for federation in (plain, dataclasses.replace(plain, drift=drift)):
        padded = make_room(federation, ROOM)
        assert len(padded.drift.begin) == 4
        for t in (0, 2, 99):
            was, now = federation.at(t), padded.at(t)
            assert np.array_equal(was.group, now.group[:8])
            assert np.array_equal(was.view.of, now.view.of[:8])
        found = find_phases(padded.drift)
        assert (found is None) == (federation.drift is None)
    with pytest.raises(SpecError, match=r"train\.plan\.phases = 4: .*groups"):
        make_room(jax.device_get(toy.federation()), Room(phases=4))


def test_token_ids_have_no_views():
    federation = jax.device_get(toy.federation())
    tokens = federation.pool._replace(table=np.zeros((4, 3), np.float32))
    with pytest.raises(SpecError, match=r"train\.plan\.groups = 5"):
        make_room(dataclasses.replace(federation, pool=tokens), ROOM)
