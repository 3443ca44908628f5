"""Kernels at scale: 2,000 clients with 400,000 parameters each, beside scikit-learn and the machine's limit in the same run.

    python -m benchmarks.kernels --json FILE [--small] [--only cosine,edc] [--markdown FILE] [--no-peers]

FILE is a list of {kernel, shape, median_s, floor_s, ratio, sklearn_s, error, peak_rss_mib, before_mib, data_mib, about}. Each
kernel has a process of its own, so that its peak memory, data included, is its own. A floor is the time of the products that
a kernel cannot do without: each takes at least its operations at the machine's measured matrix peak, and at least one
reading of its data.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import best, describe
from benchmarks.measure import write_rows

CLIENTS, PARAMETERS, GROUPS, RANK = 2_000, 400_000, 10, 64
PATIENCE = 20.0
"""A kernel that takes longer than this many seconds is timed once, not three times."""


class Case(NamedTuple):
    """One kernel on one set of arrays."""

    shape: str
    run: Callable[[], Any]
    """Compiles on its first call; returns when the result is there."""
    floor: float
    peer: Callable[[], Any] | None
    error: Callable[[Any, Any], float]
    """(ours, the peer's) -> how far ours is from the truth."""
    about: str
    by_peer: bool = False
    """Whether the error is known only beside the peer's result."""


class Limits(NamedTuple):
    """What the machine can do."""

    flops: float
    read: float
    """Bytes per second."""

    def product(self, n: int, d: int, k: int) -> float:
        """Seconds for f32[n, d] times f32[d, k], the first one read once."""
        return max(2 * n * d * k / self.flops, 4 * n * d / self.read)


def updates(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f32[n, d] in groups, of rank 64, their leading directions f32[10, d], and i64[n] the groups."""
    rng = np.random.default_rng(0)
    rank = min(RANK, d)
    basis = rng.standard_normal((rank, d), np.float32)
    turn = np.linalg.inv(np.linalg.cholesky((basis @ basis.T).astype(np.float64)))
    basis = turn.astype(np.float32) @ basis
    groups = rng.integers(GROUPS, size=n)
    middles = rng.standard_normal((GROUPS, rank))
    weights = middles[groups] + 0.3 * rng.standard_normal((n, rank)) * 0.93 ** np.arange(rank)
    exact = np.linalg.svd(weights, full_matrices=False)[2][:GROUPS]
    return weights.astype(np.float32) @ basis, exact.astype(np.float32) @ basis, groups


def limits(read: np.ndarray) -> Limits:
    """Measured now, in this process."""
    import jax
    import jax.numpy as jnp

    a = np.random.default_rng(0).standard_normal((2000, 2000), np.float32)
    mine, product = jnp.asarray(a), jax.jit(functools.partial(jnp.matmul, precision="highest"))
    fastest = min(best(lambda: a @ a), best(lambda: product(mine, mine).block_until_ready()))
    part = jnp.asarray(read.reshape(-1)[: 1 << 26])
    reading = jax.jit(lambda x: jnp.square(x[: x.size // 1024 * 1024].reshape(-1, 1024)).sum(axis=1))
    return Limits(2 * 2000**3 / fastest, part.nbytes / best(lambda: reading(part).block_until_ready()))


def _done(value: Any) -> Any:
    import jax

    return jax.block_until_ready(value)


def cosine(n: int, d: int) -> Case:
    """Cosine matrix."""
    import jax
    from sklearn.metrics.pairwise import cosine_similarity

    from cfljax.kernels.cosine import cosine_matrix

    x, _, _ = updates(n, d)
    here, at = jax.numpy.asarray(x), limits(x)

    def error(ours: Any, _: Any) -> float:
        some = x[:: max(1, n // 8)].astype(np.float64)
        some /= np.linalg.norm(some, axis=1, keepdims=True)
        return float(np.abs(np.asarray(ours)[:: max(1, n // 8), :: max(1, n // 8)] - some @ some.T).max())

    f = jax.jit(cosine_matrix)
    about = "One product of the data with itself. Blocks of columns are cleaned and scaled on the way into it."
    return Case(f"{n} × {d}", lambda: _done(f(here)), at.product(n, d, n), lambda: cosine_similarity(x), error, about)


def edc(n: int, d: int) -> Case:
    """EDC embedding, m = 10."""
    import jax
    from sklearn.utils.extmath import randomized_svd

    from cfljax.kernels.spectral import edc_embedding

    x, exact, _ = updates(n, d)
    here, at = jax.numpy.asarray(x), limits(x)
    true = np.abs(x @ exact.T) / np.linalg.norm(x, axis=1, keepdims=True)

    def peer() -> np.ndarray:
        rows = randomized_svd(x, GROUPS, random_state=0)[2]
        return (x @ rows.T) / np.linalg.norm(x, axis=1, keepdims=True)

    f = jax.jit(functools.partial(edc_embedding, m=GROUPS, how="randomised"))
    about = (
        "Three products with 32 vectors and one with ten: the time goes into reading the data, for which XLA's matrix product "
        "is not at its best with so few vectors; a sketch, a check and the lengths read them four times more."
    )
    floor = 3 * at.product(n, d, 32) + at.product(n, d, GROUPS)

    def error(ours: Any, _: Any) -> float:
        return float(np.abs(np.abs(ours) - true).max())

    return Case(f"{n} × {d}, m = 10", lambda: _done(f(here)), floor, peer, error, about)


def madc(n: int, d: int) -> Case:  # noqa: ARG001
    """MADC of cosines."""
    import jax
    from sklearn.metrics.pairwise import cosine_similarity, manhattan_distances

    from cfljax.kernels.cosine import madc as kernel

    x, _, _ = updates(n, 256)
    cosines = cosine_similarity(x).astype(np.float32)
    here, at = jax.numpy.asarray(cosines), limits(cosines)

    def error(ours: Any, peer: Any) -> float:
        own = np.diagonal(cosines)
        itself = np.abs(own[:, None] - cosines.T) + np.abs(cosines - own[None, :])
        return float(np.abs(np.asarray(ours) - (peer - itself) / (n - 2) * (1 - np.eye(n))).max())

    f = jax.jit(kernel)
    about = (
        "Sums of absolute differences: no product can compute them, and n³ of them take three vector operations each where a "
        "product has one. The peer computes the same sums, and none of the rest."
    )
    return Case(f"{n} × {n}", lambda: _done(f(here)), at.product(n, n, n), lambda: manhattan_distances(cosines), error, about, True)


def ccs(n: int, d: int) -> Case:
    """CCS clusters of updates: cosine matrix and greedy cover."""
    import jax

    from cfljax.kernels.cosine import cosine_matrix
    from cfljax.kernels.cover import cover

    x, _, groups = updates(n, d)
    here, at = jax.numpy.asarray(x), limits(x)
    f = jax.jit(lambda v: cover(cosine_matrix(v), 0.5).labels)

    def error(ours: Any, _: Any) -> float:
        from sklearn.metrics import adjusted_rand_score

        return 1.0 - float(adjusted_rand_score(groups, np.asarray(ours)))

    about = "The cosine matrix, then a pass over n × n bits per cluster. scikit-learn has no such clustering; error: 1 − ARI."
    return Case(f"{n} × {d}", lambda: _done(f(here)), at.product(n, d, n), None, error, about)


def kmeans(n: int, d: int) -> Case:
    """K-means, 10 clusters, 10 restarts."""
    import jax
    from sklearn.cluster import KMeans

    from cfljax import keys
    from cfljax.kernels.kmeans import kmeans as kernel

    x, _, _ = updates(n, d)
    here, at = jax.numpy.asarray(x), limits(x)
    f = jax.jit(lambda key, v: kernel(key, v, GROUPS).inertia)

    def error(ours: Any, peer: Any) -> float:
        return float(ours) / peer - 1.0

    def peer() -> float:
        return float(KMeans(GROUPS, n_init=1, random_state=0).fit(x).inertia_)

    about = (
        "The products of the points with each other, once: all ten restarts then work on n × n numbers. scikit-learn's time is "
        "that of one restart, not ten. Error: how much larger our sum of squares is than its (negative: smaller)."
    )
    return Case(f"{n} × {d}, K = 10", lambda: _done(f(keys.root(0), here)), at.product(n, d, n), peer, error, about, True)


CASES = {"cosine": cosine, "edc": edc, "madc": madc, "ccs": ccs, "kmeans": kmeans}


def measure(name: str, n: int, d: int, peers: bool = True) -> dict[str, Any]:
    """One row. Without peers, what is known only beside them is null."""
    from benchmarks.inside import peak_rss_mib

    case = CASES[name](n, d)
    before = peak_rss_mib()
    ours = case.run()
    seconds = [_clock(case.run)[0]]
    while len(seconds) < 3 and seconds[0] < PATIENCE:
        seconds.append(_clock(case.run)[0])
    peak = peak_rss_mib()
    peer_s, peer = _clock(case.peer) if case.peer and peers else (None, None)
    error = None if case.by_peer and not peers else case.error(ours, peer)
    median = statistics.median(seconds)
    return {
        "kernel": (CASES[name].__doc__ or name).rstrip("."), "shape": case.shape, "median_s": median, "floor_s": case.floor,
        "ratio": median / case.floor, "sklearn_s": peer_s, "error": error, "peak_rss_mib": peak,
        "before_mib": before, "data_mib": 4 * n * (n if name == "madc" else d) / 2**20, "about": case.about, "machine": describe(),
    }  # fmt: skip


def _clock(f: Callable[[], Any]) -> tuple[float, Any]:
    at = time.perf_counter()
    out = f()
    return time.perf_counter() - at, out


def markdown(rows: list[dict[str, Any]], command: str) -> str:
    """The table, and what there is to say about each row."""
    about = rows[0]["machine"]
    lines = ["# Kernels at scale", "", f"`{command}`, on {about['cpu']}, {about['cores']} cores.", ""]
    lines += ["| kernel | shape | seconds | floor | times the floor | scikit-learn | error | peak memory, MiB (before; data) |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for r in rows:
        peer = "–" if r["sklearn_s"] is None else f"{r['sklearn_s']:.2f}"
        memory = f"{r['peak_rss_mib']:.0f} ({r['before_mib']:.0f}; {r['data_mib']:.0f})"
        timed = f"{r['median_s']:.2f} | {r['floor_s']:.2f} | {r['ratio']:.1f}"
        lines.append(f"| {r['kernel']} | {r['shape']} | {timed} | {peer} | {_error(r)} | {memory} |")
    lines += ["", "The floor: each product takes at least its operations at the measured matrix peak, and one reading of its data."]
    return "\n".join([*lines, "", *(f"- **{r['kernel']}.** {r['about']}" for r in rows)]) + "\n"


def _error(r: dict[str, Any]) -> str:
    return "–" if r["error"] is None else f"{r['error']:.1e}"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="the table and its explanations")
    parser.add_argument("--small", action="store_true", help="300 × 20,000")
    parser.add_argument("--only", help=f"some of {','.join(CASES)}")
    parser.add_argument("--no-peers", action="store_true", help="without scikit-learn, which computes on the host")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    n, d = (300, 20_000) if given.small else (CLIENTS, PARAMETERS)
    if given.child:
        given.json.write_text(json.dumps(measure(given.child, n, d, not given.no_peers)))
        return
    names = given.only.split(",") if given.only else list(CASES)
    for unknown in set(names) - set(CASES):
        parser.error(f"--only {unknown}: no such kernel; known: {', '.join(CASES)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            out = Path(folder) / "row.json"
            command = [sys.executable, "-m", "benchmarks.kernels", "--child", name, "--json", str(out)]
            command += ["--small"] * given.small + ["--no-peers"] * given.no_peers
            subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
            rows.append(json.loads(out.read_text()))
            r = rows[-1]
            peer = "" if r["sklearn_s"] is None else f", scikit-learn {r['sklearn_s']:.2f}"
            print(f"{r['kernel']}: {r['median_s']:.2f} s, floor {r['floor_s']:.2f}{peer}, error {_error(r)}", flush=True)
            write_rows(rows, given.json)
    if given.markdown:
        given.markdown.write_text(markdown(rows, "python -m benchmarks.kernels" + (" --small" if given.small else "")))


if __name__ == "__main__":
    main()
