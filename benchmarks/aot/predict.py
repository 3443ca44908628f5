"""Seconds that a compiled program will take on a chip, from what its text says and the chip's constants.

A pass through a computation takes

    kernels × launch + operations / flops + bytes / bandwidth + conditions read by the host × host

and a loop as often that as it turns. What goes on inside of a kernel that trains clients is not in the program's text: see
`cfljax.local.predict_chip`. Constants: `cfljax.devices.chips`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cfljax.devices.chips import Rates

from benchmarks.aot.loops import Body, Loop, Program


class Turns(NamedTuple):
    """How often the loops turn whose number of iterations the data decide, in one round or one evaluation."""

    steps: float
    """The loop `local_steps`, in all."""
    blocks: float
    """The loop `sample_blocks`, each time that it is entered."""


def seconds(program: Program, turns: Turns, rates: Rates) -> float:
    """Of one round (of the program of rounds), or of one evaluation."""
    for loop in program.body.loops:
        if loop.name == "rounds":
            return _iteration(loop, turns, rates, 1.0)
    return _pass(program.body, turns, rates, 1.0)


def _pass(body: Body, turns: Turns, rates: Rates, times: float) -> float:
    """One pass through a computation that is passed `times` times in all."""
    own = body.launches * rates.launch + body.flops / rates.flops + body.bytes / rates.bytes + body.on_host * rates.host
    return own + sum(_turns(loop, turns, times) * _iteration(loop, turns, rates, times) for loop in body.loops)


def _iteration(loop: Loop, turns: Turns, rates: Rates, times: float) -> float:
    condition = loop.condition * rates.launch + (rates.host if loop.on_host else 0.0)
    return condition + _pass(loop.body, turns, rates, times * _turns(loop, turns, times))


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
