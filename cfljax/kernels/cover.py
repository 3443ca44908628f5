"""CCS: clusters as a greedy cover of the similarity graph (Algorithm 1 of "CCS + RFedAvg")."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.lazy import chex, jax, jnp

_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


class Cover(NamedTuple):
    """The cluster of each participant, and the number of clusters."""

    # i32[S], in the order in which clusters were founded; −1 for masked participants
    labels: jax.Array
    # i32[]: how many clusters there are
    clusters: jax.Array


def cover(
    similarity: jax.Array, threshold: jax.Array | float, mask: jax.Array | None = None
) -> Cover:
    """Cover the graph of similarity f32[S, S] greedily: among the unclustered participants, the one
    with the most unclustered neighbours (similarity ≥ threshold; itself always) founds the next
    cluster together with them, until none is left. Ties go to the lowest index. The number of
    clusters is data: labels have a fixed size."""
    size = similarity.shape[0]
    chex.assert_shape(similarity, (size, size))
    present = jnp.ones(size, bool) if mask is None else mask
    chex.assert_shape(present, (size,))
    near = (similarity >= threshold) | jnp.eye(size, dtype=bool)
    counted_by = near.T

    def leave(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        leaving, neighbours = carry
        one = jnp.argmax(leaving)
        return leaving.at[one].set(False), neighbours - counted_by[one]

    def found_cluster(carry: _State) -> _State:
        unclustered, labels, number, neighbours = carry
        founder = jnp.argmax(jnp.where(unclustered, neighbours, -1))
        joins = near[founder] & unclustered
        # Each participant leaves once: S² in all, while recounting for each cluster would be S² per
        # cluster
        neighbours = jax.lax.while_loop(lambda c: c[0].any(), leave, (joins, neighbours))[1]
        return unclustered & ~joins, jnp.where(joins, number, labels), number + 1, neighbours

    neighbours = (near & present[None, :]).sum(axis=1, dtype=jnp.int32)
    start = (present, jnp.full(size, -1, jnp.int32), jnp.int32(0), neighbours)
    _, labels, clusters, _ = jax.lax.while_loop(lambda carry: carry[0].any(), found_cluster, start)
    return Cover(labels, clusters)


def ccs_threshold(
    loss: jax.Array | float,
    loss0: jax.Array | float,
    l_star: jax.Array | float,
    theta: jax.Array | float,
) -> jax.Array:
    """Return f32[] the threshold ε_t = cos(θ + (π/2 − θ) · (l_0 − l_t)/(l_0 − l_*)), eq. 7, with
    the fraction clipped to [0, 1]. The fraction is 1 where l_0 ≤ l_*, and 0 where a loss is not
    finite.

    Args:
      loss: l_t, the loss now.
      loss0: l_0, the loss at the start.
      l_star: l_*, the loss that counts as the end of training.
      theta: θ, the angle of the first threshold.
    """
    loss = jnp.asarray(loss, jnp.float32)
    loss0 = jnp.asarray(loss0, jnp.float32)
    above = loss0 > l_star
    fraction = jnp.where(above, (loss0 - loss) / jnp.where(above, loss0 - l_star, 1.0), 1.0)
    fraction = jnp.where(
        jnp.isfinite(loss) & jnp.isfinite(loss0), jnp.clip(fraction, 0.0, 1.0), 0.0
    )
    # eq. 7. The cosine is written as a sine: exactly 0 at f = 1, where float32 has cos(π/2) < 0
    return jnp.sin((jnp.pi / 2 - theta) * (1.0 - fraction))
