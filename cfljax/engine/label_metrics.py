"""Metrics for `train.metrics`: perplexity, and macro-F1 and average precision, each the mean over
labels, so that rare ones count as much as common ones. Samples have one label, or several.

All samples of all scored clients count together, each with its client's model (not with a mixture
of models). With one test set for all clients (`data.test = "global"`), a sample has one score per
client, so the average precision is averaged over clients. Labels that no sample has and no client
predicts are left out."""

from __future__ import annotations

from collections.abc import Callable

from cfljax.devices.spread import mask_own, sum_devices
from cfljax.engine.metrics import Seen
from cfljax.engine.scoring import TILE
from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.local.data import take
from cfljax.types import Array


def macro_f1(seen: Seen) -> jax.Array:
    """Average 2 TP / (2 TP + FP + FN) over labels, pooled over all scored clients."""

    def tally(scores: Array, truth: Array) -> Array:
        """Return f32[B, 2, M]: true positives, and predicted plus true ones."""
        most = jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])
        predicted = (scores > 0).astype(jnp.float32) if seen.federation.several else most
        return jnp.stack([predicted * truth, predicted + truth], axis=1)

    # 2 TP + FP + FN = predicted + true
    both = _sum_over_clients(seen, tally, jnp.zeros((2, seen.federation.classes)))
    hits, total = both[0], both[1]
    exists = total > 0
    return jnp.sum(jnp.where(exists, 2 * hits / jnp.where(exists, total, 1), 0)) / jnp.sum(exists)


def average_precision(seen: Seen) -> jax.Array:
    """Average the area under the precision-recall curve over labels, as scikit-learn's
    `average_precision_score`."""
    federation, split = seen.federation, seen.test
    if federation.owner is not None:
        raise SpecError(
            'train.metrics = "average_precision": needs all samples on each device; set '
            'train.plan.pool = "copied"'
        )
    length = -(-split.longest // TILE) * TILE if split.shared else split.rows.shape[0] + TILE
    blank = (
        jnp.zeros((length, federation.classes)),
        jnp.zeros((length, federation.classes)),
        jnp.zeros(length, bool),
    )

    def add(client: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        params = seen.model.unravel(seen.models[seen.scoring[client]])
        begin = jnp.int32(0) if split.shared else split.start[client]

        def visit(i: Array, held: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            at = i * TILE + jnp.arange(TILE)
            valid = at < split.count[client]
            scores, truth = _score(seen, params, client, at, valid)
            slot = jnp.where(valid, begin + at, length)
            values = (scores, truth, valid)
            return tuple(
                old.at[slot].set(new, mode="drop") for old, new in zip(held, values, strict=True)
            )  # type: ignore[return-value]

        number = jnp.where(seen.who[client], -(-split.count[client] // TILE), 0)
        return jax.lax.fori_loop(0, number, visit, carry)

    if not split.shared:
        return mean_precision(*jax.lax.fori_loop(0, federation.clients, add, blank))
    scored = seen.who & (split.count > 0)
    each = jax.lax.map(lambda c: mean_precision(*add(c, blank)), jnp.arange(federation.clients))
    return jnp.sum(jnp.where(scored, each, 0)) / jnp.sum(scored)


def perplexity(seen: Seen) -> jax.Array:
    """Compute e to the mean loss of all scored samples, f32[]: the number of equally likely tokens
    with the same uncertainty."""
    losses = jnp.sum(jnp.where(seen.who, seen.loss, 0))
    samples = jnp.sum(jnp.where(seen.who, seen.samples, 0))
    return jnp.exp(losses / samples)


def mean_precision(scores: Array, truth: Array, valid: Array) -> jax.Array:
    """Compute the mean average precision f32[] over labels that some sample has. scores, truth
    f32[n, M]; valid bool[n]."""
    valid = jnp.asarray(valid)

    def of_label(score: Array, true: Array) -> tuple[jax.Array, jax.Array]:
        order = jnp.argsort(-jnp.where(valid, score, -jnp.inf))
        ranked = score[order]
        hits = jnp.cumsum(jnp.where(valid, true, 0)[order])
        # Samples with equal scores share a threshold: the last one of them counts for all
        last = (
            jnp.searchsorted(-jnp.where(valid[order], ranked, -jnp.inf), -ranked, side="right") - 1
        )
        precision = hits[last] / (last + 1)
        positives = jnp.where(valid, true, 0)
        total = jnp.sum(positives)
        area = jnp.sum(jnp.where(positives[order] > 0, precision, 0)) / jnp.maximum(total, 1)
        return area, total > 0

    each, exists = jax.vmap(of_label, in_axes=1)(scores, truth)
    return jnp.sum(jnp.where(exists, each, 0)) / jnp.sum(exists)


def _sum_over_clients(seen: Seen, tally: Callable[[Array, Array], Array], zero: Array) -> jax.Array:
    """Sum `tally(scores f32[B, M], truth f32[B, M])` over the test samples of the clients that are
    scored."""
    split = seen.test
    clients = jnp.arange(seen.federation.clients)

    def of_client(client: Array, total: Array, count: Array) -> Array:
        params = seen.model.unravel(seen.models[seen.scoring[client]])

        def visit(i: Array, carry: Array) -> Array:
            at = i * TILE + jnp.arange(TILE)
            valid = at < count
            each = tally(*_score(seen, params, client, at, valid))
            return carry + jnp.sum(jnp.where(valid[:, None, None], each, 0), axis=0)

        return jax.lax.fori_loop(0, -(-count // TILE), visit, total)

    def part(device: Array, width: int) -> Array:
        owner = None if split.shared else seen.federation.owner
        here = clients % width == device if owner is None else mask_own(owner, seen.who)
        count = jnp.where(here & seen.who, split.count, 0)
        return jax.lax.fori_loop(
            0, clients.shape[0], lambda c, total: of_client(c, total, count[c]), zero
        )

    return sum_devices(part)


def _score(
    seen: Seen, params: object, client: Array, at: Array, valid: Array
) -> tuple[jax.Array, jax.Array]:
    """Return (f32[B, M] log-probabilities of the labels, or logits if there may be several; f32[B,
    M] which are true)."""
    x, y = take(seen.federation, seen.test, client, at, valid)
    logits = seen.model.forward(params, x).astype(jnp.float32)
    if seen.federation.several:
        return logits, y.astype(jnp.float32)
    # The log-odds of the second of two classes
    if logits.shape[-1] == 1:
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
    logits = logits[..., : seen.federation.classes]
    return jax.nn.log_softmax(logits), jax.nn.one_hot(y, seen.federation.classes)
