"""Which cluster a participant joins: by loss, by loss and direction, by distance; and what to do
about empty clusters."""

from __future__ import annotations

from cfljax import keys
from cfljax.kernels.blocks import squared_distances, sum_blocks
from cfljax.kernels.cosine import cosine_rows
from cfljax.kernels.mix import members
from cfljax.lazy import chex, jax, jnp

SIMILARITIES = ("descent", "literal", "euclidean")
RESEED = ("when_empty", "always", "never")


def least_loss(losses: jax.Array) -> jax.Array:
    """Return i32[S]: the cluster with the smallest loss of each participant. The lowest index wins
    a tie. NaN is never chosen if another loss is Inf or finite; a participant with nothing but NaN
    gets cluster 0.

    Args:
        losses: f32[K, S] the loss of each model on each participant's data.

    Example:
        ```python
        which = least_loss(solver.losses(federation, state.models, cohort.ids, cohort.mask))
        ```
    """
    chex.assert_rank(losses, 2)
    known = ~jnp.isnan(losses)
    # One argmin, no comparison with the minimum: fused code may compute the losses twice, with
    # different last bits.
    least = jnp.argmin(jnp.where(known, losses, jnp.inf), axis=0)
    chosen_known = jnp.take_along_axis(known, least[None, :], axis=0)[0]
    # NaN stands as Inf in the argmin: among losses of NaN and Inf alone the first Inf is wanted
    return jnp.where(chosen_known, least, jnp.argmax(known, axis=0)).astype(jnp.int32)


def private_choice(
    key: jax.Array,
    costs: jax.Array,
    uid: jax.Array,
    epsilon: jax.Array | float,
    width: jax.Array | float,
) -> jax.Array:
    """Choose a cluster for each participant by the exponential mechanism (McSherry and Talwar
    2007): cluster k with a probability in proportion to exp(−ε · cost_k / (2 · width)).

    Args:
      key: The random key of the choice.
      costs: f32[K, S]; a cost of NaN is never chosen.
      uid: i32[S] identities of the participants, by which draws go.
      epsilon: The privacy budget ε of one choice.
      width: The width of an interval in which the costs of a participant lie, whatever its data.

    Returns:
      i32[S].
    """
    chex.assert_rank([costs, uid], [2, 1])
    each = jax.vmap(lambda one: jax.random.gumbel(one, costs.shape[:1]))(
        keys.fold_each(key, "choice", uid)
    ).T
    # The largest of log-odds plus Gumbel noise is a draw with these odds
    return jnp.argmax(
        jnp.where(jnp.isnan(costs), -jnp.inf, each - epsilon / (2 * width) * costs), axis=0
    ).astype(jnp.int32)


def clip_losses(losses: jax.Array, clip: jax.Array | float) -> jax.Array:
    """Clip losses to [0, clip]; NaN and Inf become `clip`."""
    return jnp.clip(jnp.nan_to_num(losses, nan=jnp.inf, posinf=jnp.inf), 0.0, clip)


def move_similarity(
    gradient: jax.Array, last: jax.Array, how: str = "descent", lr: jax.Array | float = 1.0
) -> jax.Array:
    """Return f32[S]: the similarity of the participants' gradients at a cluster's model with the
    last move of that cluster. Always finite; after a zero move the cosines are 0.

    Args:
      gradient: f32[S, d] ∇L of each participant.
      last: f32[d] Δw.
      how: `"descent"` cos(−∇L, Δw), `"literal"` cos(∇L, Δw), or `"euclidean"` −‖−lr ∇L − Δw‖.
      lr: The learning rate, for `"euclidean"`.
    """
    chex.assert_rank([gradient, last], [2, 1])
    chex.assert_equal_shape_suffix([gradient, last], 1)
    if how == "descent":
        return cosine_rows(-gradient, last)
    if how == "literal":
        return cosine_rows(gradient, last)
    if how != "euclidean":
        raise ValueError(f'similarity "{how}": must be one of {", ".join(SIMILARITIES)}')

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        g = jax.lax.dynamic_slice_in_dim(gradient, start, size, 1)
        w = jax.lax.dynamic_slice_in_dim(last, start, size)
        return jnp.square(lr * g + w).sum(axis=1)

    distance = jnp.sqrt(
        sum_blocks(partial, last.shape[0], jnp.zeros(gradient.shape[0], jnp.float32))
    )
    return -jnp.nan_to_num(distance, nan=jnp.finfo(jnp.float32).max)


def joint_cost(losses: jax.Array, similarity: jax.Array, lam: jax.Array | float) -> jax.Array:
    """Return f32[K, S]: (1 − λ) L − λ S of losses L f32[K, S] and similarity S f32[K, S]. The
    cluster with the least is chosen."""
    chex.assert_rank([losses, similarity], 2)
    chex.assert_equal_shape([losses, similarity])
    return -(lam * similarity + (1.0 - lam) * -losses)


def pick_random_cluster(key: jax.Array, uid: jax.Array, active: jax.Array) -> jax.Array:
    """Draw one of the active clusters bool[K] for each identity i32[n]: i32[n]."""
    draws = jax.vmap(lambda k: keys.bits(k, active.size))(
        keys.fold_each(key, "client", jnp.asarray(uid))
    )
    # A draw of an active cluster is at least 1, so that inactive ones, with 0, never win
    return jnp.argmax(jnp.where(active, (draws >> 1) + 1, 0), axis=1).astype(jnp.int32)


def select_by_weight(
    key: jax.Array, weight: jax.Array, mask: jax.Array, uid: jax.Array, share: jax.Array
) -> jax.Array:
    """Draw participants for each cluster, without replacement.

    Args:
      key: The round's key.
      weight: f32[K, S] the odds of each participant.
      mask: bool[S] participants.
      uid: i32[S] their identities, by which draws go.
      share: f32[] the share of the participants that a cluster draws, rounded up.

    Returns:
      bool[K, S] who is drawn. A participant without weight never is.
    """
    noise = jax.vmap(lambda one: jax.random.gumbel(one, weight.shape[:1]))(
        keys.fold_each(key, "selection", uid)
    ).T
    # The largest sums of log-odds and Gumbel noise are a draw without replacement with these odds
    order = jnp.argsort(-jnp.where(mask & (weight > 0), jnp.log(weight) + noise, -jnp.inf), axis=1)
    rank = jnp.argsort(order, axis=1)
    # A product just above a whole number, by float32's rounding, must not count as the next one
    number = jnp.ceil(share * jnp.sum(mask) - 1e-4)
    return (rank < number) & mask & (weight > 0)


def nearest(points: jax.Array, centres: jax.Array, active: jax.Array | None = None) -> jax.Array:
    """Return i32[S]: the centre that is nearest to each point by the Euclidean distance; ties go to
    the lowest index. Inactive and non-finite centres are never chosen while there is another.

    Args:
        points: f32[S, d] the points.
        centres: f32[K, d] the centres.
        active: bool[K] which centres may be chosen; None: all.
    """
    distance = squared_distances(points, centres).T
    return least_loss(distance if active is None else jnp.where(active[:, None], distance, jnp.nan))


def reseed_empty(
    key: jax.Array,
    labels: jax.Array,
    mask: jax.Array,
    clusters: int,
    uid: jax.Array,
    rule: str = "when_empty",
    number: jax.Array | int | None = None,
) -> jax.Array:
    """Draw K distinct participants and put the j-th into cluster j. Skipped with fewer than K
    participants.

    Args:
      key: The random key of the draw.
      labels: i32[S] the clusters of the participants.
      mask: bool[S] participants.
      clusters: K.
      uid: i32[S] identities, by which the draw goes, so that order and padding change nothing.
      rule: When to draw: `"when_empty"` if some cluster has no participant, `"always"`, `"never"`.
      number: i32[] how many clusters, the first ones, are in use; None: all.

    Returns:
      i32[S] the labels after it.
    """
    chex.assert_rank([labels, mask, uid], 1)
    chex.assert_equal_shape([labels, mask, uid])
    if rule not in RESEED:
        raise ValueError(f'reseed "{rule}": must be one of {", ".join(RESEED)}')
    number = clusters if number is None else number
    if rule == "never" or (isinstance(number, int) and labels.shape[0] < number):
        return labels
    labels = jnp.asarray(labels)
    index = jnp.arange(min(clusters, labels.shape[0]), dtype=labels.dtype)
    position = jnp.arange(labels.shape[0], dtype=jnp.int32)
    scores = keys.scores(key, "reseed", uid)
    # Participants before padding, then by score; equal scores by identity, which no order changes
    ranked = jax.lax.sort((~mask, scores, uid, position), num_keys=3)[3]
    moved = labels.at[jnp.where(index < number, ranked[: index.size], labels.shape[0])].set(
        index, mode="drop"
    )
    wanted = jnp.sum(mask) >= number
    if rule == "when_empty":
        filled = members(labels, clusters, mask).any(axis=1) | (jnp.arange(clusters) >= number)
        wanted = wanted & ~filled.all()
    return jnp.where(wanted, moved, labels)
