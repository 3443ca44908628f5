"""Who is in which cluster, of several methods beside each other: one order of clients, matching
colours, and how well the clusterings agree."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from cfljax.report import figures
from cfljax.report.agreement import MAX_COMPARED_RUNS
from cfljax.report.page_data import page_data
from cfljax.report.report_data import read
from cfljax.store import Store
from tests.report import synthetic

# The same three clusters under other numbers, by two clients another clustering, and a rest
CLUSTERS = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
NEAR = np.array([7, 7, 7, 7, 3, 3, 3, 3, 3, 5, 5, 7])
SAME = np.array([2, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1])


def add(store, method, seed, labels, group=None, level=0.8, data=None):
    """Add a run whose clients are in these clusters from round 1 on."""
    arrays = synthetic.arrays_of(seed, level, evaluations=3, known_groups=False)
    arrays["labels"] = np.stack([np.full(12, -1), labels, labels]).astype(np.int16)
    if group is not None:
        arrays["group"] = group.astype(np.int32)
    name = f"{method}-{seed}"
    record = synthetic.record_of(name, seed, arrays, method=method)
    record["config"]["data"] |= data or {}
    store.write(name, record, arrays)


def drawn_assignments(folder):
    data = read([folder])
    found = {c.method: p.assignment for c, p in zip(data.drawn, data.pictures, strict=True)}
    return {method: each for method, each in found.items() if each is not None}


def test_without_true_groups_all_methods_have_the_order_and_colours_of_one(tmp_path):
    store = Store(tmp_path)
    add(store, "fesem", 0, NEAR, level=0.9)
    add(store, "ifca", 0, CLUSTERS)
    add(store, "one_shot", 0, SAME, level=0.7)
    add(store, "fedavg", 0, np.zeros(12, int), level=0.95)
    found = drawn_assignments(tmp_path)
    assert list(found) == ["fesem", "ifca", "one_shot"]
    for each in found.values():
        assert each.strip == "cluster of IFCA at the end"
        assert each.groups.tolist() == CLUSTERS.tolist()
        assert (each.colours[:, 0] == -1).all()
    # Numbers of clusters differ, colours do not
    assert found["ifca"].colours[:, -1].tolist() == CLUSTERS.tolist()
    assert found["one_shot"].colours[:, -1].tolist() == CLUSTERS.tolist()
    moved = np.flatnonzero(found["fesem"].colours[:, -1] != CLUSTERS)
    assert moved.tolist() == [4, 11]
    (one, *_) = page_data(read([tmp_path]))["pictures"]
    assert one["strip"] == "cluster of IFCA at the end"


def test_the_largest_cluster_is_the_first(tmp_path):
    store = Store(tmp_path)
    labels = np.array([4, 4, 1, 1, 1, 1, 1, 1, 9, 9, 9, -1])
    add(store, "ifca", 0, labels)
    (found,) = drawn_assignments(tmp_path).values()
    assert found.groups.tolist() == [0] * 6 + [1] * 3 + [2] * 2 + [-1]


def test_true_groups_come_first_and_within_them_one_method(tmp_path):
    store = Store(tmp_path)
    group = np.arange(12) % 2
    add(store, "ifca", 0, CLUSTERS, group)
    add(store, "fesem", 0, NEAR, group, level=0.9)
    add(store, "one_shot", 0, SAME, group, level=0.7)
    found = drawn_assignments(tmp_path)
    order = np.lexsort((CLUSTERS, group))
    for each in found.values():
        assert each.strip == "true group" and each.groups.tolist() == group[order].tolist()
    for method, labels in (("ifca", CLUSTERS), ("one_shot", SAME)):
        colours = found[method].colours[:, -1]
        for cluster in range(3):
            assert len(set(colours[labels[order] == cluster])) == 1
    np.testing.assert_array_equal(found["ifca"].colours, found["one_shot"].colours)


def test_seeds_with_partitions_of_their_own_are_not_aligned(tmp_path):
    """The first run of IFCA failed: its second one has other clients in the places of FeSEM's."""
    store = Store(tmp_path)
    own = {"seed": "run"}
    add(store, "ifca", 1, SAME, data=own)
    add(store, "fesem", 0, NEAR, data=own)
    strips = {method: each.strip for method, each in drawn_assignments(tmp_path).items()}
    assert strips == {
        "ifca": "cluster of IFCA at the end",
        "fesem": "cluster of FeSEM at the end",
    }


def test_agreement_is_the_mean_over_seeds_and_on_the_diagonal_between_seeds(tmp_path):
    store = Store(tmp_path)
    random = np.random.default_rng(0)
    labels = {method: [random.integers(0, 3, 12) for _ in range(3)] for method in ("ifca", "fesem")}
    for method, each in labels.items():
        for seed, of_run in enumerate(each):
            add(store, method, seed, of_run, level=0.8 if method == "ifca" else 0.5)
    for seed in range(3):
        add(store, "fedavg", seed, np.zeros(12, int), level=0.3)
        add(store, "local", seed, np.arange(12), level=0.3)
    data = read([tmp_path])
    (found,) = data.agreements
    assert [data.drawn[i].method for i in found.members] == ["ifca", "fesem"]
    between = [adjusted_rand_score(*pair) for pair in zip(*labels.values(), strict=True)]
    assert found.table[0, 1] == found.table[1, 0] == pytest.approx(np.mean(between))
    a, b, c = labels["ifca"]
    seeds = [adjusted_rand_score(*pair) for pair in ((a, b), (a, c), (b, c))]
    assert found.table[0, 0] == pytest.approx(np.mean(seeds))
    (shown,) = page_data(data)["agreements"]
    np.testing.assert_allclose(shown["table"], found.table, rtol=1e-4)
    figure = figures.FIGURES["agreement"](data)
    written = {text.get_text() for text in figure.axes[0].texts}
    assert f"{found.table[0, 1]:.2f}" in written
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["IFCA 1", "FeSEM 2"]


def test_seeds_that_draw_their_partition_are_compared_only_with_the_same_seed(tmp_path):
    store = Store(tmp_path)
    for seed in range(2):
        add(store, "ifca", seed, CLUSTERS, data={"seed": "run"})
        add(store, "one_shot", seed, SAME, data={"seed": "run"}, level=0.4)
    (found,) = read([tmp_path]).agreements
    assert np.isnan(np.diag(found.table)).all() and found.table[0, 1] == 1
    assert page_data(read([tmp_path]))["agreements"][0]["table"][0][0] is None


def test_of_many_runs_the_first_are_compared_and_without_clusters_nothing_is(tmp_path):
    store = Store(tmp_path / "many")
    for seed in range(MAX_COMPARED_RUNS + 2):
        add(store, "ifca", seed, CLUSTERS if seed < MAX_COMPARED_RUNS else NEAR)
    store.write_plan({"units": [f"ifca-{seed}" for seed in range(MAX_COMPARED_RUNS + 2)]})
    (found,) = read([tmp_path / "many"]).agreements
    assert found.table.tolist() == [[1.0]]
    add(Store(tmp_path / "none"), "fedavg", 0, np.zeros(12, int))
    data = read([tmp_path / "none"])
    assert data.agreements == [] and figures.FIGURES["agreement"](data) is None
