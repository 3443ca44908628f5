"""One-shot K-means against a plain loop over clients, and who comes late."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.errors import SpecError
from tests import play, toy
from tests.methods.once import WORK, agree, federation, weights
from tests.often import rarely
from tests.reference import once, plain


@pytest.mark.parametrize("average", ["samples", rarely("uniform")])
def test_one_shot_agrees_with_a_plain_loop_over_clients(average):
    states, infos, method = play.rounds(
        "one_shot",
        federation(),
        rounds=3,
        participants=6,
        work=WORK,
        clusters=4,
        pretrain_epochs=3,
        average=average,
    )
    local, clients, net = weights(3), plain.Clients(federation()), plain.Net(6, 4)
    labels = once.renamed(once.kmeans_labels(local, 4))
    begin = dict.fromkeys(range(4), toy.start())
    draw = lambda t: plain.cohort(0, t, clients.uid, 6)  # noqa: E731
    history = once.inside(net, clients, begin, labels, 0, 3, 0.1, 5, 2, draw, average)
    agree(states, method, history, labels)
    assert [[int(n) for n in i.traffic] for i in infos] == [
        [6 + 14 * (t == 0)] * 2 + [0, 0] for t in range(3)
    ]


def test_one_shot_late_and_broken_clients_join_the_nearest_centre():
    arrive = np.zeros(14, np.int32)
    arrive[5] = 1
    late = toy.replace(toy.broken(federation(), 2), arrive=jnp.asarray(arrive))
    states, infos, method = play.rounds(
        "one_shot", late, rounds=2, participants=14, work=WORK, clusters=4, pretrain_epochs=3
    )
    labels = [np.asarray(method.models(s)[1]) for s in states]
    there = np.setdiff1d(np.arange(14), [2, 5])
    known = once.renamed(once.kmeans_labels(weights(3)[there], 4))
    centres = once.means(weights(3)[there], known)
    assert labels[1][5] == -1 and labels[2][5] == min(
        centres, key=lambda k: np.linalg.norm(weights(3)[5] - centres[k])
    )
    np.testing.assert_array_equal(labels[2][there], known)
    assert labels[0][2] == 0 and np.isfinite(jax.device_get(states[-1].models)).all()
    assert [int(i.nonfinite) for i in infos] == [1, 1] and int(
        infos[1].traffic.vectors_up
    ) == 14 + 1


def test_given_labels_replace_the_clustering_and_nobody_trains_for_it():
    arrive = np.zeros(14, np.int32)
    arrive[5] = 1
    late = toy.replace(federation(), arrive=jnp.asarray(arrive))
    given = (1, 1, 0, 0, 2, 2, 1, 0, 2, 1, 0, 2, 1, 0)
    states, infos, method = play.rounds(
        "one_shot", late, rounds=2, participants=14, work=WORK, clusters=3, labels=given
    )
    labels = [np.asarray(method.models(s)[1]) for s in states]
    np.testing.assert_array_equal(labels[2], given)
    assert labels[1][5] == -1 and (np.delete(labels[1], 5) == np.delete(given, 5)).all()
    # Nobody has trained for the clustering, nor does client 5, who comes in the second round
    assert [int(i.traffic.vectors_up) for i in infos] == [13, 14]
    for wrong, says in ((given[1:], "13 clusters, and there are 14"), ((3, *given[1:]), "= 4")):
        with pytest.raises(SpecError, match=says):
            play.rounds("one_shot", late, 1, 14, work=WORK, clusters=3, labels=wrong)


def test_too_many_clusters_is_a_one_line_error():
    with pytest.raises(SpecError, match="clusters = 15, but only 14 clients"):
        play.rounds("one_shot", federation(), rounds=0, work=WORK, clusters=15)
