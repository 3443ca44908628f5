"""What happens to an update between a participant and the server: attackers change it, it is compressed, and it is clipped to the
largest norm that `train.privacy` allows. One row at a time, with random draws by the client's identity: no draw depends on padding,
order, blocks or devices."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.kernels.mix import PLAIN, Rule
from cfljax.types import Array, Federation, Hyper, View

_UNIT = 1 << 24


class Sending(NamedTuple):
    """The words of the tables `train.compress`, `attack` and `robust`; "": nothing happens. Static: the numbers (`privacy.clip`,
    `attack.share`, …) are in `hyper`."""

    compress: str = ""
    """ "topk", "int8" or "sign"."""
    kept: float = 0.0
    """The share of the numbers that "topk" sends."""
    nearest: bool = False
    """ "int8" rounds to the nearest, not at random."""
    attack: str = ""
    """ "sign_flip", "noise" or "label_flip"."""
    seed: int = 0
    """The seed that attackers are drawn with."""
    robust: str = ""
    """A statistic of kernels/robust.py."""


def touched(sending: Sending, hyper: Hyper) -> bool:
    """Whether something happens to an update on its way."""
    return bool(sending.compress) or sending.attack in ("sign_flip", "noise") or "privacy.clip" in hyper


def arrived(sending: Sending, hyper: Hyper, key: Array, uid: Array, row: Array, unit: Array | float = 1.0) -> Array:
    """f32[d]: what the server has of the update `row` f32[d] of client uid. `unit`: what a number of the row is worth in those
    of an update (a gradient: the learning rate). A row that is not finite stays so."""
    if sending.attack in ("sign_flip", "noise"):
        row = jnp.where(_attacks(sending, hyper, uid), _changed(sending, hyper, keys.fold(key, "lie"), row), row)
    if sending.compress:
        row = compressed(sending, keys.fold(key, "compress"), row)
    if "privacy.clip" in hyper:
        shorter = jnp.minimum(1.0, hyper["privacy.clip"] / (jnp.linalg.norm(row) * unit))
        row = row * jnp.where(jnp.asarray(unit) > 0, shorter, 0.0)  # what is worth nothing gets no noise either
    return row


def _changed(sending: Sending, hyper: Hyper, key: Array, row: Array) -> Array:
    factor = hyper["attack.factor"]
    if sending.attack == "sign_flip":
        return -factor * row
    return factor * jnp.linalg.norm(row) / row.shape[0] ** 0.5 * jax.random.normal(key, row.shape)


def compressed(sending: Sending, key: Array, row: Array) -> Array:
    """f32[d]: the row as it is after it was sent with fewer bytes."""
    if sending.compress == "topk":
        kept = min(row.shape[0], max(1, int(np.ceil(sending.kept * row.shape[0] - 1e-6))))
        largest = jax.lax.top_k(jnp.abs(row), kept)[1]
        return jnp.zeros_like(row).at[largest].set(row[largest])
    if sending.compress == "sign":
        return jnp.sign(row) * jnp.mean(jnp.abs(row))
    step = jnp.max(jnp.abs(row)) / 127
    parts = jnp.where(step == 0, 0.0, row / step)
    if sending.nearest:
        return jnp.round(parts) * step
    low = jnp.floor(parts)
    return (low + (jax.random.uniform(key, row.shape) < parts - low)) * step


def server_rule(sending: Sending, key: Array, hyper: Hyper, unit: Array | float | None = None) -> Rule:
    """How the server adds up what arrives in the round of this key. `unit`: as in `arrived`, for what is sent beside the update."""
    made = PLAIN
    if sending.robust:
        number = hyper.get("robust.trim", hyper.get("robust.liars", 0.0))
        made = made._replace(statistic=sending.robust, number=number)
    if "privacy.noise" in hyper:
        noise = hyper["privacy.noise"] * hyper["privacy.clip"]
        if unit is not None:
            worth = jnp.asarray(unit)
            noise = jnp.where(worth > 0, noise / worth, 0.0)
        made = made._replace(noise=noise, key=keys.fold(key, "noise" if unit is None else "noise beside"))
    return made


def attackers(sending: Sending, hyper: Hyper, federation: Federation) -> Array:
    """bool[C]: the attackers. A client that holds no training data never sends anything."""
    return jax.vmap(lambda uid: _attacks(sending, hyper, uid))(jnp.asarray(federation.uid)) & federation.trains


def _attacks(sending: Sending, hyper: Hyper, uid: Array) -> Array:
    return _luck(sending.seed, jnp.asarray(uid)[None])[0] < hyper["attack.share"]


def _luck(seed: int, uid: Array) -> Array:
    """f32[n] in [0, 1), by identity."""
    return (keys.scores(keys.root(seed), "liar", uid) >> 8).astype(jnp.float32) / _UNIT


def exact_share(sending: Sending, hyper: dict[str, float], federation: Federation) -> dict[str, float]:
    """HOST. The numbers with `attack.share` moved to where it makes that share of the clients that train attackers, rounded."""
    if "attack.share" not in hyper:
        return hyper
    luck = np.sort(np.asarray(_luck(sending.seed, jnp.asarray(federation.uid)))[np.asarray(federation.trains)])
    number = int(np.floor(hyper["attack.share"] * len(luck) + 0.5))
    return hyper | {"attack.share": float(luck[number - 1]) + 1 / _UNIT if number else 0.0}


def as_trained_on(sending: Sending, hyper: Hyper, federation: Federation) -> Federation:
    """The federation that methods see: with `attack = "label_flip"` attackers see label y as M − 1 − y."""
    if sending.attack != "label_flip":
        return federation
    old = View(jnp.zeros(federation.clients, jnp.int32)) if federation.view is None else federation.view
    tables = [table for table in (old.pixels, old.labels, old.gain, old.offset) if table is not None]
    views = tables[0].shape[0] if tables else 1
    same = jnp.tile(jnp.arange(federation.classes, dtype=jnp.int32), (views, 1))
    labels = same if old.labels is None else jnp.asarray(old.labels)
    twice = lambda table: None if table is None else jnp.concatenate([jnp.asarray(table)] * 2)  # noqa: E731
    of = jnp.asarray(old.of) + views * attackers(sending, hyper, federation)
    flipped = jnp.concatenate([labels, federation.classes - 1 - labels])
    view = View(of.astype(jnp.int32), twice(old.pixels), flipped, twice(old.gain), twice(old.offset))
    return dataclasses.replace(federation, view=view)
