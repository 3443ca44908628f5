"""Clusters that become one: all that are similar enough, or by complete linkage. Nodes are
clusters, and clients without one."""

from __future__ import annotations

from cfljax.lazy import chex, jax, jnp

# (similarities of unions that are not yet united, roots, whose model is kept, sizes)
_Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def unite(
    similar: jax.Array,
    threshold: jax.Array | float,
    size: jax.Array,
    present: jax.Array,
    owners: int,
) -> tuple[jax.Array, jax.Array]:
    """Unite pairs of nodes that are similar enough, the most similar first, the lowest pair first
    among equals. Of two unions with models the larger one keeps its model, of equal ones the one
    with the lower node.

    Args:
      similar: f32[n, n] the similarity of nodes.
      threshold: The similarity from which two nodes are united.
      size: f32[n] the sizes of nodes.
      present: bool[n] which nodes exist.
      owners: How many nodes, the first ones, have models.

    Returns:
      i32[n] the root of each node, which is the lowest node of its union; and i32[n] at this root
      the node whose model the union keeps.
    """
    chex.assert_rank([similar, size, present], [2, 1, 1])
    number = size.shape[0]
    nodes = jnp.arange(number, dtype=jnp.int32)
    excluded = ~(present[:, None] & present[None, :]) | (nodes[:, None] == nodes[None, :])

    def join(carry: _Carry) -> _Carry:
        left, root, kept, size = carry
        a, b = jnp.divmod(jnp.argmax(left), number)
        i = jnp.minimum(root[a], root[b])
        j = jnp.maximum(root[a], root[b])
        # A union whose root has no model has none at all, as roots are the lowest nodes
        kept = kept.at[i].set(jnp.where((j < owners) & (size[j] > size[i]), kept[j], kept[i]))
        root = jnp.where(root == j, i, root)
        size = size.at[i].add(size[j])
        return jnp.where(root[:, None] == root[None, :], -jnp.inf, left), root, kept, size

    begin = (jnp.where(excluded, -jnp.inf, similar), nodes, nodes, jnp.asarray(size, jnp.float32))
    _, root, kept, _ = jax.lax.while_loop(lambda carry: jnp.max(carry[0]) >= threshold, join, begin)
    return root, kept


def slots(
    root: jax.Array, present: jax.Array, similar: jax.Array, clusters: int
) -> tuple[jax.Array, jax.Array]:
    """Give each union a slot among the clusters: that of its lowest cluster, or the next free one;
    without room each of its nodes goes to the slot of the most similar node.

    Args:
      root: i32[n] the root of each node's union, as `unite` returns it.
      present: bool[n] which nodes exist.
      similar: f32[n, n] the similarity of nodes.
      clusters: K; the first K nodes are the clusters in these slots.

    Returns:
      i32[n] the slot of each present node, and i32[] how many nodes have no room.
    """
    nodes = jnp.arange(root.shape[0], dtype=jnp.int32)
    is_root = present & (root == nodes)
    free = ~is_root[:clusters]
    # The j-th union without a slot of its own gets the j-th free one
    rank = jnp.cumsum(is_root & (nodes >= clusters)) - 1
    free_slots = jnp.argsort(~free, stable=True).astype(jnp.int32)
    new_slot = jnp.where(rank < jnp.sum(free), free_slots[jnp.minimum(rank, clusters - 1)], -1)
    slot = jnp.where(nodes < clusters, nodes, new_slot)[root]
    nearest = jnp.argmax(jnp.where(present & (slot >= 0), similar, -jnp.inf), axis=1)
    return jnp.where(slot >= 0, slot, slot[nearest]), jnp.sum(present & (slot < 0), dtype=jnp.int32)


def complete_linkage(distance: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """Return i32[K]: the lowest cluster of each cluster's union, after the two nearest unions have
    become one as long as they are not farther apart than the threshold. The distance of two unions
    is the largest among their clusters, of distance f32[K, K] (symmetric; the diagonal is not read;
    clusters at Inf or NaN are never united)."""
    chex.assert_rank(distance, 2)
    number = distance.shape[0]
    nodes = jnp.arange(number, dtype=jnp.int32)
    itself = nodes[:, None] == nodes[None, :]

    def near_enough(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        nearest = jnp.min(carry[0])
        return (nearest <= threshold) & (nearest < jnp.inf)

    def join(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        apart, root = carry
        # i < j, as the first of the two equal entries is found
        i, j = jnp.divmod(jnp.argmin(apart), number)
        both = jnp.maximum(apart[i], apart[j])
        apart = apart.at[i].set(both).at[:, i].set(both).at[j].set(jnp.inf).at[:, j].set(jnp.inf)
        return jnp.where(itself, jnp.inf, apart), jnp.where(root == j, i.astype(jnp.int32), root)

    unusable = itself | jnp.isnan(distance)
    return jax.lax.while_loop(near_enough, join, (jnp.where(unusable, jnp.inf, distance), nodes))[1]
