"""An update's way from a participant to the server, and a model's way down: the links of a run in
their order. Attackers change their updates; then an update is compressed, and clipped to the
largest norm that `train.privacy` allows."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.local.attacks import Attack
from cfljax.local.compression import Compression
from cfljax.local.compressors import Compressor
from cfljax.local.links import Link, Passage
from cfljax.local.privacy import Clip
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
    # The positions of numbers that are not compressed
    uncompressed: tuple[int, ...] = ()

    @property
    def compression(self) -> Compression | None:
        """The link that compresses; None: there is none."""
        return None if self.compress is None else Compression(self.compress, self.uncompressed)

    @property
    def links(self) -> tuple[Link, ...]:
        """What happens to a vector on its way up, in this order."""
        return tuple(link for link in (self.attack, self.compression, Clip()) if link is not None)

    def bytes_up(self, d: int) -> int:
        """Return the bytes of an update of d numbers as a participant sends it."""
        size = 4 * d
        for link in self.links:
            size = link.bytes(d, size)
        return size

    def bytes_down(self, d: int) -> int | None:
        """Return the bytes of a model of d numbers as a participant receives it; None: four for
        each number that travels."""
        if self.compress is None or self.compression is None or not self.compress.changes_downloads:
            return None
        return self.compression.bytes_down(d)


def modifies(sending: Sending, hyper: Hyper) -> bool:
    """Return whether updates are modified on their way to the server."""
    return any(link.acts(hyper) for link in sending.links)


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
    passage = Passage(hyper, key, uid, unit)
    for link in sending.links:
        if link.acts(hyper):
            row, residual = link.encode(passage, row, residual)
    return row, residual


def download(sending: Sending, key: Array, models: Array) -> Array:
    """Return f32[K, d]: the server's models as participants receive them.

    Args:
      sending: What happens to vectors on their way.
      key: The random key of the round.
      models: f32[K, d] the models that are sent.
    """
    if sending.compress is None or not sending.compress.changes_downloads:
        return models
    return Compression(sending.compress, sending.uncompressed).download(key, models)
