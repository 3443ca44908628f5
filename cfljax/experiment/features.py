"""HOST. A federation whose samples are the features of a frozen body, each computed once before the
first round."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation.gather import samples
from cfljax.lazy import jax, jnp
from cfljax.models.features import split_features
from cfljax.types import Array, Federation, Model, Pool, Split, Tree, View, on_host

# How many samples pass through the body at a time: one shape, so that it is compiled once
SAMPLES_AT_A_TIME = 256


class DistinctSamples(NamedTuple):
    """The distinct samples that clients see."""

    # i32[P]: the row in the pool of each
    row: np.ndarray
    # i32[P]: a client that sees it so
    client: np.ndarray
    # The federation's splits, with rows that number these samples
    splits: dict[str, Split]


def find_distinct_samples(federation: Federation) -> DistinctSamples:
    """Find each sample once for every way in which it is seen: views that turn or shift samples
    make different samples of them."""
    view = federation.view
    changes = view is not None and any(
        each is not None for each in (view.pixels, view.gain, view.offset)
    )
    view_of_client = (
        np.asarray(view.of)
        if view is not None and changes
        else np.zeros(federation.clients, np.int32)
    )
    views = int(view_of_client.max(initial=0)) + 1
    # The first client of each view: in reverse order, the last assignment is the first client's
    first_client = np.full(views, 0, np.int32)
    first_client[view_of_client[::-1]] = np.arange(len(view_of_client), dtype=np.int32)[::-1]
    found = []
    splits = {}
    for name, split in federation.splits.items():
        split = _unshare(split) if split.shared and views > 1 else split
        # 64 bits, because row · views + view may exceed 32
        rows = np.asarray(split.rows).astype(np.int64)
        count = np.asarray(split.count)
        view_of_row = np.zeros(len(rows), np.int64)
        for client in np.flatnonzero(count) if not split.shared else ():
            begin = int(np.asarray(split.start)[client])
            view_of_row[begin : begin + count[client]] = view_of_client[client]
        found.append(rows * views + view_of_row)
        splits[name] = split
    distinct, index = np.unique(np.concatenate(found), return_inverse=True)
    edges = np.cumsum([len(each) for each in found])[:-1]
    for (name, split), rows in zip(splits.items(), np.split(index, edges), strict=True):
        splits[name] = dataclasses.replace(split, rows=on_host(rows.astype(np.int32)), grams=None)
    return DistinctSamples(
        (distinct // views).astype(np.int32), first_client[distinct % views], splits
    )


def _unshare(split: Split) -> Split:
    """Return the split with rows of its own for each client, which may see them in another view."""
    clients = len(np.asarray(split.count))
    each = int(np.asarray(split.count).max(initial=0))
    begin = int(np.asarray(split.start)[0])
    rows = np.tile(np.asarray(split.rows)[begin : begin + each], clients)
    start = np.arange(clients, dtype=np.int32) * each
    return dataclasses.replace(
        split, rows=on_host(rows) if each else split.rows, start=on_host(start), shared=False
    )


def compute_features(model: Model, whole: Tree, federation: Federation) -> Federation:
    """Return the federation with features instead of samples. `whole`: the parameters of the
    network."""
    features_and_logits, width = split_features(model)
    seen = find_distinct_samples(federation)

    @jax.jit
    def block(
        whole: Tree, federation: Federation, client: Array, row: Array
    ) -> tuple[Array, Array]:
        x, _ = samples(federation, client, row, jnp.ones(row.shape, bool))
        return features_and_logits(whole, x)

    out = np.zeros((len(seen.row), width), np.float32)
    for at in range(0, len(seen.row), SAMPLES_AT_A_TIME):
        part = slice(at, at + SAMPLES_AT_A_TIME)
        row, client = (np.resize(each[part], SAMPLES_AT_A_TIME) for each in (seen.row, seen.client))
        features, logits = block(whole, federation, client, row)
        if at == 0:
            _check_head(model, whole, np.asarray(features), np.asarray(logits), width)
        out[part] = np.asarray(features)[: len(out[part])]
    pool = federation.pool
    view = federation.view
    y = np.asarray(pool.y)[seen.row]
    # The pixels' transformations are in the features already; labels are still permuted
    labels = None if view is None or view.labels is None else View(view.of, labels=view.labels)
    samples_of = Pool(jnp.asarray(out), jnp.asarray(y), jnp.float32(0), jnp.float32(1))
    splits = jax.tree.map(jnp.asarray, seen.splits)
    return dataclasses.replace(
        federation.with_splits(splits), pool=samples_of, view=labels, form=None
    )


def _check_head(
    model: Model, whole: Tree, features: np.ndarray, logits: np.ndarray, width: int
) -> None:
    """Reject a network that does not return what its head makes of the features."""
    from cfljax.models.flat import head_of

    head = whole
    for step in head_of(model).split("/"):
        head = head[step]
    if features.shape[1] == width:
        made = features @ np.asarray(head["kernel"]) + np.asarray(head.get("bias", 0.0))
        if made.shape == logits.shape and np.allclose(
            made, logits, atol=1e-3 * (1 + np.abs(logits).max())
        ):
            return
    raise SpecError(
        f'model.frozen = "body": model "{model.name}" has no head that is its last step; '
        'take train.freeze = "body"'
    )
