"""Weights of clusters: Q1 of "CCS + RFedAvg" (eq. 16) on the simplex, RFedAvg's closed form, and
what they achieve."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.mix import members
from cfljax.lazy import chex, jax, jnp


def balance(shares: jax.Array, active: jax.Array, steps: int = 5000) -> jax.Array:
    """Return f32[K] the p that minimises ‖Hᵀp − 1/M‖² over p ≥ 0, Σp = 1 on the active rows of the
    class shares H f32[K, M] (eq. 16), to 1e-6 in the objective. All 0 if no row is active."""
    chex.assert_rank([shares, active], [2, 1])
    chex.assert_equal_shape_prefix([shares, active], 1)
    # Σp = 1, so ‖Hᵀp − 1/M‖ = ‖(H − 1/M)ᵀp‖
    centred = jnp.where(active[:, None], shares - 1.0 / shares.shape[1], 0.0)
    gram = jnp.matmul(centred, centred.T, precision=HIGHEST)
    return minimise(gram, jnp.zeros(len(shares)), active, steps)


def minimise(gram: jax.Array, linear: jax.Array, active: jax.Array, steps: int = 5000) -> jax.Array:
    """Return f32[K] the p that minimises pᵀGp − 2 bᵀp over p ≥ 0, Σp = 1 on the active entries, by
    accelerated projected gradient with restarts from equal weights. It stops once the duality gap
    proves 5e-7. All 0 if no entry is active.

    Args:
      gram: f32[K, K] G, positive semidefinite; 0 at inactive entries.
      linear: f32[K] b; 0 at inactive entries.
      active: bool[K].
      steps: The most steps.
    """
    chex.assert_rank([gram, linear, active], [2, 1, 1])
    # Both are bounds of the largest eigenvalue, of which the step is the inverse
    bound = jnp.minimum(jnp.abs(gram).sum(axis=1).max(), jnp.trace(gram))
    rate = 1.0 / jnp.maximum(bound, 1e-12)

    def gap(p: jax.Array) -> jax.Array:
        # On the simplex no point is better than p by more than its slope towards the best corner
        slope = 2 * (jnp.matmul(gram, p, precision=HIGHEST) - linear)
        return slope @ p - jnp.where(active, slope, jnp.inf).min()

    def step(state: _Descent) -> _Descent:
        slope = jnp.matmul(gram, state.ahead, precision=HIGHEST) - linear
        p = project_simplex(state.ahead - rate * slope, active)
        # If the momentum points uphill, it starts again (O'Donoghue and Candès 2015)
        uphill = (state.ahead - p) @ (p - state.p) > 0
        t = jnp.where(uphill, 1.0, state.t)
        after = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        ahead = p + jnp.where(uphill, 0.0, (t - 1) / after) * (p - state.p)
        return _Descent(p, ahead, after, state.done + 1, gap(p))

    start = jnp.where(active, 1.0, 0.0) / jnp.maximum(active.sum(), 1)
    first = _Descent(start, start, jnp.float32(1.0), jnp.int32(0), gap(start))
    return jax.lax.while_loop(lambda s: (s.gap > 5e-7) & (s.done < steps), step, first).p


def combine_heads(variance: jax.Array, features: jax.Array, active: jax.Array) -> jax.Array:
    """Return f32[S, S] FedPAC's weights of heads: for each participant i the α on the simplex over
    the active ones that minimises Σ_j α_j² V_j + ‖H_i − Σ_j α_j H_j‖².

    Args:
      variance: f32[S] V.
      features: f32[S, m] H.
      active: bool[S].
    """
    chex.assert_rank([variance, features, active], [1, 2, 1])
    middle = jnp.where(active[:, None], features, 0.0).sum(axis=0) / jnp.maximum(active.sum(), 1)
    # Σα = 1, so subtracting the mean changes no difference, and products lose fewer digits
    centred = jnp.where(active[:, None], features - middle, 0.0)
    products = jnp.matmul(centred, centred.T, precision=HIGHEST)
    gram = products + jnp.diag(jnp.where(active, variance, 0.0))
    # In units of the largest entry, so that the gap of `minimise` is a relative one
    scale = jnp.maximum(jnp.diag(gram).max(), 1e-30)
    return jax.vmap(lambda linear: minimise(gram / scale, linear, active, 1000))(products / scale)


class _Descent(NamedTuple):
    # f32[K]: the point
    p: jax.Array
    # f32[K]: the point from which the next step is made, further along the last move
    ahead: jax.Array
    # f32[]: Nesterov's sequence, of which the momentum is made
    t: jax.Array
    # i32[]: steps done
    done: jax.Array
    # f32[]: a bound of what is left to gain
    gap: jax.Array


def project_simplex(values: jax.Array, active: jax.Array) -> jax.Array:
    """Return f32[K] the point of the simplex over the active entries (active bool[K]) nearest to
    values f32[K]; inactive entries are 0."""
    # The nearest point is max(values − shift, 0); the shift follows from the entries that stay
    # above 0, which are the largest ones (Held, Wolfe and Crowder 1974)
    ranked = -jnp.sort(jnp.where(active, -values, jnp.inf))
    rank = jnp.arange(1, values.shape[0] + 1)
    counted = rank <= active.sum()
    total = jnp.cumsum(jnp.where(counted, ranked, 0.0))
    inside = counted & (jnp.where(counted, ranked, 0.0) * rank > total - 1.0)
    support = jnp.maximum(inside.sum(), 1)
    shift = (jnp.where(rank <= support, jnp.where(counted, ranked, 0.0), 0.0).sum() - 1.0) / support
    return jnp.where(active, jnp.maximum(values - shift, 0.0), 0.0)


def class_shares(
    labels: jax.Array, counts: jax.Array, clusters: int
) -> tuple[jax.Array, jax.Array]:
    """Return H f32[K, M] and active bool[K]: the class shares of each cluster, from counts f32[S,
    M] of the participants with labels i32[S] (−1: none). A cluster without samples has zero shares
    and is not active."""
    chex.assert_rank([labels, counts], [1, 2])
    chex.assert_equal_shape_prefix([labels, counts], 1)
    member = members(labels, clusters)
    kept = jnp.where((labels >= 0)[:, None], counts, 0.0).astype(jnp.float32)
    sums = jnp.matmul(member.astype(jnp.float32), kept, precision=HIGHEST)
    size = sums.sum(axis=1)
    shares = jnp.where(size[:, None] > 0, sums / jnp.where(size > 0, size, 1.0)[:, None], 0.0)
    return shares, size > 0


def imbalance_level(counts: jax.Array, total: jax.Array | float) -> jax.Array:
    """Return f32[S] I_k = Σ_m |D/M − D_k^m| (eq. 17) of class counts f32[S, M] and the samples of
    all clients, total D."""
    chex.assert_rank(counts, 2)
    # eq. 17
    return jnp.abs(total / counts.shape[1] - counts).sum(axis=1)


def rfedavg_weights(
    labels: jax.Array, imbalance: jax.Array, sizes: jax.Array, clusters: int
) -> jax.Array:
    """Return f32[K] p_n ∝ 1 / max(I_Cn, 1), I_Cn = I_k* − Σ_{k≠k*} D_k with k* = argmax I_k in the
    cluster (ties to the lowest index). Empty clusters get 0; all 0 if every one is empty.

    Args:
      labels: i32[S] the clusters of the participants; −1: none.
      imbalance: f32[S] I_k.
      sizes: f32[S] D_k.
      clusters: K.
    """
    level, filled = cluster_imbalance(labels, imbalance, sizes, clusters)
    weight = jnp.where(filled, 1.0 / jnp.maximum(level, 1.0), 0.0)
    return weight / jnp.where(filled.any(), weight.sum(), 1.0)


def cluster_imbalance(
    labels: jax.Array, imbalance: jax.Array, sizes: jax.Array, clusters: int
) -> tuple[jax.Array, jax.Array]:
    """Return f32[K] the imbalance level I_Cn of each cluster, 0 for empty clusters, and bool[K]
    which clusters have members. Arguments as in `rfedavg_weights`."""
    chex.assert_rank([labels, imbalance, sizes], 1)
    chex.assert_equal_shape([labels, imbalance, sizes])
    member = members(labels, clusters)
    leader = jnp.argmax(jnp.where(member, imbalance, -jnp.inf), axis=1)
    follows = member & (jnp.arange(labels.shape[0])[None, :] != leader[:, None])
    filled = member.any(axis=1)
    level = imbalance[leader] - jnp.where(follows, sizes, 0.0).sum(axis=1)
    return jnp.where(filled, level, 0.0), filled


def reshaped_balance(weights: jax.Array, shares: jax.Array) -> jax.Array:
    """Return f32[M] b̃ = Σ_n p_n H[n] (eq. 14) of weights f32[K] and class shares f32[K, M]."""
    chex.assert_rank([weights, shares], [1, 2])
    chex.assert_equal_shape_prefix([weights, shares], 1)
    # eq. 14
    return jnp.matmul(weights, shares, precision=HIGHEST)


def describe(weights: jax.Array, shares: jax.Array) -> dict[str, jax.Array]:
    """Return the reshaped balance of weights f32[K] and class shares f32[K, M], its error and its
    degree of imbalance, by name."""
    b = reshaped_balance(weights, shares)
    return {
        "balance": b,
        "balance_error": balance_error(b),
        "imbalance_degree": imbalance_degree(b),
    }


def balance_error(b: jax.Array) -> jax.Array:
    """Return f32[] ‖b − 1/M‖² of b f32[M], the quantity that bounds the error in Theorem 1."""
    return jnp.square(b - 1.0 / b.shape[-1]).sum(axis=-1)


def imbalance_degree(b: jax.Array) -> jax.Array:
    """Return f32[] β(b) = max/min of b f32[M] (eq. 3); Inf where a class is missing."""
    least = b.min(axis=-1)
    # eq. 3
    return jnp.where(least > 0, b.max(axis=-1) / jnp.where(least > 0, least, 1.0), jnp.inf)
