"""HOST. What is held out: a part of each client's training samples for validation, and clients that
never train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfljax.errors import SpecError

# A client with fewer training samples keeps all of them for training
MIN_SPLIT_SIZE = 3
# Beside the seed, so that no other draw of a run has the same numbers
_SEED_TAG_HELD = 0x76616C69
_SEED_TAG_NEW = 0x6E6577
Rows = list[np.ndarray]


def hold_out(
    train: Sequence[np.ndarray], share: float, seed: int, origin: np.ndarray | None = None
) -> tuple[Rows, Rows]:
    """Split each client's training rows into rows that it trains on and rows that are held out for
    validation, in order.

    Args:
      train: i64[n_i] each client's training rows.
      share: The share to be held out: about as many rows, at least one and never all. Of samples
        that several clients hold in different views, all copies are held out or none.
      seed: The seed of the draw.
      origin: i64[rows] of which sample each row is a copy; None: rows are samples.
    """
    rows = [np.asarray(each) for each in train]
    if not any(len(each) >= MIN_SPLIT_SIZE for each in rows):
        raise SpecError(
            f"data.validation = {share}: no client has {MIN_SPLIT_SIZE} training samples; "
            "give fewer clients or leave it out"
        )
    samples = rows if origin is None else [origin[each] for each in rows]
    all_samples = np.concatenate(samples)
    if len(np.unique(all_samples)) == len(all_samples):
        # A generator for each client: what it holds out does not depend on the others
        held = [
            _draw(len(each), share, np.random.default_rng([seed, _SEED_TAG_HELD, client]))
            for client, each in enumerate(rows)
        ]
    else:
        chosen = _draw_shared(samples, share, np.random.default_rng([seed, _SEED_TAG_HELD]))
        held = [np.isin(each, chosen) for each in samples]
    trained_on = [each[~out] for each, out in zip(rows, held, strict=True)]
    held_out = [each[out] for each, out in zip(rows, held, strict=True)]
    return trained_on, held_out


def _held_sizes(sizes: np.ndarray, share: float) -> np.ndarray:
    """Return how many rows clients with i64[...] rows hold out."""
    wanted = np.minimum(np.maximum(1, np.rint(share * sizes)), sizes - 1)
    return np.where(sizes < MIN_SPLIT_SIZE, 0, wanted).astype(np.int64)


def _draw(size: int, share: float, rng: np.random.Generator) -> np.ndarray:
    held = np.zeros(size, bool)
    held[rng.permutation(size)[: _held_sizes(np.array(size), share)]] = True
    return held


def _draw_shared(samples: Rows, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return the samples that are held out for all clients that hold them: at random, as long as
    none of these has enough. Then clients that have got none get one, if it leaves all of its
    clients something to train on."""
    sizes = np.array([len(each) for each in samples])
    wanted = _held_sizes(sizes, share)
    taken = np.zeros(len(samples), np.int64)
    all_samples = np.concatenate(samples)
    owner = np.repeat(np.arange(len(samples)), sizes)
    order = np.argsort(all_samples, kind="stable")
    unique, start = np.unique(all_samples[order], return_index=True)
    owners = dict(zip(unique.tolist(), np.split(owner[order], start[1:]), strict=True))
    chosen = []
    for sample in rng.permutation(unique).tolist():
        if (taken[owners[sample]] < wanted[owners[sample]]).all():
            taken[owners[sample]] += 1
            chosen.append(sample)
    for client in np.flatnonzero((taken == 0) & (wanted > 0)):
        room = (
            sample
            for sample in rng.permutation(samples[client]).tolist()
            if (taken[owners[sample]] < sizes[owners[sample]] - 1).all()
        )
        if (sample := next(room, None)) is not None:
            taken[owners[sample]] += 1
            chosen.append(sample)
    return np.array(chosen, np.int64)


def drop_held(rows: np.ndarray, held: Rows, origin: np.ndarray | None = None) -> np.ndarray:
    """Return the rows of a client whose samples are not held out for any other client."""
    held_rows = np.concatenate(held)
    if origin is None:
        return rows[~np.isin(rows, held_rows)]
    return rows[~np.isin(origin[rows], origin[held_rows])]


def count_newcomers(clients: int, share: float) -> int:
    """Return how many clients this share of those with training samples is: at least one."""
    return max(1, round(share * clients))


def draw_newcomers(sizes: Sequence[int], share: float, seed: int) -> np.ndarray:
    """Draw which clients are newcomers, bool[C]: this share of those with training samples (`sizes`
    i[C]), at least one."""
    training = np.flatnonzero(np.asarray(sizes) > 0)
    number = count_newcomers(len(training), share)
    if number >= len(training):
        raise SpecError(
            f"data.new_clients.share = {share}: {len(training)} clients have training "
            "samples, and none would train"
        )
    new = np.zeros(len(sizes), bool)
    new[np.random.default_rng([seed, _SEED_TAG_NEW]).permutation(training)[:number]] = True
    return new


def keep_shots(
    train: Sequence[np.ndarray], new: np.ndarray, shots: int, seed: int
) -> list[np.ndarray]:
    """Reduce each newcomer's training rows to `shots` of them, drawn at random; a newcomer with
    fewer keeps all."""

    def draw(client: int, rows: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng([seed, _SEED_TAG_NEW, client])
        return np.asarray(rows)[np.sort(rng.permutation(len(rows))[:shots])]

    return [draw(client, rows) if new[client] else rows for client, rows in enumerate(train)]
