"""How FedGroup assigns newcomers: the model that they pre-train from, and what their updates are compared with (eq. 9)."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.kernels.inter_group import newcomer_group
from cfljax.lazy import jnp
from cfljax.local.solver import Solver
from cfljax.methods.shared.pretrain import in_chunks, pretrain
from cfljax.types import Array, Federation, Hyper


class Compass(NamedTuple):
    """What the assignment of newcomers needs: the model that a newcomer pre-trains from, and what its update is compared with."""

    start: Array
    """f32[d]: w_0 or the auxiliary global model."""
    directions: Array
    """f32[K, d]: the direction of each group: its mean update of the cold start, its latest update, or its model minus `start`."""
    active: Array
    """bool[K]: groups that have members from the cold start."""


def turned(compass: Compass, before: Array, after: Array, moved: Array, newcomer: str) -> Compass:
    """What newcomers are compared with after a round: from the auxiliary model, the groups' latest updates (those of groups
    that moved bool[K]; the others keep theirs), or where the groups' models lie. `before`, `after`: f32[K, d] these
    models."""
    start = _mean(after, jnp.asarray(compass.active))
    latest = jnp.where(moved[:, None], after - before, compass.directions)
    seen = jnp.where(compass.active[:, None], after - start, 0.0)
    return compass._replace(start=start, directions=latest if newcomer == "latest" else seen)


def closest(before: Solver, key: Array, federation: Federation, hyper: Hyper, compass: Compass, ids: Array, mask: Array) -> Array:
    """i32[n]: client cold start, the group that each of ids i32[n] joins."""
    return joined(compass, pretrain(before, key, federation, hyper, compass.start, ids, mask))


def joined(compass: Compass, delta: Array) -> Array:
    """i32[n]: the groups that updates f32[n, d] are closest to."""
    return newcomer_group(compass.directions, delta, compass.active)  # eq. 9


def place(before: Solver, key: Array, federation: Federation, hyper: Hyper, compass: Compass, who: Array) -> Array:
    """i32[C]: the same for all clients where who bool[C], a few at a time; −1 elsewhere."""
    return in_chunks(lambda ids, mask: closest(before, key, federation, hyper, compass, ids, mask), who)


def _mean(models: Array, active: Array) -> Array:
    """f32[d]: the auxiliary global model, the unweighted mean of the groups'."""
    usable = active & jnp.isfinite(models).all(axis=1)
    return jnp.where(usable[:, None], models, 0.0).sum(axis=0) / jnp.maximum(usable.sum(), 1)
