"""FedClust against a plain numpy program, what its clients send, and who comes late."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.extend import State
from cfljax.methods.fl_hc import FLHC
from cfljax.round.clusters import ClusteredMethod
from tests import play, toy
from tests.often import rarely
from tests.reference import fedclust as reference
from tests.reference import once, plain

CLIENTS, SEED, ROUNDS, EPOCHS, BATCH, LR = 10, 2, 3, 3, 5, 0.1
MODEL = toy.model(7)
NUMBERS = 7 * 4 + 4
"""Of the last layer, with its biases."""


def late_federation():
    """Two groups; the clients 4 and 9 come in round 1."""
    made = toy.federation("label_permutation", groups=2, clients=CLIENTS, copies=False, seed=SEED)
    arrive = np.zeros(CLIENTS, np.int32)
    arrive[[4, 9]] = 1
    return toy.replace(made, arrive=arrive)


@pytest.mark.parametrize(
    "options",
    [
        {},
        rarely({"linkage": "complete"}),
        rarely({"linkage": "single"}),
        rarely({"threshold": 0.3, "unit": "absolute"}),
        rarely({"average": "uniform"}),
    ],
)
def test_fedclust_follows_the_plain_program(options):
    made, net = late_federation(), plain.Net(6, 4, 7)
    clients, start = plain.Clients(made), toy.first_model_of(MODEL, SEED)
    out = play.rounds(
        "fedclust",
        made,
        ROUNDS,
        None,
        SEED,
        model=MODEL,
        work={"epochs": 2, "batch": BATCH},
        pretrain_epochs=EPOCHS,
        **options,
    )

    here, late = np.setdiff1d(np.arange(CLIENTS), [4, 9]), [4, 9]
    points = reference.last_layers(net, clients, start, SEED, LR, BATCH, EPOCHS)
    cut = {"threshold": 0.7} | {k: v for k, v in options.items() if k != "average"}
    labels = np.full(CLIENTS, -1)
    labels[here] = found = reference.clusters(points[here], **cut)
    assert 1 < found.max() + 1 < len(here)
    np.testing.assert_array_equal(out.labels(1), labels)
    labels[late] = [reference.joined(points[i], points[here], found) for i in late]
    np.testing.assert_array_equal(out.labels(2), labels)

    models = once.inside(
        net,
        clients,
        dict.fromkeys(range(found.max() + 1), start),
        labels,
        SEED,
        ROUNDS,
        LR,
        BATCH,
        2,
        lambda t: here if t == 0 else np.arange(CLIENTS),
        options.get("average", "samples"),
    )
    for t in range(ROUNDS + 1):
        for k, wanted in models[t].items():
            np.testing.assert_allclose(out.models(t)[k], wanted, atol=1e-5)

    sent = [info.traffic for info in out.infos]
    # Eight clients train before round 0, and two when they come; each gets w_0 for it
    assert [int(each.floats_up) for each in sent] == [8 * NUMBERS, 2 * NUMBERS, 0]
    assert [int(each.vectors_up) for each in sent] == [8, 10, 10]
    assert [int(each.vectors_down) for each in sent] == [8 + 8, 10 + 2, 10]


def test_broken_clients_are_in_the_first_cluster_and_decide_nothing():
    """A client that is there, and one that comes late. All weights of the one layer are sent, which
    is a whole update."""
    federation = toy.broken(late_federation(), 1, 9)
    out = play.rounds("fedclust", federation, 2, None, SEED)
    found = [out.labels(t) for t in (1, 2)]
    assert found[0][9] == -1 and found[0][1] == found[1][1] == found[1][9] == 0
    group = np.asarray(federation.group)
    usable = np.setdiff1d(np.arange(CLIENTS), [1, 9])
    assert len({(group[i], found[1][i]) for i in usable}) == found[1].max() + 1 == 2
    assert np.isfinite(out.models()).all()
    sent = [info.traffic for info in out.infos]
    assert [int(each.floats_up) for each in sent] == [0, 0]
    assert [int(each.vectors_up) for each in sent] == [8 + 8, 10 + 2]


def test_a_part_of_the_updates_is_asked_for_before_the_first_round_only():
    """Between rounds it would be billed as whole updates."""

    class Later(FLHC):
        def regroup(self, ask, state, round):
            ask.updates(ask.first_model(), ask.present_clients(), part=np.array([0, 2]))
            return state

    method = ClusteredMethod("later", Later(), toy.model(), toy.solver(toy.model()))
    state = State(jnp.zeros((32, toy.model().size)), jnp.zeros(CLIENTS, jnp.int32))
    with pytest.raises(ValueError, match="only begin can"):
        method.regroup(keys.root(0), state, late_federation(), {"lr": jnp.float32(0.1)}, 1)
