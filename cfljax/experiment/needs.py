"""HOST. What a batch of runs takes of an accelerator's memory. `python -m benchmarks.aot` compares it with what XLA says of the
compiled programs: for every method of the quickstart and for W1 to W4 it is within a factor of 1.5.

On a CPU runs go one after another, and `batching.memory` is all that is asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cfljax.config import Run
from cfljax.devices.machine import Machine
from cfljax.devices.spread import RESERVE
from cfljax.experiment.batching import Batch, held
from cfljax.experiment.batching import Size as Counts
from cfljax.experiment.execution import Choice, choose
from cfljax.federation.pack import nbytes
from cfljax.local.stream import block_size, numbers_per_sample
from cfljax.types import Federation, Model


class Copies(NamedTuple):
    """How many arrays of a kind a program has at once on a platform, as compiled programs have been seen to have."""

    activations: int
    """Of a step: as large as the largest activation, forwards and backwards. A TPU fills up the last axes of each to 8 × 128."""
    indices: int
    """Of the samples of a step: where each value comes from, if clients see turned images."""
    looked: int
    """Of an evaluation: as large as the largest activation of all models."""


GPU, TPU = Copies(2, 0, 2), Copies(8, 3, 2)


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
    choice, copies = choose(run, model, federation, machine), GPU if machine.backend == "gpu" else TPU
    here = _places(choice)
    block = min(choice.plan.stream or here, here)
    lanes = min(choice.plan.lanes or block, block)
    size = Counts(federation.clients, model.size, int(federation.trains.sum()))
    server = 2 * run.options.models_kept * model.size + sum(held(run, size).values())
    sides = 1 if choice.gram_sizes else 2  # weights and updates; in the Gram form there are coefficients in place of weights
    trained = sides * block * model.size + lanes * _of_client(choice, federation, model, copies)
    looks = max(_of_look(run, federation, model, copies, share) for share in _looks(run, choice, size))
    return Needs(nbytes(federation), 4 * (server + max(trained, looks)))


def bytes_of(batch: Batch, federation: Federation, model: Model, machine: Machine) -> int:
    """What the batch takes on a device of the machine."""
    groups = machine.shape(batch.width).runs
    return needs(batch.first, federation, model, machine).of(math.ceil(batch.width / groups))


def widest(run: Run, federation: Federation, model: Model, machine: Machine) -> int:
    """How many runs like this one go through one program together: as many as fill half of the memory, of each group of devices."""
    found = needs(run, federation, model, machine)
    room = (machine.memory // 2 - found.shared) // max(found.each, 1)
    return max(1, min(256, room)) * machine.most_groups


def _places(choice: Choice) -> int:
    """Participants of a round whose updates a device has at once, if they do not come in blocks."""
    even = math.ceil(choice.participants / choice.devices)
    reserve = 0 if choice.devices == 1 or choice.plan.alike else min(RESERVE, even // 2)
    return min(choice.participants, even + reserve)


def _of_client(choice: Choice, federation: Federation, model: Model, copies: Copies) -> int:
    """Numbers that a client in training has besides models: the samples of a step with their activations, and the orders of its
    epochs, which are sorted by random numbers. In the Gram form it has all of its samples, and their inner products."""
    longest, work = federation.train.longest, choice.work
    inputs, activations = numbers_per_sample(model, federation)
    length = max(choice.gram_sizes, default=0)
    at_once = length or min(work.batch or longest, longest)
    turned = copies.indices if federation.view is not None and federation.view.pixels is not None else 0
    of_step = at_once * ((1 + turned) * inputs + copies.activations * activations) + length * length
    return of_step + (0 if work.batch is None else 2 * (work.epochs or 1) * longest)


def _looks(run: Run, choice: Choice, size: Counts) -> list[float]:
    """The shares of all training samples that models are tried on at a time: everybody's for an evaluation (whose samples are about
    as many), the participants' where they choose among models."""
    return [1.0] if run.options.models_kept == 1 else [1.0, choice.participants / max(size.learners, 1)]


def _of_look(run: Run, federation: Federation, model: Model, copies: Copies, share: float) -> int:
    """Numbers of a block of samples, and of the activations of all models on it."""
    inputs, activations = numbers_per_sample(model, federation)
    models, samples = run.options.models_kept, math.ceil(share * federation.train.rows.shape[0])
    block = min(samples, block_size(model, federation, models, samples, False))
    return block * (inputs + copies.looked * models * activations)
