"""The number of updates that are held at once, and the sizes of Gram matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cfljax.types import Plan

MAX_HELD_BYTES = 1 << 28
"""If the updates of all participants have at most this number of bytes, they are held at once."""
BLOCK_BYTES = 1 << 26
"""Otherwise participants train in blocks whose updates have about this number of bytes."""
GRAM_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
"""The sizes of Gram matrices: a client is padded to the smallest that its samples fit into. They are fixed, so that a client's
result does not depend on the sizes of other clients."""


def choose_block(participants: int, size: int) -> int:
    """Return the number of participants in a block, for methods that need only sums of updates f32[size]; 0: all at once."""
    return 0 if 4 * participants * size <= MAX_HELD_BYTES else max(8, BLOCK_BYTES // (4 * size))


def gram_sizes(plan: Plan, longest: int, batch: int | None) -> tuple[int, ...]:
    """Return the sizes of Gram matrices, ascending, for clients of 1 … `longest` samples. Each is a multiple of the batch size.
    Clients larger than the last size are trained step by step."""
    if plan.gram < 1:
        return ()
    if longest <= plan.gram and (batch is None or not plan.sequential):
        sizes = [longest]  # a full batch changes the last bits anyway; side by side, all clients take the time of the largest
    elif plan.sequential:
        sizes = [rung for rung, below in zip(GRAM_SIZES, (0, *GRAM_SIZES), strict=False) if below < longest and rung <= plan.gram]
    else:
        sizes = []
    unit = 1 if batch is None else min(batch, longest)
    return tuple(dict.fromkeys(-(-size // unit) * unit for size in sizes))
