"""Gossip against a plain numpy program, its graphs and their weights, and what it refuses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.contract import outputs
from cfljax.contract.padding import pad
from cfljax.errors import SpecError
from cfljax.kernels import graph
from tests import play, toy
from tests.often import rarely
from tests.reference import gossip, plain

SEED, ROUNDS, ROOM = 5, 4, 12
NET = plain.Net(6, 4)


@pytest.mark.parametrize(
    ("options", "participants"),
    [
        ({"topology": "ring"}, 6),
        rarely({"topology": "ring"}, 9),
        rarely({"topology": "torus"}, 7),
        rarely({"topology": "torus"}, 9),
        rarely({"topology": "random"}, 7),
        rarely({"topology": "random", "neighbours": 3}, 9),
        rarely({"topology": "random", "neighbours": 1}, 5),
    ],
    ids=str,
)
def test_gossip_follows_the_plain_program(options, participants):
    federation = play.nine_clients()
    out = play.rounds("gossip", federation, ROUNDS, participants, SEED, **options)
    wanted, messages, apart = gossip.run(
        NET, federation, toy.start(SEED), SEED, ROUNDS, participants, **options
    )
    assert np.abs(out.models() - wanted).max() < 1e-5
    # Each edge carries a model in both directions, and nobody has sent floats
    assert [tuple(map(int, i.traffic)) for i in out.infos] == [(m, m, 0, 0) for m in messages]
    assert 0 < max(messages) <= 4 * participants
    assert [float(i.diag["consensus"]) for i in out.infos] == pytest.approx(apart, abs=1e-5)


def matrices(nodes):
    """`_matrices`, as numpy arrays."""
    return jax.device_get(_matrices(nodes))


@jax.jit
def _matrices(nodes):
    """Of a ring and of a torus of this number of clients, in a room for more: bool[ROOM, ROOM] who
    is whose neighbour, f32[ROOM, ROOM] the weights of the average, i32[ROOM] the degrees. Positions
    are slots from behind."""
    position = jnp.arange(ROOM, dtype=jnp.int32)[::-1]
    found = []
    for wanted in (graph.ring(position, nodes), graph.torus(position, nodes, ROOM)):
        slots = graph.find_slots(wanted, position, position < nodes, ROOM)
        each = graph.join_slots([slots])
        rows = jnp.arange(ROOM)[:, None]
        there = jnp.zeros((ROOM, ROOM), bool).at[rows, each.slots].max(each.edges)
        found.append((there, each.average(jnp.eye(ROOM)), each.degree))
    return found


@pytest.mark.parametrize("nodes", range(1, ROOM + 1))
def test_rings_and_tori_are_those_of_the_plain_program_in_any_room(nodes):
    for topology, (there, weights, degree) in zip(("ring", "torus"), matrices(nodes), strict=True):
        everybody = np.arange(nodes)
        pairs = gossip.edges(topology, everybody, everybody, None)
        turned = ROOM - 1 - np.argwhere(there)
        assert {gossip.edge(a, b) for a, b in turned} == pairs
        assert degree.sum() == 2 * len(pairs) == np.sum(there)
        wanted = np.eye(ROOM)
        wanted[:nodes, :nodes] = gossip.matrix(everybody, pairs)
        assert np.allclose(weights, wanted[::-1, ::-1], atol=1e-6)


def test_a_torus_is_as_square_as_its_number_allows():
    """Three rows of four: four neighbours each; two rows of five: those above and below are one."""
    for nodes, degree in ((12, 4), (10, 3), (9, 4), (4, 2)):
        assert matrices(nodes)[1][2].tolist() == (ROOM - nodes) * [0] + nodes * [degree]


PATH = graph.Graph(np.array([[1, 1], [0, 2], [1, 1]]), np.array([[1, 0], [1, 1], [1, 0]], bool))
"""A path of three."""


@jax.jit
def averaged_among(who):
    """f32[3, 3]: the weights on a path of three, of which bool[3] are there."""
    return graph.Graph(*map(jnp.asarray, PATH)).among(who).average(jnp.eye(3))


def test_metropolis_weights_keep_the_mean_whoever_is_there():
    """Rows and columns sum to one, though the middle has two neighbours and the others have one."""
    for who in ([1, 1, 1], [1, 1, 0], [1, 0, 1]):
        weights = np.asarray(averaged_among(np.array(who, bool)))
        assert np.allclose(weights, weights.T) and np.allclose(weights.sum(axis=0), 1)
    assert np.allclose(weights, np.eye(3))  # without the middle the others are alone
    third = np.asarray(averaged_among(np.ones(3, bool)))
    assert np.allclose(third, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])


def test_a_client_without_a_neighbour_keeps_its_model_and_sends_nothing():
    """Two of nine, who are no neighbours in the ring, train as if alone."""
    federation = play.nine_clients()
    seed = next(s for s in range(99) if not ring_of_two(s))
    alone, local = (play.rounds(n, federation, 1, 2, seed) for n in ("gossip", "local"))
    ids = plain.cohort(seed, 0, np.arange(9), 2)
    assert np.allclose(alone.models()[ids], local.models()[ids], atol=1e-6)
    assert not any(map(int, alone.infos[0].traffic))


def ring_of_two(seed):
    """Whether the two participants of round 0 are neighbours in a ring of nine."""
    a, b = plain.cohort(seed, 0, np.arange(9), 2)
    return abs(a - b) in (1, 8)


@pytest.mark.parametrize("topology", [*map(rarely, ("torus", "random"))])
def test_no_graph_depends_on_padding_order_or_the_runs_beside(topology):
    """A ring is under `test_contract.py`."""
    order, federation = np.array([4, 2, 8, 0, 7, 1, 3, 6, 5]), play.nine_clients()
    two = play.on_nine("gossip", [{}, {}], seeds=[0, 1], topology=topology)
    for changed, different in (
        (pad(federation, clients=3, samples=4), outputs.describe_padding),
        (federation.take(order), functools.partial(outputs.describe_order, order=order)),
        (federation, outputs.describe_difference),
    ):
        (alone,) = play.on_nine("gossip", seeds=[1], federation=changed, topology=topology)
        assert not different(two[1], alone)
        assert different(two[0], alone)


def spec(clients=9, train=None, **options):
    data = {"name": "digits", "partition": "iid", "clients": clients}
    method = {"name": "gossip"} | options
    return read_spec({"data": data, "method": [method], "model": "mclr", "train": train or {}})


@pytest.mark.parametrize("clients", [2, 3, 7, 13])
def test_a_torus_of_a_prime_number_says_what_to_write(clients):
    with pytest.raises(SpecError, match=rf'topology = "torus": {clients} clients') as told:
        spec(clients, topology="torus").runs()
    assert "\n" not in str(told.value)
    for number in map(int, str(told.value).split("take ")[1].split(" clients")[0].split(" or ")):
        assert spec(number, topology="torus").runs()


def test_a_number_of_clients_that_only_the_data_tell_is_checked_before_the_rounds():
    (run,) = spec(topology="torus").runs()
    seven = play.seven_clients()
    run.options.check_federation("method.gossip", play.nine_clients())
    with pytest.raises(SpecError, match="7 clients"):
        run.options.check_federation("method.gossip", seven)
    data = {"x": np.zeros((70, 3), np.float32), "y": np.arange(70) % 2, "user": np.arange(70) % 7}
    with pytest.raises(SpecError, match="7 clients"):
        cfljax.run({"name": "gossip", "topology": "torus"}, data, "mclr", rounds=1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"neighbours": 3}, 'needs topology = "random"'),
        ({"neighbours": 9, "topology": "random"}, "give at most 8"),
        ({"topology": "star"}, "topology"),
        ({"train": {"compress": "int8"}}, "train.compress"),
        ({"train": {"robust": "median"}}, "train.robust"),
    ],
)
def test_what_it_refuses_is_told_in_a_line(options, told):
    with pytest.raises(SpecError, match=told) as caught:
        spec(**options).runs()
    assert "\n" not in str(caught.value)
