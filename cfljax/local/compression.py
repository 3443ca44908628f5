"""The link of `train.compress`, with error feedback.

With error feedback (Seide et al. 2014; Karimireddy et al. 2019) a client adds its residual, the
part of its earlier updates that compression has dropped, to its update, and sends the compressed
sum; the sum minus the sent vector is its new residual. An attacker's false update is treated in the
same way. An update that is not finite leaves the residual unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from cfljax import keys
from cfljax.lazy import jax, jnp
from cfljax.local.compressors import Compressor
from cfljax.local.links import Link, Passage
from cfljax.types import Array, Hyper


@dataclasses.dataclass(frozen=True)
class Compression(Link):
    """Compresses vectors on their way up, and models on their way down."""

    compressor: Compressor
    uncompressed: tuple[int, ...] = ()
    """The positions of numbers that are sent as they are: running statistics of batches. They are
    no steps, so that their size has nothing to do with that of the others."""

    def acts(self, hyper: Hyper) -> bool:  # noqa: ARG002
        """Return True: a compressor changes every vector."""
        return True

    def encode(
        self, passage: Passage, row: Array, residual: Array | None
    ) -> tuple[Array, Array | None]:
        """Return the vector as the server reconstructs it, and what is left of it."""
        whole = row if residual is None else row + residual
        sent = self._send(self.compressor.encode, keys.fold(passage.key, "compress"), whole)
        if residual is not None:
            # A broken update must not break the client's later ones
            residual = jnp.where(jnp.isfinite(whole - sent).all(), whole - sent, residual)
        return sent, residual

    def bytes(self, d: int, before: int) -> int:  # noqa: ARG002
        """Return the bytes of a compressed vector."""
        rest = len(self.uncompressed)
        return 4 * rest + self.compressor.bytes(d - rest)

    def download(self, key: Array, models: Array) -> Array:
        """Return f32[K, d]: models as participants receive them.

        Args:
            key: The random key of the round.
            models: f32[K, d] the models that are sent.
        """
        # The same for all that ask for a model in this round
        each = keys.fold_each(keys.fold(key, "download"), "model", jnp.arange(models.shape[0]))

        def arrive(of: tuple[Array, Array]) -> Array:
            return self._send(self.compressor.encode_down, *of)

        return jax.lax.map(arrive, (each, models))

    def bytes_down(self, d: int) -> int:
        """Return the bytes of a compressed model of d numbers."""
        rest = len(self.uncompressed)
        return 4 * rest + self.compressor.bytes_down(d - rest)

    def _send(self, encode: Callable[[Array, Array], Array], key: Array, row: Array) -> Array:
        """Encode the row f32[d] by a function (key, row) -> row of the compressor, apart from what
        is not compressed, and return it as the receiver reconstructs it, f32[d]."""
        if not self.uncompressed:
            return encode(key, row)
        rest = np.delete(np.arange(row.shape[0]), self.uncompressed)
        return row.at[rest].set(encode(key, row[rest]))
