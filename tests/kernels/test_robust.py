import numpy as np
import pytest

from cfljax.kernels.mix import Rule, mix_updates
from cfljax.kernels.robust import STATISTICS, robust_sum
from tests.kernels.compiled import compiled, mix_models

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(21, 5)).astype(np.float32)
LABELS = np.array([0] * 11 + [1] * 8 + [2] + [3])
MIX = ((np.arange(5)[:, None] == LABELS) * rng.uniform(0.1, 1, 21)).astype(np.float32)
MIX[3] = 0  # nobody; the fifth cluster, too
EVERYBODY = np.ones(21, bool)


def plain(statistic, rows, share):
    n = len(rows)
    if n == 0:
        return np.zeros(rows.shape[1])
    cut = int(np.floor(share * n + 1e-9))
    if statistic == "median":
        return np.median(rows, axis=0)
    if statistic == "trimmed_mean":
        return np.sort(rows, axis=0)[cut : n - cut].mean(axis=0)
    apart = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    near = max(n - cut - 2, 1)
    scores = [np.sort(np.delete(row, i))[:near].sum() for i, row in enumerate(apart)]
    return rows[np.argmin(scores)]


def wanted(statistic, share, mix=MIX, finite=EVERYBODY):
    members = [(mix[k] != 0) & finite for k in range(len(mix))]
    return np.stack(
        [
            mix[k][m].sum() * plain(statistic, ROWS[m].astype(np.float64), share)
            for k, m in enumerate(members)
        ]
    )


@pytest.mark.parametrize(
    ("statistic", "share"),
    [("median", 0.0), ("trimmed_mean", 0.3), ("trimmed_mean", 0.0), ("krum", 0.2)],
)
def test_statistics_are_those_of_numpy(statistic, share):
    finite = EVERYBODY.copy()
    finite[[2, 13]] = False
    rows = np.where(finite[:, None], ROWS, np.nan)
    found = compiled(lambda m, r, f: robust_sum(m, r, f, statistic, share), MIX, rows, finite)
    np.testing.assert_allclose(found, wanted(statistic, share, finite=finite), atol=1e-5)
    assert not found[3].any() and not found[4].any()


def test_a_trim_that_would_leave_nobody_leaves_the_middle():
    for share in (0.5, 0.9):
        found = compiled(
            robust_sum, MIX, ROWS, EVERYBODY, statistic="trimmed_mean", number=np.float32(share)
        )
        np.testing.assert_allclose(found, wanted("median", 0), atol=1e-5)


def test_order_and_padding_change_nothing():
    order = np.random.default_rng(1).permutation(35)
    padded, more = (
        np.pad(ROWS, ((0, 14), (0, 0)), constant_values=np.nan)[order],
        np.pad(MIX, ((0, 0), (0, 14)))[:, order],
    )
    for statistic in STATISTICS:
        found = compiled(
            lambda m, r, f: robust_sum(m, r, f, statistic, 0.2),  # noqa: B023
            more,
            padded,
            np.isfinite(padded).all(axis=1),
        )
        np.testing.assert_allclose(found, wanted(statistic, 0.2), atol=1e-5)


def test_two_members_are_equally_near_and_the_shorter_one_is_taken():
    rows = np.array([[3.0, 0.0], [1.0, 0.0]], np.float32)
    for order in ([0, 1], [1, 0]):
        half = np.full((1, 2), 0.5, np.float32)
        found = compiled(
            robust_sum, half, rows[order], np.ones(2, bool), statistic="krum", number=0.2
        )
        assert found.tolist() == [[1.0, 0.0]]


def test_a_broken_row_counts_as_no_change():
    rows, old = ROWS.copy(), rng.normal(size=(5, 5)).astype(np.float32)
    rows[0] = np.inf
    moved = compiled(mix_updates, MIX, rows, old, rule=Rule("median"))
    np.testing.assert_allclose(
        moved.new - old, wanted("median", 0, finite=LABELS * 0 + np.arange(21) > 0), atol=1e-5
    )
    assert moved.nonfinite == 1 and moved.new[4].tobytes() == old[4].tobytes()
    whole = MIX / np.maximum(MIX.sum(axis=1, keepdims=True), 1e-9)
    both = compiled(mix_models, whole, rows + old[LABELS], old, rule=Rule("median"))
    middle = np.median((rows + old[LABELS])[1:11], axis=0)
    np.testing.assert_allclose(
        both.new[0], (1 - whole[0, 0]) * middle + whole[0, 0] * old[0], atol=1e-5
    )


def test_krum_tells_rows_apart_that_are_nearly_equal():
    """Distances of 1e-4 between rows of length 30, among which one is far away."""
    random = np.random.default_rng(5)
    rows = (random.normal(size=(20, 1, 1000)) + 1e-4 * random.normal(size=(20, 12, 1000))).astype(
        np.float32
    )
    rows[:, 3] += 10
    mix, everybody = np.ones((1, 12), np.float32) / 12, np.ones(12, bool)
    krum = lambda m, r, f: robust_sum(m, r, f, "krum", 0.2)  # noqa: E731
    for each in rows:
        found = compiled(krum, mix, each, everybody)
        np.testing.assert_allclose(found[0], plain("krum", each.astype(np.float64), 0.2), rtol=1e-6)


@pytest.mark.parametrize("statistic", ["median", "trimmed_mean"])
def test_clusters_of_each_size_are_sorted_whole(statistic):
    rows, sizes = rng.normal(size=(70, 3)).astype(np.float32), (5, 8, 9, 16, 17, 32, 33, 64, 65, 70)
    mix = (
        rng.permuted(np.tile(np.arange(70), (len(sizes), 1)), axis=1) < np.array(sizes)[:, None]
    ).astype(np.float32)
    found = compiled(
        lambda m, r, f: robust_sum(m, r, f, statistic, 0.25), mix, rows, np.ones(70, bool)
    )
    wanted = [
        len(members) * plain(statistic, members, 0.25)
        for members in (rows[m > 0].astype(np.float64) for m in mix)
    ]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
