"""Seconds that a compiled program will take on a chip, from what its text says and the chip's constants.

A pass through a computation takes

    kernels × launch + operations / flops + bytes / bandwidth + conditions read by the host × host

and a loop as often that as it turns. What goes on inside of a kernel that trains clients is not in the program's text: see
`in_kernel`. Constants: `targets.SPEEDS`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.aot.loops import Body, Loop, Program
from benchmarks.aot.targets import CORES, Speed
from cfljax.local.fitting import Form


def in_kernel(form: Form, steps: Sequence[int], chip: str, speed: Speed) -> float:
    """Seconds that a round's clients with these numbers of steps take in the kernel that trains them: one after another on a
    TPU, each on a core of its own on a GPU. A step takes as long as its products, with at least the 128 rows for which a TPU loads
    its units, as its samples' rows from a GPU's memory, and `launch` for all that is small."""
    pairs = [(form.across, form.widths[0]), *itertools.pairwise(form.widths)]
    tpu, cores = form.dialect == "tpu", CORES.get(chip, 1)
    operations = 3 * 2 * (max(128, form.seen) if tpu else form.seen) * sum(a * b for a, b in pairs)
    fetched = 0 if tpu else 4 * 2 * form.seen * sum(form.columns)
    each = speed.launch + (operations / speed.flops + fetched / speed.bytes) * (1 if tpu else cores)
    return each * (sum(steps) if tpu else max(max(steps, default=0), sum(steps) / cores))


class Turns(NamedTuple):
    """How often the loops turn whose number of iterations the data decide, in one round or one evaluation."""

    steps: float
    """The loop `local_steps`, in all."""
    blocks: float
    """The loop `sample_blocks`, each time that it is entered."""


def seconds(program: Program, turns: Turns, speed: Speed) -> float:
    """Of one round (of the program of rounds), or of one evaluation."""
    for loop in program.body.loops:
        if loop.name == "rounds":
            return _iteration(loop, turns, speed, 1.0)
    return _pass(program.body, turns, speed, 1.0)


def _pass(body: Body, turns: Turns, speed: Speed, times: float) -> float:
    """One pass through a computation that is passed `times` times in all."""
    own = body.launches * speed.launch + body.flops / speed.flops + body.bytes / speed.bytes + body.on_host * speed.host
    return own + sum(_turns(loop, turns, times) * _iteration(loop, turns, speed, times) for loop in body.loops)


def _iteration(loop: Loop, turns: Turns, speed: Speed, times: float) -> float:
    condition = loop.condition * speed.launch + (speed.host if loop.on_host else 0.0)
    return condition + _pass(loop.body, turns, speed, times * _turns(loop, turns, times))


def _turns(loop: Loop, turns: Turns, times: float) -> float:
    """How often a loop turns each time that it is entered; `times`: how often it is entered."""
    if loop.name == "step_blocks":  # its turns have several steps each
        steps = next((inner.trip for inner in loop.body.loops if inner.name == "local_steps"), None) or 1
        return math.ceil(turns.steps / steps) / times
    if loop.name == "local_steps" and loop.trip is None:
        return turns.steps / times
    if loop.trip is not None:
        return loop.trip
    return turns.blocks if loop.name == "sample_blocks" else 1.0
