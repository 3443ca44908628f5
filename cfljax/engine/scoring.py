"""Scoring: each client on its own test samples with the model it is given."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.devices.spread import devices, mask_own, sum_devices
from cfljax.kernels.choose import least_loss
from cfljax.lazy import jax, jnp
from cfljax.local.data import take
from cfljax.local.stream import block_size, client_losses, fold_blocks
from cfljax.types import Array, Federation, Model, Split

MODELS_AT_ONCE = 32
"""Clients that choose a model try this many at a time. With at most this many models, all of them
score all samples in one product where clients are computed side by side."""
# Samples of a client that its own model scores at once
TILE = 32
BY_ITSELF, SMALL = 300_000, 750
"""A client that is scored by itself costs BY_ITSELF / (SMALL + parameters) samples on top
(measured: 8 µs a client; 20 ns a sample and 27 ps more for each parameter)."""
# (correct, loss)
Pair = tuple[Array, Array]


class Scores(NamedTuple):
    """Sums over each client's samples."""

    # f32[C]
    correct: Array
    # f32[C]: the sum of the losses
    loss: Array
    # i32[C]; 0 for clients that are not scored
    samples: Array


def score(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    labels: Array,
    who: Array,
    sequential: bool = True,
) -> Scores:
    """Score the clients for which `who` is True, each with `models[labels]`."""
    who = who & federation.real
    if split.shared:
        kinds, number = _kinds(federation)
        wanted = (
            jnp.zeros((models.shape[0], number), bool)
            .at[labels, jnp.where(who, kinds, number)]
            .set(True, mode="drop")
        )
        sums = _score_shared(model, federation, split, models, wanted, sequential)
        correct, loss = (jnp.where(who, each[labels, kinds], 0.0) for each in sums)
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
    """Score as `score` does, but each client mixes the models with weights f32[C, K]: its
    probabilities are the weighted mean of the models' probabilities. All K models see the samples
    of all clients."""
    who = who & federation.real
    block = block_size(
        model, federation, models.shape[0], _count_samples(federation, split), sequential
    )
    params = jax.vmap(model.unravel)(models)
    log_weights = jnp.log(weights).T[..., None]

    def visit(sums: Array, x: Array, y: Array, owner: Array, valid: Array) -> Array:
        logits = jax.vmap(lambda p: model.forward(p, x))(params)
        # The log-odds of the second of two classes
        one = logits.shape[-1] == 1
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], -1) if one else logits
        mixed = jax.nn.logsumexp(jax.nn.log_softmax(logits) + log_weights[:, owner], axis=0)
        return _add_scores(
            model, sums, owner, mixed[:, 1:] - mixed[:, :1] if one else mixed, y, valid
        )

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
        kinds, many = _kinds(federation)
        wanted = candidates[:, None] & jnp.zeros(many, bool).at[jnp.where(who, kinds, many)].set(
            True, mode="drop"
        )
        losses = jnp.where(
            candidates[:, None],
            _score_shared(model, federation, split, models, wanted, sequential)[1],
            jnp.nan,
        )
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

    nobody = (
        jnp.full(federation.clients, jnp.inf),
        jnp.full(federation.clients, first[0], jnp.int32),
    )
    return jax.lax.fori_loop(0, -(-number // width), visit, nobody)[1]


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
    return models * -(-samples // block) * block <= padded + clients * BY_ITSELF // (
        SMALL + model.size
    )


def _count_samples(federation: Federation, split: Split) -> int:
    """Return an upper bound of the number of samples of all clients."""
    here = split.rows.shape[0] * (1 if federation.owner is None else devices())
    return max(1, min(here, split.count.shape[0] * split.longest))


def _kinds(federation: Federation) -> tuple[Array, int]:
    """Return (i32[C] the kind of each client, the number of kinds). Clients of one kind see a
    shared test set in the same way, and are scored on the same samples of it: all of them train, or
    none does."""
    view = federation.view
    alone = (federation.train.count == 0).astype(jnp.int32)
    views = [] if view is None else [len(each) for each in view[1:] if each is not None]
    return (2 * view.of + alone, 2 * views[0]) if view is not None and views else (alone, 2)


def _score_shared(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    wanted: Array,
    sequential: bool,
) -> tuple[Array, Array]:
    """Score on the test set that all clients share, as each kind of clients sees it: (correct
    f32[K, kinds], loss f32[K, kinds]); zeros if not wanted (bool[K, kinds])."""
    block = block_size(model, federation, 1, split.rows.shape[0], sequential)
    kinds, number = _kinds(federation)
    slots = jnp.where(federation.real, kinds, number)
    member = jnp.zeros(number, jnp.int32).at[slots].max(jnp.arange(federation.clients), mode="drop")

    def one(at: tuple[Array, Array]) -> tuple[Array, Array]:
        params = model.unravel(at[0])
        row = at[1]

        def visit(carry: Pair, x: Array, y: Array, _: Array, valid: Array) -> Pair:
            logits = model.forward(params, x)
            hits = model.correct(logits, y)
            losses = model.loss(logits, y)
            return carry[0] + jnp.sum(valid & hits), carry[1] + jnp.sum(
                jnp.where(valid, losses, 0.0)
            )

        zero = (jnp.float32(0), jnp.float32(0))

        def of_kind(kind: tuple[Array, Array]) -> tuple[Array, Array]:
            return fold_blocks(federation, split, kind[0][None], kind[1][None], block, visit, zero)

        return jax.lax.map(of_kind, (member, row))

    return jax.lax.map(one, (models, wanted))


def _score_by_product(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    labels: Array,
    who: Array,
    sequential: bool,
) -> tuple[Array, Array]:
    """Evaluate the K models side by side over all samples, and select each sample's own: (correct
    f32[C], loss f32[C])."""
    block = block_size(
        model, federation, models.shape[0], _count_samples(federation, split), sequential
    )
    params = jax.vmap(model.unravel)(models)
    everyone = jnp.arange(federation.clients)

    def visit(sums: Array, x: Array, y: Array, owner: Array, valid: Array) -> Array:
        if len(models) == 1:
            return _add_scores(
                model, sums, owner, model.forward(jax.tree.map(lambda a: a[0], params), x), y, valid
            )
        logits = jax.vmap(lambda p: model.forward(p, x))(params)
        chosen = jnp.take_along_axis(logits, labels[owner][None, :, None], 0)[0]
        return _add_scores(model, sums, owner, chosen, y, valid)

    correct, loss = fold_blocks(
        federation, split, everyone, who, block, visit, jnp.zeros((federation.clients, 2))
    ).T
    return correct, loss


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

    def scored(client: Array, count: Array) -> tuple[Array, Array]:
        params = model.unravel(models[labels[client]])

        def visit(i: Array, carry: Pair) -> Pair:
            where = i * tile + jnp.arange(tile)
            valid = where < count
            x, y = take(federation, split, client, where, valid)
            logits = model.forward(params, x)
            hits = model.correct(logits, y)
            losses = model.loss(logits, y)
            return carry[0] + jnp.sum(valid & hits), carry[1] + jnp.sum(
                jnp.where(valid, losses, 0.0)
            )

        return jax.lax.fori_loop(0, -(-count // tile), visit, (jnp.float32(0), jnp.float32(0)))

    def part(device: Array, width: int) -> tuple[Array, Array]:
        here = (
            mask_own(federation.owner, who)
            if federation.owner is not None
            else who & (clients % width == device)
        )
        count = jnp.where(here, split.count, 0)
        nothing = lambda *_: (jnp.float32(0), jnp.float32(0))  # noqa: E731 (does not even copy the model)
        one = lambda client: jax.lax.cond(count[client] > 0, scored, nothing, client, count[client])  # noqa: E731
        if sequential:
            return jax.lax.map(one, clients)
        # side by side, both branches would be computed, and each client get a copy of all samples
        # as an argument of them
        return jax.lax.map(lambda client: scored(client, count[client]), clients, batch_size=64)

    return sum_devices(part)
