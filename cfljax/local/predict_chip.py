"""Seconds of a round's local steps on an accelerator, predicted for both ways of doing them: in one kernel per client
(`local.chip`), and by XLA's kernels for all clients side by side. What comes before and after the steps is much the same.

By XLA a step costs what starting its kernels costs, and the products and bytes of all clients, also of those that wait. In a kernel
nothing is started and nobody waits, but a TPU takes one client after another, and each program has one core of a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from cfljax.devices.chips import Rates
from cfljax.local.fitting import Form
from cfljax.local.lanes import Packed
from cfljax.local.schedule import TOGETHER


class Counted(NamedTuple):
    """Kernels that XLA starts for a local step of all clients."""

    batch: int
    """Of a linear model, on a mini-batch."""
    full: int
    """Of a linear model, on all samples."""
    layer: int
    """More for each hidden layer."""
    found: int
    """Of those on a mini-batch, the ones that find it in the pool, which samples that are laid out do not need."""

    def of(self, hidden: int, full: bool, in_lines: bool) -> int:
        """For a model with this number of hidden layers."""
        return (self.full if full else self.batch - self.found * in_lines) + hidden * self.layer


COUNTED = {"gpu": Counted(9, 7, 7, 0), "tpu": Counted(24, 10, 5, 14)}
PASSES = 6
"""How often a step by XLA reads or writes the weights: forwards, backwards, their gradient (twice), and the update (twice)."""
THIN, STEP, AROUND = 128, 7.4e-6, 3e10
"""Of the kernel on any GPU, by W1, W2 and the quickstart on an H200: products of fewer outputs than THIN take as long as of THIN,
what is small takes STEP seconds in a step, and AROUND bytes per second go between a core and what it keeps outside of registers."""


def in_kernel(form: Form, steps: Sequence[int], rates: Rates) -> float:
    """Of clients with these numbers of steps, in the kernel that trains them: one after another on a TPU, each on a core of its own
    on a GPU. A step takes as long as its products, with at least the 128 rows for which a TPU loads its units, or THIN outputs on a
    GPU, as its samples' rows from a GPU's memory and what it changes there, and STEP for all that is small."""
    if form.dialect == "tpu":
        operations = 3 * 2 * max(128, form.seen) * _weights(form.across, form.widths)
        return sum(steps) * (rates.launch + operations / rates.flops)
    operations = 3 * 2 * form.seen * _weights(form.across, tuple(max(THIN, width) for width in form.widths))
    fetched = 4 * 2 * form.seen * sum(form.columns)
    changed = 4 * 3 * form.across * form.widths[0] * (1 + form.momentum) if form.tile else 0
    each = STEP + (operations / rates.flops + fetched / rates.bytes) * rates.cores + changed / AROUND
    return each * max(max(steps, default=0), sum(steps) / rates.cores)


def by_xla(
    form: Form,
    packed: Packed,
    inputs: int,
    widths: tuple[int, ...],
    samples: int,
    runs: int,
    rates: Rates,
    near: int = 0,
    in_lines: bool = False,
) -> float:
    """The same by XLA's kernels, as `packed` says. `form`: the kernel that would do the same; `inputs` and `widths`: of the model's
    layers; `samples`: what a step sees; `runs`: how many go side by side; `near`: bytes of memory on the chip, where weights stay
    from step to step if they fit; `in_lines`: whether samples are laid out before the steps (`gradients.laid_out`)."""
    kernels = COUNTED[form.dialect].of(len(widths) - 1, form.batch is None, in_lines)
    alone = kernels * rates.launch + rates.host / TOGETHER
    operations = 3 * 2 * samples * _weights(inputs, widths)
    weights, together = 4 * _weights(inputs, form.widths), runs * packed.computed / max(packed.in_a_row, 1)
    moved = 4 * 2 * samples * inputs + (0 if together * weights <= near else PASSES * weights)
    return packed.in_a_row * alone + runs * packed.computed * (operations / rates.flops + moved / rates.bytes)


def _weights(inputs: int, widths: tuple[int, ...]) -> int:
    return sum(a * b for a, b in ((inputs, widths[0]), *itertools.pairwise(widths)))
