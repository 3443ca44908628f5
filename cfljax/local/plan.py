"""How local training is carried out. Plans differ in speed, not in results (beyond rounding)."""

from __future__ import annotations

from typing import NamedTuple

WHOLE = 1 << 28
"""Bytes of updates up to which all participants' are held at once."""
BLOCK = 1 << 26
"""Bytes of updates in a block, beyond."""
LADDER = (64, 128, 256, 512, 1024, 2048, 4096)
"""Sizes that clients are rounded up to on their Gram matrices. Fixed, so that other clients' sizes change no bit."""


class Plan(NamedTuple):
    """An execution plan: static."""

    lanes: int = 1
    """Clients side by side at a time: one, the fast way on a CPU, or many (cfljax.local.lanes), or all of them (0)."""
    gram: int = 0
    """Clients of at most so many samples are trained on their Gram matrix (cfljax.local.gram), where that is exact."""
    stream: int = 0
    """Methods that only need sums of updates take the participants in blocks of so many; 0: all at once."""
    alike: bool = False
    """All clients have as much to do: devices get equally many of them, and no places to spare."""

    @property
    def sequential(self) -> bool:
        """Clients one after another."""
        return self.lanes == 1


def block_of(participants: int, size: int) -> int:
    """Of how many participants methods that only need sums hold the updates f32[size] at once; 0: of all."""
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

