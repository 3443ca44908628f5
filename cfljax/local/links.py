"""Links: what happens to a vector on its way from a participant to the server, one link after
another. `send.Sending.links` lists those of a run, in their order."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.types import Array, Hyper


class Passage(NamedTuple):
    """Whose vector passes the links, and in which run and round."""

    # The numbers of the run
    hyper: Hyper
    # The random key of the client in this round
    key: Array
    # i32[]: the identity of the client
    uid: Array
    # The factor from the vector to an update: 1 for an update, the learning rate for a gradient
    unit: Array | float


class Link:
    """One link. Its fields are static; numbers that a grid varies are in `Passage.hyper`.

    A vector passes a link alone, and random draws depend on the client's identity, not on padding,
    order, blocks or devices.
    """

    def acts(self, hyper: Hyper) -> bool:
        """Return whether it changes vectors in a run with these numbers."""
        raise NotImplementedError

    def encode(
        self, passage: Passage, row: Array, residual: Array | None
    ) -> tuple[Array, Array | None]:
        """Return the vector f32[d] behind the link, and what the client keeps for its next one.

        Args:
            passage: Whose vector it is.
            row: f32[d] the vector in front of the link. One that is not finite must stay so.
            residual: f32[d] what the client has kept; None: it keeps nothing.
        """
        raise NotImplementedError

    # The arguments are for subclasses
    def bytes(self, d: int, before: int) -> int:  # noqa: ARG002
        """Return the bytes of a vector of d numbers behind the link; `before`: in front of it."""
        return before
