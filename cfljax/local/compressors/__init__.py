"""The forms in which updates and models are sent (`train.compress`). Each module of this package is
one compressor: a class with its options, its formula, and the bytes of its messages. A plug-in adds
one by `cfljax.register_compressor`."""

from __future__ import annotations

import dataclasses
from typing import Any

from cfljax.errors import SpecError
from cfljax.registry import Entry, Registry
from cfljax.registry.options import option
from cfljax.types import Array


@dataclasses.dataclass(frozen=True)
class Compressor:
    """The table `train.compress`: how an update is compressed on its way up, and with
    `encode_down` a model on its way down. A subclass is a compressor: its fields are its options
    (`option(…)`), which are static. Without a function vectors are sent as they are.

    The server keeps its models as they are: participants train from what has arrived, and their
    updates, which count from there, move the server's.

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

    # The arguments are for subclasses
    def encode(self, key: Array, row: Array) -> Array:  # noqa: ARG002
        """Return f32[d]: the vector as the server reconstructs it. One that is not finite must stay
        not finite.

        Args:
            key: A random key of the client in this round.
            row: f32[d] the vector that is sent.
        """
        return row

    def bytes(self, d: int) -> int:
        """Return the bytes of a message to the server.

        Args:
            d: The numbers of the vector.
        """
        return 4 * d

    def encode_down(self, key: Array, row: Array) -> Array:  # noqa: ARG002
        """Return f32[d]: a model as participants reconstruct it, all of them alike.

        Args:
            key: A random key of the model in this round.
            row: f32[d] the model that the server sends.
        """
        return row

    def bytes_down(self, d: int) -> int:
        """Return the bytes of a message to a participant.

        Args:
            d: The numbers of the model.
        """
        return 4 * d

    def check_train(self, where: str, train: Any) -> None:
        """Reject other options of the table `train`, named `where`.

        Args:
            where: The name of the table.
            train: Its options.
        """
        if self.changes_downloads and train.divided_by:
            raise SpecError(
                f'{where}.compress.name = "{self.name}" with {train.divided_by}: models that '
                "change on their way down travel whole; leave out one"
            )

    @property
    def changes_downloads(self) -> bool:
        """Whether models arrive changed at participants."""
        return type(self).encode_down is not Compressor.encode_down


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
