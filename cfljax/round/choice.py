"""For methods whose clients choose their cluster: the data for the choice, the labels after it, the
weights of gradients."""

from __future__ import annotations

import dataclasses

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.federation.gather import client_rows
from cfljax.kernels.mix import members
from cfljax.lazy import jax, jnp
from cfljax.local.data import shuffle
from cfljax.types import Array, Cohort, Federation, Hyper, Split


def need_clients(federation: Federation, clusters: int, name: str) -> None:
    """HOST. Raises SpecError if there are more clusters than clients that train. `name`: the
    method, for the message."""
    train = int(federation.trains.sum())
    if clusters > train:
        raise SpecError(
            f"method.{name}.clusters = {clusters}: only {train} clients train; give at most {train}"
        )


def join(labels: Array, cohort: Cohort, which: Array) -> Array:
    """Return i32[C]: the labels after each participant has joined its cluster. Others keep theirs.

    Args:
        labels: i32[C] the labels before.
        cohort: The participants.
        which: i32[S] the cluster of each.
    """
    return cohort.write(labels, which.astype(labels.dtype))


def is_private(hyper: Hyper) -> bool:
    """Whether participants choose their cluster by chance (`train.privacy.choice`)."""
    return "privacy.choice.epsilon" in hyper


def mask_unavailable(allowed: Array | None, losses: Array) -> Array:
    """Return the losses f32[K, S], NaN for models that are not allowed bool[K] (None: all are), so
    that nobody chooses them."""
    return losses if allowed is None else jnp.where(allowed[:, None], losses, jnp.nan)


def first_batches(
    key: Array, federation: Federation, cohort: Cohort, batch: int | None, sequential: bool
) -> Federation:
    """Return a federation in which each participant holds only the first mini-batch of `batch`
    samples that `Solver.fit` takes with this key. For a batch of None it is the given
    federation."""
    if batch is None:
        return federation
    split = federation.train
    size = min(batch, split.longest)

    def first(of: tuple[Array, Array]) -> Array:
        each, client = of
        order = shuffle(
            keys.fold(each, "epoch", 0), split.count[client], split.longest, size, sequential
        )
        return client_rows(split, client, order)[:size]

    ids = jnp.asarray(cohort.ids)
    each = keys.fold_each(key, "client", jnp.asarray(federation.uid)[ids])
    rows = jax.lax.map(first, (each, ids)) if sequential else jax.vmap(first)((each, ids))
    nothing = jnp.zeros(federation.clients, jnp.int32)
    begin = jnp.arange(rows.shape[0], dtype=jnp.int32) * size
    held = jnp.minimum(jnp.asarray(split.count)[ids], size)
    start, count = (cohort.write(nothing, each) for each in (begin, held))
    return dataclasses.replace(federation, train=Split(rows.reshape(-1), start, count, size))


def shares_of_all(
    which: Array, federation: Federation, cohort: Cohort, clusters: int, average: str
) -> Array:
    """Return f32[K, S]: the mixing matrix of gradients. Row k gives each member of cluster k its
    weight (1, or n_i if `average` is "samples") divided by the summed weights of all participants
    of the round."""
    each = federation.train.count.astype(jnp.float32)
    real = federation.real & (each > 0)
    each = jnp.where(real, each if average == "samples" else 1.0, 0.0)
    present = jnp.where(cohort.mask, each[cohort.ids], 0.0)
    member = members(which, clusters, cohort.mask)
    return jnp.where(member, present[None, :] / jnp.maximum(jnp.sum(present), 1.0), 0.0)
