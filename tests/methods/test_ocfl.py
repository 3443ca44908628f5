"""OCFL against a plain loop over clients, its rules for noise and merging, and who comes late."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.round.state import ROUND_UP
from tests import play, toy
from tests.methods.once import WORK, agree, federation, weights
from tests.often import rarely
from tests.reference import once, plain

ISOLATE = {"noise": "isolate", "merge_to": 3, "average": "uniform"}


@pytest.mark.parametrize("options", [
    rarely({"clients_per_cluster": 2}), {"clients_per_cluster": 3, "metric": "cosine", "xi": 0.5, **ISOLATE},
    rarely({"clients_per_cluster": 2, "xi": 0.4, "min_samples": 3}),
], ids=("nearest", "isolate-merge", "three-neighbours"))  # fmt: skip
def test_ocfl_agrees_with_a_plain_loop_over_clients(options):
    states, infos, method = play.rounds(
        "ocfl", federation(), rounds=3, participants=1, work=WORK, **options
    )
    local, clients, net = weights(1), plain.Clients(federation()), plain.Net(6, 4)
    how = {
        "min_samples": 2,
        "xi": 0.2,
        "metric": "euclidean",
        "noise": "nearest",
        "merge_to": None,
    } | options
    raw, settled, labels = once.optics_labels(
        local, *(how[k] for k in ("min_samples", "xi", "metric", "noise", "merge_to"))
    )
    labels = once.renamed(labels)
    assert (raw < 0).any() and labels.max() >= 1, "the toy has noise and clusters"
    begin = dict.fromkeys(range(labels.max() + 1), toy.start())
    draw = lambda t: once.per_cluster(0, t, clients.uid, labels, options["clients_per_cluster"])  # noqa: E731
    history = once.inside(
        net, clients, begin, labels, 0, 3, 0.1, 5, 2, draw, options.get("average", "samples")
    )
    agree(states, method, history, labels)
    # one model down and one update up per participant, and in round 0 per client of the federation
    assert [[int(n) for n in i.traffic] for i in infos] == [
        [len(draw(t)) + 14 * (t == 0)] * 2 + [0, 0] for t in range(3)
    ]
    kept = method.extras(states[0])
    assert int(kept["noise"]) == (raw < 0).sum() and int(kept["found"]) == settled.max() + 1
    scored = np.asarray(method.score(states[-1], federation(), {}))
    models = np.asarray(method.models(states[-1])[0])
    np.testing.assert_array_equal(scored, labels)
    assert len(models) == ROUND_UP


def test_ocfl_merges_by_updates_where_asked():
    """Far from zero all weights are much alike, so that only their updates say which clusters
    are."""
    options = {"metric": "cosine", "xi": 0.5, **ISOLATE}
    found = {
        by: play.rounds("ocfl", federation(), rounds=0, work=WORK, merge_by=by, **options).labels()
        for by in ("weights", "updates")
    }
    for by, start in (("weights", 0.0), ("updates", toy.start())):
        wanted = once.optics_labels(weights(1), 2, 0.5, "cosine", "isolate", 3, start)[2]
        np.testing.assert_array_equal(found[by], once.renamed(wanted))
    assert not np.array_equal(found["weights"], found["updates"])


def test_ari_is_taken_before_merging():
    options = {"clients_per_cluster": 3, "metric": "cosine", "xi": 0.5, **ISOLATE}
    states, _, method = play.rounds("ocfl", federation(), rounds=0, work=WORK, **options)
    from sklearn.metrics import adjusted_rand_score

    settled = once.optics_labels(weights(1), 2, 0.5, "cosine", "isolate", None)[1]
    assert float(method.extras(states[0])["ari"]) == pytest.approx(
        adjusted_rand_score(federation().group, settled), abs=1e-6
    )


def test_ocfl_draws_fewer_where_clients_drop_out_and_waits_for_late_ones():
    arrive = np.zeros(14, np.int32)
    arrive[[0, 3]] = 1
    late = toy.replace(federation(), arrive=jnp.asarray(arrive))
    states, infos, method = play.rounds(
        "ocfl", late, rounds=2, work=WORK, hyper={"dropout": 1.0}, clients_per_cluster=14
    )
    labels = [np.asarray(method.models(s)[1]) for s in states]
    assert (
        (labels[0][[0, 3]] == -1).all()
        and (labels[1][[0, 3]] == -1).all()
        and (labels[2][[0, 3]] >= 0).all()
    )
    assert [int(i.diag["participants"]) for i in infos] == [0, 0]
    assert [int(i.traffic.vectors_up) for i in infos] == [12, 2]
    np.testing.assert_array_equal(states[2].models, states[0].models)
    there = arrive == 0
    _, settled, _ = once.optics_labels(weights(1)[there], 2, 0.2, "euclidean", "nearest", None)
    centres = once.means(weights(1)[there], once.renamed(settled))
    nearest = [max(centres, key=lambda k: once.cosine(weights(1)[i], centres[k])) for i in (0, 3)]
    assert labels[2][[0, 3]].tolist() == nearest
    np.testing.assert_array_equal(labels[2][there], once.renamed(settled))


def test_ocfl_without_any_cluster_warns_and_is_one():
    with pytest.warns(UserWarning, match="no cluster"):
        states, _, method = play.rounds(
            "ocfl", federation(), rounds=0, work=WORK, lr=float("nan"), clients_per_cluster=2
        )
    assert set(np.asarray(method.models(states[0])[1]).tolist()) == {0}
    assert np.isfinite(states[0].models).all()
