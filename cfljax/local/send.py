"""An update's way from a participant to the server, and a model's way down (`download`).

Attackers change their updates; then the update is compressed, and clipped to the largest norm that
`train.privacy` allows. Updates are handled one at a time, and random draws depend on the client's
identity, not on padding, order, blocks or devices.

With error feedback (Seide et al. 2014; Karimireddy et al. 2019) a client adds its residual, the
part of its earlier updates that compression has dropped, to its update, and sends the compressed
sum; the sum minus the sent vector is its new residual. The residual is not clipped: the server
clips the received vector, and the clipped part is lost, as without feedback. An attacker's false
update is treated in the same way. An update that is not finite leaves the residual unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.lazy import jax, jnp
from cfljax.local.attacks import Attack
from cfljax.local.compressors import Compressor
from cfljax.types import Array, Hyper


class Sending(NamedTuple):
    """The options of the tables `train.compress`, `train.attack` and `train.robust` that are not
    traced. Static. The traced numbers (`privacy.clip`, `attack.share`, …) are in `hyper`."""

    # How updates are compressed; None: not at all
    compress: Compressor | None = None
    # What attackers do, without its numbers; None: there are none
    attack: Attack | None = None
    # The statistic of kernels/robust.py that replaces the mean; "": the mean
    robust: str = ""
    # Whether clients keep what compression drops, and add it to their next update
    feedback: bool = False
    # The positions of numbers that are not compressed: running statistics of batches. They are no
    # steps, so that their size has nothing to do with that of the others
    uncompressed: tuple[int, ...] = ()


def modifies(sending: Sending, hyper: Hyper) -> bool:
    """Return whether updates are modified on their way to the server."""
    return (
        sending.compress is not None
        or (sending.attack is not None and sending.attack.changes_updates)
        or "privacy.clip" in hyper
    )


def receive(
    sending: Sending,
    hyper: Hyper,
    key: Array,
    uid: Array,
    row: Array,
    residual: Array | None = None,
    unit: Array | float = 1.0,
) -> tuple[Array, Array | None]:
    """Return the vector that the server receives, and the client's residual afterwards.

    Args:
      sending: What happens to vectors on their way.
      hyper: The numbers of the run.
      key: The random key of the client in this round.
      uid: i32[] the identity of the client, by which it is an attacker or not.
      row: f32[d] the vector that the client means to send. A row that is not finite stays not
        finite.
      residual: f32[d] what compression has dropped so far; None: the client keeps none.
      unit: The factor from the row to an update, for the clipping: 1 for an update, the learning
        rate for a gradient.
    """
    if sending.attack is not None and sending.attack.changes_updates:
        false_row = sending.attack.falsify(hyper, keys.fold(key, "lie"), row)
        row = jnp.where(sending.attack.attacks(hyper, uid), false_row, row)
    if sending.compress is not None:
        whole = row if residual is None else row + residual
        row = _encode(sending.compress.encode, sending, keys.fold(key, "compress"), whole)
        if residual is not None:
            # A broken update must not break the client's later ones
            residual = jnp.where(jnp.isfinite(whole - row).all(), whole - row, residual)
    if "privacy.clip" in hyper:
        shorter = jnp.minimum(1.0, hyper["privacy.clip"] / (jnp.linalg.norm(row) * unit))
        # With a unit of 0 the server adds no noise (`server_rule`), so that nothing may be sent
        row = row * jnp.where(jnp.asarray(unit) > 0, shorter, 0.0)
    return row, residual


def _encode(
    encode: Callable[[Array, Array], Array], sending: Sending, key: Array, row: Array
) -> Array:
    """Encode the row f32[d] by a function (key, row) -> row of the compressor, apart from what is
    not compressed, and return it as the receiver reconstructs it, f32[d]."""
    if not sending.uncompressed:
        return encode(key, row)
    rest = np.delete(np.arange(row.shape[0]), sending.uncompressed)
    return row.at[rest].set(encode(key, row[rest]))


def download(sending: Sending, key: Array, models: Array) -> Array:
    """Return f32[K, d]: the server's models as participants receive them.

    Args:
      sending: What happens to vectors on their way.
      key: The random key of the round.
      models: f32[K, d] the models that are sent.
    """
    compressor = sending.compress
    if compressor is None or not compressor.changes_downloads:
        return models
    # The same for all that ask for a model in this round
    each = keys.fold_each(keys.fold(key, "download"), "model", jnp.arange(models.shape[0]))

    def arrive(of: tuple[Array, Array]) -> Array:
        return _encode(compressor.encode_down, sending, *of)

    return jax.lax.map(arrive, (each, models))
