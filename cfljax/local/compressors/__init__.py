"""The forms in which participants send their updates (`train.compress`). Each module of this
package is one compressor: a class with its options, its formula, and the bytes of its messages. A
plug-in adds one by `cfljax.register_compressor`."""

from __future__ import annotations

import dataclasses

from cfljax.registry import Entry, Registry
from cfljax.registry.options import option
from cfljax.types import Array


@dataclasses.dataclass(frozen=True)
class Compressor:
    """The table `train.compress`: how an update is compressed. A subclass is a compressor: its
    fields are its options (`option(…)`), which are static.

    Attacks, error feedback, clipping, and what of a model is not sent are not the compressor's
    business.

    Example:
        ```python
        @cfljax.register_compressor("half")
        @dataclasses.dataclass(frozen=True)
        class Half(Compressor):
            def encode(self, key, row):
                return row.astype(jnp.float16).astype(jnp.float32)

            def bytes(self, d):
                return 2 * d
        ```
    """

    name: str = option("", "how")
    feedback: bool = option(
        False, "error feedback: a client adds what was dropped to its next update"
    )

    def encode(self, key: Array, row: Array) -> Array:
        """Return f32[d]: the vector as the server reconstructs it. One that is not finite must stay
        not finite.

        Args:
            key: A random key of the client in this round.
            row: f32[d] the vector that is sent.
        """
        raise NotImplementedError

    def bytes(self, d: int) -> int:
        """Return the bytes of a message.

        Args:
            d: The numbers of the vector.
        """
        raise NotImplementedError


def entry(_: str, made: type[Compressor]) -> Entry[type[Compressor]]:
    """Return the entry of a compressor, whose class holds its options, too."""
    return Entry(made, made)


COMPRESSORS: Registry[type[Compressor]] = Registry(
    "compressor",
    {
        "topk": "cfljax.local.compressors.topk:TopK",
        "int8": "cfljax.local.compressors.int8:Int8",
        "sign": "cfljax.local.compressors.sign:Sign",
    },
    "cfljax.compressors",
    base=Compressor,
    maker="cfljax.local.compressors:entry",
)
"""Compressors of the package and of users."""
BUILT_IN = tuple(COMPRESSORS)
"""The names of the package's own."""
