"""Clusters that become one: all that are similar enough, or by complete linkage. Nodes are
clusters, and clients without one."""

from __future__ import annotations

from cfljax.lazy import chex, jax, jnp

_Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def unite(
    similar: jax.Array,
    threshold: jax.Array | float,
    size: jax.Array,
    present: jax.Array,
    owners: int,
) -> tuple[jax.Array, jax.Array]:
    """Unite pairs of the present nodes (bool[n]) whose similarity f32[n, n] is at least the
    threshold, the most similar first, the lowest pair first among equals. Return (i32[n] the lowest
    node of each node's union, i32[n] at this lowest node: the node whose model the union keeps).
    The first `owners` nodes have models. Of two unions with models the one with the larger size
    f32[n] keeps its model, of equal ones the one with the lower node."""
    chex.assert_rank([similar, size, present], [2, 1, 1])
    number = size.shape[0]
    nodes = jnp.arange(number, dtype=jnp.int32)
    apart = ~(present[:, None] & present[None, :]) | (nodes[:, None] == nodes[None, :])

    def join(carry: _Carry) -> _Carry:
        left, root, kept, size = carry
        a, b = jnp.divmod(jnp.argmax(left), number)
        i, j = jnp.minimum(root[a], root[b]), jnp.maximum(root[a], root[b])
        kept = kept.at[i].set(jnp.where((j < owners) & (size[j] > size[i]), kept[j], kept[i]))
        root, size = jnp.where(root == j, i, root), size.at[i].add(size[j])
        return jnp.where(root[:, None] == root[None, :], -jnp.inf, left), root, kept, size

    begin = (jnp.where(apart, -jnp.inf, similar), nodes, nodes, jnp.asarray(size, jnp.float32))
    _, root, kept, _ = jax.lax.while_loop(lambda carry: jnp.max(carry[0]) >= threshold, join, begin)
    return root, kept


def slots(
    root: jax.Array, present: jax.Array, similar: jax.Array, clusters: int
) -> tuple[jax.Array, jax.Array]:
    """Return (i32[n] the slot of each present node among K `clusters`, i32[] how many nodes have no
    room). A union has the slot of its lowest cluster, or the next free one; without room each of
    its nodes goes to the slot of the most similar node."""
    nodes = jnp.arange(root.shape[0], dtype=jnp.int32)
    head = present & (root == nodes)
    free = ~head[:clusters]
    rank = jnp.cumsum(head & (nodes >= clusters)) - 1
    ranked = jnp.argsort(~free, stable=True).astype(jnp.int32)
    there = jnp.where(rank < jnp.sum(free), ranked[jnp.minimum(rank, clusters - 1)], -1)
    slot = jnp.where(nodes < clusters, nodes, there)[root]
    nearest = jnp.argmax(jnp.where(present & (slot >= 0), similar, -jnp.inf), axis=1)
    return jnp.where(slot >= 0, slot, slot[nearest]), jnp.sum(present & (slot < 0), dtype=jnp.int32)


def complete_linkage(distance: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """i32[K]: the lowest cluster of each cluster's union, after the two nearest unions have become
    one as long as they are not farther apart than the threshold. The distance of two unions is the
    largest among their clusters' f32[K, K] (symmetric; the diagonal is not read; Inf or NaN:
    never)."""
    chex.assert_rank(distance, 2)
    number = distance.shape[0]
    nodes = jnp.arange(number, dtype=jnp.int32)
    itself = nodes[:, None] == nodes[None, :]

    def near_enough(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        nearest = jnp.min(carry[0])
        return (nearest <= threshold) & (nearest < jnp.inf)

    def join(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        far, root = carry
        i, j = jnp.divmod(jnp.argmin(far), number)  # i < j, as the first of equal entries is found
        both = jnp.maximum(far[i], far[j])
        far = far.at[i].set(both).at[:, i].set(both).at[j].set(jnp.inf).at[:, j].set(jnp.inf)
        return jnp.where(itself, jnp.inf, far), jnp.where(root == j, i.astype(jnp.int32), root)

    unusable = itself | jnp.isnan(distance)
    return jax.lax.while_loop(near_enough, join, (jnp.where(unusable, jnp.inf, distance), nodes))[1]
