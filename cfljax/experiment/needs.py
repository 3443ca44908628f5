"""HOST. What a batch of runs takes of an accelerator's memory. Compared with what XLA says of the compiled programs by
`python -m benchmarks.aot`: the estimate is within a factor of 1.5 for every method of the quickstart and for W1 to W4.

On a CPU runs go one after another, and `batching.memory` is all that is asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cfljax.config import Run
from cfljax.devices.machine import Machine
from cfljax.devices.spread import RESERVE
from cfljax.experiment.batching import Batch, batches, held
from cfljax.experiment.batching import Size as Counts
from cfljax.experiment.execution import Choice, choose
from cfljax.federation.pack import nbytes
from cfljax.local.stream import ON_ACCELERATOR, numbers_per_sample
from cfljax.types import Federation, Model

SIDES = 2
"""Models of a participant that a step has at once, besides what the server keeps: its weights and its update. Its gradient is
added where it is computed."""
PASSES = 2
"""Arrays as large as the largest activation that a step has at once: forwards, and backwards."""


class Needs(NamedTuple):
    """Bytes of a device's memory."""

    shared: int
    """What all runs of a batch read: the samples."""
    each: int
    """Of each run."""

    def of(self, runs: int) -> int:
        """Bytes of a batch in which a device has so many runs."""
        return self.shared + runs * self.each


def needs(run: Run, federation: Federation, model: Model, machine: Machine) -> Needs:
    """What runs like this one take on a device of the machine."""
    choice = choose(run, model, federation, machine)
    here = _places(choice, machine)
    block = min(choice.plan.stream or here, here)
    lanes = min(choice.plan.lanes or block, block)
    size = Counts(federation.clients, model.size, int(federation.trains.sum()))
    server = 2 * run.options.models_kept * model.size + sum(held(run, size).values())
    numbers = server + SIDES * block * model.size + lanes * _of_client(run, choice, federation, model)
    samples = nbytes(federation)
    copies = 2 if machine.backend == "tpu" else 1  # a TPU gathers from a copy of the samples in another layout
    return Needs(copies * samples, 4 * (numbers + _of_evaluation(federation, model)))


def bytes_of(batch: Batch, federation: Federation, model: Model, machine: Machine) -> int:
    """What the batch takes on a device of the machine."""
    groups = machine.shape(batch.width).runs
    return needs(batch.first, federation, model, machine).of(math.ceil(batch.width / groups))


def widest(run: Run, federation: Federation, model: Model, machine: Machine) -> int:
    """How many runs like this one go through one program together: as many as fill half of the memory, of each group of devices."""
    found = needs(run, federation, model, machine)
    room = (machine.memory // 2 - found.shared) // max(found.each, 1)
    return max(1, min(256, room)) * machine.most_groups


def _places(choice: Choice, machine: Machine) -> int:
    """Participants of a round whose updates a device has at once, if they do not come in blocks."""
    even = math.ceil(choice.participants / choice.devices)
    reserve = 0 if choice.devices == 1 or choice.plan.alike else min(RESERVE, even // 2)
    return min(choice.participants, even + reserve)


def _of_client(run: Run, choice: Choice, federation: Federation, model: Model) -> int:
    """Numbers that a client in training has besides models: the samples of a step with their activations, and the orders of its
    epochs, which are sorted by random numbers. In the Gram form it has all of its samples, and their inner products."""
    longest, work = federation.train.longest, choice.work
    inputs, activations = numbers_per_sample(model, federation)
    length = max(choice.gram_sizes, default=0)
    at_once = length or min(work.batch or longest, longest)
    of_step = at_once * (inputs + PASSES * activations) + length * length
    return of_step + (0 if work.batch is None else 2 * (work.epochs or 1) * longest)


def _of_evaluation(federation: Federation, model: Model) -> int:
    """Numbers of the blocks of samples that an evaluation has at once."""
    inputs, activations = numbers_per_sample(model, federation)
    split = federation.test
    return min(ON_ACCELERATOR, (inputs + activations) * int(split.rows.shape[0]))
