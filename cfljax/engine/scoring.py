"""Scoring: each client on its own test samples with the model it is given."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.devices.spread import devices, mask_own, sum_devices
from cfljax.kernels.choose import least_loss
from cfljax.lazy import jax, jnp
from cfljax.local.data import take
from cfljax.local.stream import block_size, client_losses, fold_blocks
from cfljax.types import Array, Federation, Model, Split

# Clients that choose a model try this many at a time. With at most this many models, all of them
# score all samples in one product where clients are computed side by side
MODELS_AT_ONCE = 32
# Samples of a client that its own model scores at once
TILE = 32
# Measured: a client that is scored by itself takes 8 µs, a sample 20 ns and 27 ps more for each
# parameter. In units of 27 ps a client costs CLIENT_COST, a sample SAMPLE_COST plus the parameters
CLIENT_COST = 300_000
SAMPLE_COST = 750
# (correct, loss)
Pair = tuple[Array, Array]


class Scores(NamedTuple):
    """Sums over each client's samples, as `score` returns them."""

    correct: Array
    """f32[C]: right answers; with another score than accuracy, the sum of the samples' scores (of
    their squared errors for R²)."""
    loss: Array
    """f32[C]: the sum of the losses."""
    samples: Array
    """i32[C]: the number of samples; 0 for clients that are not scored."""


def score(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    labels: Array,
    who: Array,
    sequential: bool = True,
) -> Scores:
    """Score clients on their own samples, each with one model. Returns sums for each client.

    Args:
        model: The network, with the loss and the rule of what is correct.
        federation: The clients' data.
        split: The samples that are scored, as `federation.test`.
        models: f32[K, d] the models.
        labels: i32[C] the row of `models` of each client.
        who: bool[C] the clients that are scored; others have 0 samples.
        sequential: Whether clients are computed one after another, which is faster on a CPU.

    Example:
        ```python
        scores = score(seen.model, seen.federation, seen.test, seen.models, seen.scoring, seen.who)
        accuracy = scores.correct.sum() / scores.samples.sum()
        ```
    """
    who = who & federation.real
    if split.shared:
        kinds, number = _list_kinds(federation)
        wanted = (
            jnp.zeros((models.shape[0], number), bool)
            .at[labels, jnp.where(who, kinds, number)]
            .set(True, mode="drop")
        )
        of_kinds = _score_shared(model, federation, split, models, wanted, sequential)
        correct = jnp.where(who, of_kinds[0][labels, kinds], 0.0)
        loss = jnp.where(who, of_kinds[1][labels, kinds], 0.0)
    elif _is_product_faster(model, federation, split, models.shape[0], sequential):
        correct, loss = _score_by_product(model, federation, split, models, labels, who, sequential)
    else:
        correct, loss = _score_one_by_one(model, federation, split, models, labels, who, sequential)
    return Scores(correct, loss, jnp.where(who, split.count, 0))


def score_mixtures(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    weights: Array,
    who: Array,
    sequential: bool = True,
) -> Scores:
    """Score as `score` does, but each client mixes the models: its probabilities are the weighted
    mean of the models' probabilities. All K models see the samples of all clients.

    Args:
        model: The network.
        federation: The clients' data.
        split: The samples that are scored.
        models: f32[K, d] the models.
        weights: f32[C, K] the weight of each model for each client; rows sum to 1.
        who: bool[C] the clients that are scored.
        sequential: Whether clients are computed one after another.
    """
    who = who & federation.real
    block = block_size(
        model, federation, models.shape[0], _count_samples(federation, split), sequential
    )
    params = jax.vmap(model.unravel)(models)
    log_weights = jnp.log(weights).T[..., None]

    def visit(sums: Array, x: Array, y: Array, owner: Array, valid: Array) -> Array:
        logits = jax.vmap(lambda p: model.forward(p, x))(params)
        # A single logit is the log-odds of the second of two classes
        log_odds = logits.shape[-1] == 1
        if log_odds:
            logits = jnp.concatenate([jnp.zeros_like(logits), logits], -1)
        mixed = jax.nn.logsumexp(jax.nn.log_softmax(logits) + log_weights[:, owner], axis=0)
        if log_odds:
            mixed = mixed[:, 1:] - mixed[:, :1]
        return _add_scores(model, sums, owner, mixed, y, valid)

    everyone = jnp.arange(federation.clients)
    zero = jnp.zeros((federation.clients, 2))
    correct, loss = fold_blocks(federation, split, everyone, who, block, visit, zero).T
    return Scores(correct, loss, jnp.where(who, split.count, 0))


def least_loss_among(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    candidates: Array,
    who: Array,
    sequential: bool = True,
) -> Array:
    """Find the candidate (bool[K]; at least one) with the smallest loss on each client's samples,
    ties to the lowest, i32[C], for the clients for which `who` bool[C] is True. Only the candidates
    are computed, MODELS_AT_ONCE at a time."""
    if split.shared:
        kinds, number_of_kinds = _list_kinds(federation)
        asked = (
            jnp.zeros(number_of_kinds, bool)
            .at[jnp.where(who, kinds, number_of_kinds)]
            .set(True, mode="drop")
        )
        wanted = candidates[:, None] & asked
        losses = _score_shared(model, federation, split, models, wanted, sequential)[1]
        losses = jnp.where(candidates[:, None], losses, jnp.nan)
        # With losses of NaN alone the first candidate is chosen, not model 0
        known = jnp.any(~jnp.isnan(losses), axis=0)
        return jnp.where(known, least_loss(losses), jnp.argmax(candidates)).astype(jnp.int32)[kinds]
    width = min(models.shape[0], MODELS_AT_ONCE)
    clients = jnp.arange(federation.clients)
    # The candidates, then the others
    first = jnp.argsort(~candidates, stable=True)
    number = jnp.sum(candidates, dtype=jnp.int32)

    def visit(b: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        index = b * width + jnp.arange(width)
        which = first[jnp.minimum(index, models.shape[0] - 1)].astype(jnp.int32)
        losses = client_losses(model, federation, split, models[which], clients, who, sequential)
        losses = jnp.where((index < number)[:, None] & ~jnp.isnan(losses), losses, jnp.inf)
        least = least_loss(losses)
        found = jnp.take_along_axis(losses, least[None], 0)[0]
        return jnp.minimum(found, best[0]), jnp.where(found < best[0], which[least], best[1])

    nothing_found = (
        jnp.full(federation.clients, jnp.inf),
        jnp.full(federation.clients, first[0], jnp.int32),
    )
    return jax.lax.fori_loop(0, -(-number // width), visit, nothing_found)[1]


def _is_product_faster(
    model: Model, federation: Federation, split: Split, models: int, sequential: bool
) -> bool:
    """Return whether evaluating all models on all samples, in large products, takes less time than
    each client's own, padded to whole tiles. Both are counted in samples that a model sees."""
    if not sequential:
        return models <= MODELS_AT_ONCE
    samples = _count_samples(federation, split)
    block = block_size(model, federation, models, samples)
    tile = min(TILE, max(split.longest, 1))
    clients = min(split.count.shape[0], samples)
    padded = min(clients * -(-split.longest // tile) * tile, samples + clients * tile)
    by_clients = padded + clients * CLIENT_COST // (SAMPLE_COST + model.size)
    return models * -(-samples // block) * block <= by_clients


def _count_samples(federation: Federation, split: Split) -> int:
    """Return an upper bound of the number of samples of all clients."""
    here = split.rows.shape[0] * (1 if federation.owner is None else devices())
    return max(1, min(here, split.count.shape[0] * split.longest))


def _list_kinds(federation: Federation) -> tuple[Array, int]:
    """Return the kind of each client, i32[C], and the number of kinds. Clients of one kind see a
    shared test set in the same way, and are scored on the same samples of it: all of them train, or
    none does."""
    view = federation.view
    untrained = (federation.train.count == 0).astype(jnp.int32)
    views = [] if view is None else [len(each) for each in view[1:] if each is not None]
    if view is None or not views:
        return untrained, 2
    return 2 * view.of + untrained, 2 * views[0]


def _score_shared(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    wanted: Array,
    sequential: bool,
) -> tuple[Array, Array]:
    """Score on the test set that all clients share, as each kind of clients sees it. Return correct
    f32[K, kinds] and loss f32[K, kinds]; zeros if not wanted (bool[K, kinds])."""
    block = block_size(model, federation, 1, split.rows.shape[0], sequential)
    kinds, number = _list_kinds(federation)
    slots = jnp.where(federation.real, kinds, number)
    # A client of each kind, as whom the test set is seen
    member = jnp.zeros(number, jnp.int32).at[slots].max(jnp.arange(federation.clients), mode="drop")

    def score_model(of_model: tuple[Array, Array]) -> Pair:
        flat, wanted_kinds = of_model
        params = model.unravel(flat)

        def visit(carry: Pair, x: Array, y: Array, _: Array, valid: Array) -> Pair:
            logits = model.forward(params, x)
            hits = model.correct(logits, y)
            losses = model.loss(logits, y)
            correct, loss = carry
            correct = correct + _sum_valid(hits, valid)
            return correct, loss + jnp.sum(jnp.where(valid, losses, 0.0))

        zero = (jnp.float32(0), jnp.float32(0))

        def score_kind(kind: tuple[Array, Array]) -> Pair:
            client, is_wanted = kind
            return fold_blocks(federation, split, client[None], is_wanted[None], block, visit, zero)

        return jax.lax.map(score_kind, (member, wanted_kinds))

    return jax.lax.map(score_model, (models, wanted))


def _score_by_product(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    labels: Array,
    who: Array,
    sequential: bool,
) -> tuple[Array, Array]:
    """Evaluate the K models side by side over all samples, and select the logits of each sample's
    own model. Return correct f32[C] and loss f32[C]."""
    block = block_size(
        model, federation, models.shape[0], _count_samples(federation, split), sequential
    )
    params = jax.vmap(model.unravel)(models)
    everyone = jnp.arange(federation.clients)

    def visit(sums: Array, x: Array, y: Array, owner: Array, valid: Array) -> Array:
        if len(models) == 1:
            logits = model.forward(jax.tree.map(lambda a: a[0], params), x)
        else:
            of_all = jax.vmap(lambda p: model.forward(p, x))(params)
            logits = jnp.take_along_axis(of_all, labels[owner][None, :, None], 0)[0]
        return _add_scores(model, sums, owner, logits, y, valid)

    zero = jnp.zeros((federation.clients, 2))
    correct, loss = fold_blocks(federation, split, everyone, who, block, visit, zero).T
    return correct, loss


def _sum_valid(hits: Array, valid: Array) -> Array:
    """Sum the right answers bool[B], or the scores f32[B], of a block's samples that are none of
    its padding."""
    return jnp.sum(valid & hits if hits.dtype == bool else jnp.where(valid, hits, 0.0))


def _add_scores(
    model: Model, sums: Array, owner: Array, logits: Array, y: Array, valid: Array
) -> Array:
    """Add the correct answers and losses of a block of samples to the sums of each client, f32[C,
    2], in one scatter."""
    hits = jnp.where(valid, model.correct(logits, y), False).astype(jnp.float32)
    return sums.at[owner].add(
        jnp.stack([hits, jnp.where(valid, model.loss(logits, y), 0.0)], axis=1)
    )


def _score_one_by_one(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    labels: Array,
    who: Array,
    sequential: bool,
) -> tuple[Array, Array]:
    """Score as `_score_by_product` does, client by client in small tiles. Devices share the
    clients; if the samples are on different devices, each device scores its own clients."""
    tile = min(TILE, max(split.longest, 1))
    clients = jnp.arange(federation.clients)

    def score_client(client: Array, count: Array) -> Pair:
        params = model.unravel(models[labels[client]])

        def visit(i: Array, carry: Pair) -> Pair:
            position = i * tile + jnp.arange(tile)
            valid = position < count
            x, y = take(federation, split, client, position, valid)
            logits = model.forward(params, x)
            hits = model.correct(logits, y)
            losses = model.loss(logits, y)
            correct, loss = carry
            correct = correct + _sum_valid(hits, valid)
            return correct, loss + jnp.sum(jnp.where(valid, losses, 0.0))

        return jax.lax.fori_loop(0, -(-count // tile), visit, (jnp.float32(0), jnp.float32(0)))

    def skip_client(_client: Array, _count: Array) -> Pair:
        return jnp.float32(0), jnp.float32(0)

    def score_own(device: Array, width: int) -> Pair:
        if federation.owner is not None:
            own = mask_own(federation.owner, who)
        else:
            own = who & (clients % width == device)
        count = jnp.where(own, split.count, 0)

        # A client without samples here does not even copy its model
        def score_if_any(client: Array) -> Pair:
            return jax.lax.cond(count[client] > 0, score_client, skip_client, client, count[client])

        if sequential:
            return jax.lax.map(score_if_any, clients)

        # Side by side, both branches would be computed, and each client get a copy of all samples
        # as an argument of them
        def score_always(client: Array) -> Pair:
            return score_client(client, count[client])

        return jax.lax.map(score_always, clients, batch_size=64)

    return sum_devices(score_own)
