"""Clusterings by sketches of the updates are those by the updates, and hold no full update of
everybody."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.cosine import SKETCH_SIZE
from cfljax.methods import METHODS, ccs_rfedavg
from cfljax.registry.options import list_traced
from cfljax.round import before
from tests import play, toy
from tests.often import rarely

MODEL = toy.model(hidden=700)  # 7,704 parameters: more than a sketch has numbers
NUMBERS = {"lr": jnp.float32(0.1)}
SPLIT = {"min_rounds": 1, "eps1": 9.0, "eps2": 0.0, "gamma_max": 0.0}
TARGET = {"theta": 0.1, "l_star": 0.05}


@pytest.fixture(scope="module")
def federation():
    return toy.federation("label_permutation", clients=12, groups=3, samples_per_client=30)


def prepared(name, federation, **options):
    config, _, method, *_ = play.prepared(name, {"epochs": 2}, MODEL, **options)
    hyper = {f: jnp.float32(value) for f, value in list_traced(config).items()} | NUMBERS
    return jax.tree.map(
        np.asarray, method.setup(keys.root(0), federation, hyper | {"participants": 4})
    )


@pytest.mark.parametrize("name, options", [
    ("fedgroup", {"clusters": 3, "alpha": 3}), rarely("fedgroup", {"clusters": 3, "alpha": 3, "cold_start": "madc"}), rarely("ocfl", {}),
    rarely("one_shot", {"clusters": 3, "pretrain_epochs": 2}),
])  # fmt: skip
def test_the_same_clusters_and_the_same_models_to_start_from(
    name, options, federation, monkeypatch
):
    exact, widths, original = prepared(name, federation, **options), [], before.sketch_on_host_if
    monkeypatch.setattr(
        before, "sketch_on_host_if", lambda *a: widths.append((b := original(*a)).shape[1]) or b
    )
    short = prepared(name, federation, similarity="sketch", **options)
    assert set(widths) == {SKETCH_SIZE}
    np.testing.assert_array_equal(short["labels"], exact["labels"])
    np.testing.assert_array_equal(short["labels_if_joining"], exact["labels_if_joining"])
    a, b = (
        found["memory"].directions if name == "fedgroup" else found["models"]
        for found in (short, exact)
    )
    np.testing.assert_allclose(a, b, atol=1e-6)


def played(name, federation, **options):
    """Three rounds in which all take part, in blocks of four."""
    return play.rounds(
        name, federation, 3, None, work={"epochs": 2, "stream": 4}, model=MODEL, **options
    )


def error_of(matrix, other):
    """Root of the mean squared difference between two clients' entries."""
    apart = ~np.eye(len(matrix), dtype=bool)
    return float(np.sqrt(np.mean((np.asarray(matrix) - np.asarray(other))[apart] ** 2)))


def test_sattler_splits_by_sketches_as_by_updates_and_the_error_is_that_of_sketches(federation):
    exact, short = (
        played("cfl_sattler", federation, **SPLIT, similarity=how) for how in ("exact", "sketch")
    )
    for a, b in zip(exact.states, short.states, strict=True):
        np.testing.assert_array_equal(a.labels, b.labels)
        np.testing.assert_allclose(a.memory.norms, b.memory.norms, rtol=1e-5)
    assert exact.states[-1].active.sum() > 2
    np.testing.assert_allclose(exact.models(), short.models(), atol=1e-5)
    assert (
        0
        < error_of(exact.states[1].memory.similarity, short.states[1].memory.similarity)
        < 1 / np.sqrt(SKETCH_SIZE)
    )


@pytest.mark.parametrize(("name", "options"), [
    rarely("cfl_gp", {"clusters": 3, "period": 1}), rarely("ocfl_zuziak", {"max_clusters": 12}), rarely("sr_fca", {"pretrain_epochs": 2}),
])  # fmt: skip
def test_recent_methods_find_the_same_clusters_by_sketches(name, options, federation):
    exact, short = (
        played(name, federation, **options, similarity=how) for how in ("exact", "sketch")
    )
    np.testing.assert_array_equal(exact.labels(), short.labels())
    np.testing.assert_allclose(exact.models(), short.models(), atol=1e-5)
    assert len(set(exact.labels())) > 1
    if name == "ocfl_zuziak":
        assert (
            0
            < error_of(exact.states[1].memory[0], short.states[1].memory[0])
            < 1 / np.sqrt(SKETCH_SIZE)
        )
    else:
        compared = [
            each.states[-1].memory[1] if name == "sr_fca" else each.states[-1].memory
            for each in (exact, short)
        ]
        assert [vectors.shape[1] for vectors in compared] == [MODEL.size, SKETCH_SIZE]


@pytest.mark.parametrize("local", [rarely("gradient"), rarely("update")])
def test_ccs_finds_the_same_clusters_by_sketches_and_takes_the_same_steps(
    local, federation, monkeypatch
):
    seen, cosines = [], ccs_rfedavg.cosine_matrix

    def record(*a, **k):
        return (
            m := cosines(*a, **k),
            jax.debug.callback(lambda m: seen.append(np.asarray(m)), m),
        )[0]

    monkeypatch.setattr(ccs_rfedavg, "cosine_matrix", record)
    exact, short = (
        played("ccs_rfedavg", federation, **TARGET, local=local, similarity=how)
        for how in ("exact", "sketch")
    )
    for a, b in zip(exact.infos, short.infos, strict=True):
        np.testing.assert_array_equal(a.diag["participant_labels"], b.diag["participant_labels"])
        assert float(a.train_loss) == pytest.approx(float(b.train_loss), abs=1e-5)
        assert [int(v) for v in a.traffic] == [int(v) for v in b.traffic]
    assert exact.diag("clusters", 0) > 1
    np.testing.assert_allclose(exact.models(), short.models(), atol=1e-5)
    jax.effects_barrier()
    assert len(seen) == 6 and 0 < error_of(seen[0], seen[3]) < 1 / np.sqrt(SKETCH_SIZE)


def test_sketches_keep_no_city_block_distances():
    with pytest.raises(SpecError, match='similarity = "sketch".*"l2"'):
        METHODS.check("fl_hc", {"similarity": "sketch"}, "method.fl_hc")
    METHODS.check("fl_hc", {"similarity": "sketch", "metric": "cosine"}, "method.fl_hc")
