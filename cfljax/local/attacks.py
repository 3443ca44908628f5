"""Clients that send false updates or have false labels (`train.attack`): the options, who they are,
and what they do."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np

from cfljax import keys
from cfljax.lazy import jax, jnp
from cfljax.local.links import Link, Passage
from cfljax.registry.options import NamedTable, option
from cfljax.types import Array, Federation, HostHyper, Hyper, View

# Scores of identities have 24 bits, which a float32 holds exactly
_SCORES = 1 << 24


@dataclasses.dataclass(frozen=True)
class Attack(NamedTable, Link):
    """The table `train.attack`: clients that send false updates, or have false labels. Its numbers
    are in `hyper`."""

    OWNERS = {"factor": (1.0, ("sign_flip", "noise"))}
    name: str = option(help="what they do", choices=("sign_flip", "noise", "label_flip"))
    share: float = option(help="the share of the clients", low=0, high=1, traced=True)
    factor: float | None = option(
        None, "length of a false update, relative to the true one (1.0)", low=0, traced=True
    )
    seed: int = option(
        0,
        "seed that decides which clients attack, for all methods and seeds alike",
        low=0,
        high=2**31 - 1,
    )

    def acts(self, hyper: Hyper) -> bool:  # noqa: ARG002
        """Return whether attackers change their updates; False: their labels."""
        return self.name in ("sign_flip", "noise")

    def encode(
        self, passage: Passage, row: Array, residual: Array | None
    ) -> tuple[Array, Array | None]:
        """Return what the client sends: if it is an attacker, a false update."""
        hyper = passage.hyper
        false_row = self.falsify(hyper, keys.fold(passage.key, "lie"), row)
        return jnp.where(self.attacks(hyper, passage.uid), false_row, row), residual

    def attacks(self, hyper: Hyper, uid: Array) -> Array:
        """Return whether the client of this identity i32[] is an attacker, bool[]."""
        return _draw_scores(self.seed, jnp.asarray(uid)[None])[0] < hyper["attack.share"]

    def falsify(self, hyper: Hyper, key: Array, row: Array) -> Array:
        """Return what an attacker sends instead of the row f32[d]."""
        if self.name == "sign_flip":
            return -hyper["attack.factor"] * row
        # Noise with the row's norm, on average, times the factor
        return (
            hyper["attack.factor"]
            * jnp.linalg.norm(row)
            / row.shape[0] ** 0.5
            * jax.random.normal(key, row.shape)
        )


def attackers(attack: Attack, hyper: Hyper, federation: Federation) -> Array:
    """Mark the attackers, bool[C]. A client without training data is not one, because it sends
    nothing."""
    return (
        jax.vmap(lambda uid: attack.attacks(hyper, uid))(jnp.asarray(federation.uid))
        & federation.trains
    )


def _draw_scores(seed: int, uid: Array) -> Array:
    """Draw a score in [0, 1) for each identity i32[n], f32[n]. The attackers are the clients with
    the smallest scores."""
    return (keys.scores(keys.root(seed), "liar", uid) >> 8).astype(jnp.float32) / _SCORES


def exact_share(attack: Attack | None, hyper: HostHyper, federation: Federation) -> HostHyper:
    """HOST. Replace `attack.share` by the threshold on `_draw_scores` that makes exactly this share
    (rounded) of the clients that train attackers."""
    if attack is None or "attack.share" not in hyper:
        return hyper
    scores = np.asarray(_draw_scores(attack.seed, jnp.asarray(federation.uid)))
    scores = np.sort(scores[np.asarray(federation.trains)])
    number = int(np.floor(cast("float", hyper["attack.share"]) * len(scores) + 0.5))
    # Just above the score of the last attacker
    return hyper | {"attack.share": float(scores[number - 1]) + 1 / _SCORES if number else 0.0}


def flip_labels(attack: Attack | None, hyper: Hyper, federation: Federation) -> Federation:
    """Return the federation that methods train on: with `attack = "label_flip"` an attacker's label
    y becomes M − 1 − y."""
    if attack is None or attack.name != "label_flip":
        return federation
    old = federation.view
    if old is None:
        old = View(jnp.zeros(federation.clients, jnp.int32))
    tables = [
        table for table in (old.pixels, old.labels, old.gain, old.offset) if table is not None
    ]
    views = tables[0].shape[0] if tables else 1
    same = jnp.tile(jnp.arange(federation.classes, dtype=jnp.int32), (views, 1))
    labels = same if old.labels is None else jnp.asarray(old.labels)

    def double(table: Array | None) -> Array | None:
        return None if table is None else jnp.concatenate([jnp.asarray(table)] * 2)

    # Each view exists twice, the second time with flipped labels; attackers have this one
    of = jnp.asarray(old.of) + views * attackers(attack, hyper, federation)
    flipped = jnp.concatenate([labels, federation.classes - 1 - labels])
    view = View(
        of.astype(jnp.int32),
        double(old.pixels),
        flipped,
        double(old.gain),
        double(old.offset),
        double(old.by_label),
    )
    return dataclasses.replace(federation, view=view)
