"""How many updates are held at once, and the sizes of Gram matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cfljax.types import Plan

WHOLE = 1 << 28
"""Where the updates of all participants have at most this many bytes, they are held at once."""
BLOCK = 1 << 26
"""Bytes of updates in a block, where participants are taken in blocks."""
LADDER = (64, 128, 256, 512, 1024, 2048, 4096)
"""Sizes that clients are rounded up to on their Gram matrices. Fixed, so that other clients' sizes change no bit."""


def block_of(participants: int, size: int) -> int:
    """The number of participants whose updates f32[size] are held at once by methods that only need sums; 0: all."""
    return 0 if 4 * participants * size <= WHOLE else max(8, BLOCK // (4 * size))


def gram_sizes(plan: Plan, longest: int, batch: int | None) -> tuple[int, ...]:
    """The sizes of Gram matrices that clients of 1 … `longest` samples are trained on, whole batches each. Clients above the
    last of them are trained step by step."""
    if plan.gram < 1:
        return ()
    if longest <= plan.gram and (batch is None or not plan.sequential):
        sizes = [longest]  # whole batches are alike in the last bits only, anyway; side by side, all pay for the largest
    elif plan.sequential:
        sizes = [rung for rung, below in zip(LADDER, (0, *LADDER), strict=False) if below < longest and rung <= plan.gram]
    else:
        sizes = []
    unit = 1 if batch is None else min(batch, longest)
    return tuple(dict.fromkeys(-(-size // unit) * unit for size in sizes))
