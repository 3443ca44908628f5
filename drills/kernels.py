"""Figure 17, and the worst errors of float32: kernels against scikit-learn, scipy and numpy in float64."""

from __future__ import annotations

import sys
import warnings

import numpy as np

from drills import common
from drills.common import Figure, Tally
from tests.kernels.compiled import compiled

FIGURE = Figure(
    "kernels",
    "17",
    "kernels against scikit-learn, scipy, numpy: random, zero vectors, duplicates, one client, ties",
    "labels exact, reals within 1e-5, Q1 within 1e-6, never NaN",
    500,
)
SHAPES = ((1, 7), (2, 40), (9, 5), (16, 300))
REALS = 1e-5
Q1 = 1e-6
Rng = np.random.Generator


def vectors(rng: Rng, least: int = 1) -> np.ndarray:
    """f32[n, d] rows, some of them zero, twice there, tiny, huge or in the same direction."""
    n, d = SHAPES[rng.integers(len(SHAPES))]
    x = rng.normal(size=(max(n, least), d)).astype(np.float32)
    for row in range(len(x)):
        what = rng.integers(12)
        if what == 0:
            x[row] = 0
        elif what == 1:
            x[row] = x[rng.integers(len(x))]
        elif what == 2:
            x[row] = x[rng.integers(len(x))] * np.float32(rng.choice([-1, 3]))
        elif what == 3:
            x[row] *= np.float32(10.0 ** rng.integers(-20, 17))
    return x


def _reals(tally: Tally, name: str, found: np.ndarray, wanted: np.ndarray, scale: float = 1.0) -> list[str]:
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if not np.isfinite(found).all():
        return [f"{name}: not finite"]
    error = float(np.max(np.abs(found - wanted), initial=0) / scale)
    tally.most(f"{name}: error", error)
    return [] if error <= REALS else [f"{name}: error {error:.2g}"]


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1 in float64, zero rows as they are."""
    x = x.astype(np.float64)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, length, where=length > 0, out=np.zeros_like(x))


def cosine(tally: Tally, rng: Rng) -> list[str]:
    """cosine_matrix against scikit-learn."""
    from sklearn.metrics.pairwise import cosine_similarity

    from cfljax.kernels.cosine import cosine_matrix

    x = vectors(rng)
    wanted = cosine_similarity(unit(x))
    np.fill_diagonal(wanted, 1)
    return _reals(tally, "cosine", compiled(cosine_matrix, x), wanted)


def cover(tally: Tally, rng: Rng) -> list[str]:
    """The greedy cover against a plain program, with ties in plenty."""
    from cfljax.kernels.cover import cover as kernel
    from tests.kernels.test_cosine_cover import plain_cover

    n = int(rng.choice([1, 2, 9, 16]))
    similarity = np.round(rng.uniform(-1, 1, (n, n)), 1).astype(np.float32)
    similarity = np.maximum(similarity, similarity.T)
    threshold, mask = np.float32(rng.uniform(-0.2, 1)), rng.random(n) < 0.8
    found, clusters = compiled(kernel, similarity, threshold, mask)
    labels, number = plain_cover(similarity, threshold, mask)
    return [] if np.array_equal(found, labels) and clusters == number else ["cover: other labels"]


def madc(tally: Tally, rng: Rng) -> list[str]:
    """Eq. 7 against a plain loop."""
    from cfljax.kernels.cosine import madc as kernel
    from tests.kernels.test_spectral import plain_madc

    u = unit(vectors(rng))
    cosines = (u @ u.T).astype(np.float32)
    return _reals(tally, "MADC", compiled(kernel, cosines), plain_madc(cosines.astype(np.float64), range(len(u))))


def directions(tally: Tally, rng: Rng) -> list[str]:
    """Singular values and vectors against numpy's SVD; vectors are compared where the gap is wide enough to define them."""
    from cfljax.kernels.spectral import leading_directions

    n, d = SHAPES[1 + rng.integers(len(SHAPES) - 1)]
    rank = min(n, d)
    u, v = (np.linalg.qr(rng.normal(size=(side, rank)))[0] for side in (n, d))
    x = ((u * rng.uniform(0.3, 0.7) ** np.arange(rank)) @ v.T).astype(np.float32)
    if n > 2:
        x[rng.integers(n)] = x[rng.integers(n)] * np.float32(rng.integers(0, 2))
    rows, found = compiled(leading_directions, x, m=2)
    _, values, exact = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    problems = _reals(tally, "singular values", found[: len(values)], values[:2], values[0])
    clear = [k for k in range(min(2, len(values))) if values[k] - (values[k + 1] if k + 1 < len(values) else 0) > 0.1 * values[0]]
    along = np.abs(np.sum(np.asarray(rows, np.float64)[clear] * exact[clear], axis=1))
    return problems + _reals(tally, "singular vectors", along, np.ones(len(clear)))


def angles(tally: Tally, rng: Rng) -> list[str]:
    """The sum of the principal angles against scipy, relative to 90 degrees."""
    from scipy.linalg import subspace_angles

    from cfljax.methods.pacfl import angles

    base = np.linalg.qr(rng.normal(size=(40, 3)))[0]
    other = np.linalg.qr(base + 10.0 ** rng.uniform(-6, 1.5) * rng.normal(size=(40, 3)))[0]
    if rng.random() < 0.1:
        other = base
    found = angles(np.stack([base.T, other.T]), "sum")[0, 1]
    return _reals(tally, "principal angles", found, np.degrees(subspace_angles(base, other)).sum(), 90.0)


def kmeans(tally: Tally, rng: Rng) -> list[str]:
    """Separated blobs against scikit-learn: the same partition, the same inertia."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    from cfljax import keys
    from cfljax.kernels.kmeans import kmeans as kernel

    n, d = ((16, 300), (40, 6))[rng.integers(2)]
    middles = 5 * rng.normal(size=(3, d))
    points = (middles[rng.permutation(np.arange(n) % 3)] + 0.05 * rng.normal(size=(n, d))).astype(np.float32)
    points[1] = points[0]
    out = compiled(kernel, keys.root(int(rng.integers(1000))), points, clusters=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = KMeans(3, n_init=10, random_state=0).fit(points.astype(np.float64))
    problems = [] if adjusted_rand_score(other.labels_, out.labels) == 1 else ["K-means: other labels"]
    spread = ((points - points.mean(0)) ** 2).sum()
    return problems + _reals(tally, "K-means: inertia over spread", out.inertia, other.inertia_, float(spread))


def nearest(tally: Tally, rng: Rng) -> list[str]:
    """argmin of distances against float64, where the margin exceeds 1e-5; ties go to the lowest."""
    from cfljax.kernels.choose import nearest as kernel

    x = vectors(rng, 2)
    x = np.where(np.abs(x) > 1e6, 1, x).astype(np.float32)
    centres = x[rng.integers(0, len(x), 4)] + np.float32(0.1) * rng.normal(size=(4, x.shape[1])).astype(np.float32)
    centres[3] = centres[1]
    wide = ((x[:, None].astype(np.float64) - centres[None]) ** 2).sum(2)
    ranked = np.sort(wide[:, :3], axis=1)
    clear = ranked[:, 1] - ranked[:, 0] > 1e-5 * ranked[:, 1]
    found = compiled(kernel, x, centres)
    return [] if np.array_equal(found[clear], wide.argmin(1)[clear]) else ["nearest: other labels"]


def least(tally: Tally, rng: Rng) -> list[str]:
    """argmin with ties to the lowest; NaN is never chosen while there is something else."""
    from cfljax.kernels.choose import least_loss

    losses = rng.integers(0, 4, (int(rng.choice([1, 4])), 9)).astype(np.float32)
    losses[rng.random(losses.shape) < 0.1] = np.nan
    wanted = np.where(np.isnan(losses), np.inf, losses).argmin(0)
    return [] if np.array_equal(compiled(least_loss, losses), wanted) else ["least loss: other labels"]


def q1(tally: Tally, rng: Rng) -> list[str]:
    """The balance of classes against nnls in float64."""
    from cfljax.kernels.simplex import balance
    from tests.kernels.test_simplex import exact, objective

    clusters = int(rng.choice([1, 6, 12]))
    shares = rng.dirichlet([float(rng.choice([0.01, 0.1, 1.0]))] * 10, clusters).astype(np.float32)
    shares[rng.integers(clusters)] = shares[rng.integers(clusters)]
    active = rng.random(clusters) < 0.7
    active[rng.integers(clusters)] = True
    p = compiled(balance, shares, active)
    if not np.isfinite(p).all() or (p < 0).any() or p[~active].any() or abs(p.sum() - 1) > REALS:
        return ["Q1: no point of the simplex"]
    gap = objective(shares, p) - exact(shares, active)
    tally.most("Q1: above the optimum", gap)
    return [] if gap <= Q1 else [f"Q1: {gap:.2g} above the optimum"]


def mix(tally: Tally, rng: Rng) -> list[str]:
    """Aggregation against a plain product; broken updates touch nobody else, spare rows and columns nothing."""
    from cfljax.kernels.mix import mix_updates

    weights = (rng.random((4, 7)) * (rng.random((4, 7)) < 0.5)).astype(np.float32)
    weights[rng.integers(4)] = 0
    weights /= np.maximum(weights.sum(1, keepdims=True), 1e-9)
    delta, old = rng.normal(size=(7, 30)).astype(np.float32), rng.normal(size=(4, 30)).astype(np.float32)
    broken = rng.integers(7)
    spoilt = rng.random() < 0.5
    clean = delta.copy()
    if spoilt:
        delta[broken, 3] = rng.choice([np.nan, np.inf, -np.inf])
        clean[broken] = 0
    out = compiled(mix_updates, weights, delta, old)
    problems = _reals(tally, "aggregation", out.new, old + weights.astype(np.float64) @ clean)
    wide = compiled(mix_updates, np.pad(weights, ((0, 2), (0, 3))), np.pad(delta, ((0, 3), (0, 0))), np.pad(old, ((0, 2), (0, 0))))
    problems += _reals(tally, "aggregation with spare clusters and participants", wide.new[:4], out.new)
    counted = out.nonfinite == int(spoilt and weights[:, broken].any())
    return problems + ([] if counted else ["aggregation: broken updates miscounted"])


def scores(tally: Tally, rng: Rng) -> list[str]:
    """ARI and NMI against scikit-learn."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    from cfljax.engine.metrics import clustering

    n = int(rng.choice([1, 2, 9, 40]))
    found, true = rng.integers(0, 4, n).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
    if rng.random() < 0.2:
        found[:] = 0
    out = clustering(found, true, clusters=4, groups=3)
    problems = _reals(tally, "ARI", out.ari, adjusted_rand_score(true, found))
    return problems + _reals(tally, "NMI", out.nmi, normalized_mutual_info_score(true, found))


KERNELS = (cosine, cover, madc, directions, angles, kmeans, nearest, least, q1, mix, scores)


def drill(tally: Tally, count: int, seed: int) -> None:
    """Each kernel `count` times, beginning with number `seed`."""
    for at in range(len(KERNELS)):
        number = (at + seed) % len(KERNELS)
        kernel = KERNELS[number]
        rng = np.random.default_rng([seed, number])
        for _ in tally.trials(count):
            tally.check(kernel(tally, rng))
            tally.count(kernel.__name__)


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
