"""HOST. What a batch of runs takes of an accelerator's memory. `python -m benchmarks.aot` compares it with what XLA says of the
compiled programs: on one H200, H100, A100 or v5e it is within a factor of 1.5 for every method of the quickstart and for W1 to W4;
on a v5p and on grids of chips it may be off by up to 5. The numbers in `GPU` and `TPU`, and `MethodConfig.sides`, were chosen by
these same programs.

On a CPU runs go one after another, and `batching.memory` is all that is asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cfljax.config import Run
from cfljax.config.parts import stay_home
from cfljax.config.transit import keeps_dropped
from cfljax.devices.machine import Machine
from cfljax.devices.spread import RESERVE
from cfljax.engine.scoring import MANY_MODELS, TILE
from cfljax.experiment.batching import Batch, held, of_server
from cfljax.experiment.execution import Choice, choose
from cfljax.experiment.model_size import size_of_run
from cfljax.federation.pack import nbytes
from cfljax.local.fitting import Form
from cfljax.local.stream import block_size, numbers_per_sample
from cfljax.methods.shared.config import PersonalConfig
from cfljax.types import Federation, Model

SMALL = 1 << 18
"""Numbers: of arrays with fewer, a TPU has the axis of participants filled up to whole tiles; larger ones it turns to need less."""


class Habits(NamedTuple):
    """How XLA lays out arrays on a platform, as compiled programs have been seen to have it."""

    tile: int
    """The last axis of an array is filled up to a multiple of this."""
    sides: int | None
    """Models of a participant in a round; None: `MethodConfig.sides`."""
    activations: int
    """Arrays of a step that are as large as its largest activation, forwards and backwards."""
    indices: int
    """Arrays that say where each value of a sample comes from, if clients see turned images."""
    looked: float
    """Arrays of an evaluation that are as large as the largest activation of all models, or rather more, since the participants of
    some methods choose among the models on all that they train on."""
    alone: int
    """Copies of a client's model where clients are scored one by one."""
    copies: float
    """Of a client's samples, besides what its kernel reads, where local training is one kernel."""


GPU, TPU = Habits(1, 3, 2, 0, 2.6, 6, 0.5), Habits(128, None, 8, 4, 0, 2, 3)


class Needs(NamedTuple):
    """Bytes of a device's memory."""

    shared: int
    """What all runs of a batch read: the samples."""
    each: int
    """Of each run."""

    def of(self, runs: int) -> int:
        """Bytes of a batch in which a device has this number of runs."""
        return self.shared + runs * self.each


def needs(run: Run, federation: Federation, model: Model, machine: Machine) -> Needs:
    """What runs like this one take on a device of the machine."""
    choice, habits = choose(run, model, federation, machine), GPU if machine.backend == "gpu" else TPU
    here = _places(choice)
    block = min(choice.plan.stream or here, here)
    lanes = min(choice.plan.lanes or block, block)
    size = size_of_run(run, federation, model)
    lasting = sum(of_server(run, size).values())
    server, apart = 2 * run.options.models_kept * model.size + lasting, sum(held(run, size).values()) - lasting
    sides = run.options.sides if habits.sides is None else habits.sides
    sides = 1 if choice.gram_sizes else sides  # it has coefficients in place of weights
    places = _tiled(block, habits) if block * model.size < SMALL else block
    trained = sides * places * model.size + lanes * _of_client(choice, federation, model, habits)
    looked = _of_look(run, federation, model, habits)
    kept = isinstance(run.options, PersonalConfig) or stay_home(run.options, run.train)
    if kept or run.train.buffered is not None or keeps_dropped(run.options, run.train.transit):
        return Needs(nbytes(federation), 4 * (server + apart + max(trained, looked)))
    return Needs(nbytes(federation), 4 * (server + max(trained, looked, apart)))  # such as the updates of a round: trained has them


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


def _of_client(choice: Choice, federation: Federation, model: Model, habits: Habits) -> int:
    """Numbers that a client in training has besides models: the samples of a step with their activations, and the orders of its
    epochs, which are sorted by random numbers. In the Gram form it has all of its samples, and their inner products."""
    longest, work = federation.train.longest, choice.work
    if isinstance(form := choice.form, Form):
        read = sum(form.columns) + form.widths[0] + form.gram * form.across  # made, and filled up
        sample = _tiled(numbers_per_sample(model, federation)[0], habits)
        return int(form.rows * (habits.copies * sample + read))
    length = max(choice.gram_sizes, default=0)
    at_once = length or min(work.batch or longest, longest)
    of_step = at_once * (_of_sample(federation, model, habits) + habits.activations * numbers_per_sample(model, federation)[1])
    return of_step + length * length + (0 if work.batch is None else 2 * (work.epochs or 1) * longest)


def _of_look(run: Run, federation: Federation, model: Model, habits: Habits) -> int:
    """Numbers of an evaluation: of a block of samples and of the activations of all models on it; or of some clients with their
    models, one tile of samples each."""
    models = federation.clients if run.options.own or stay_home(run.options, run.train) else run.options.models_kept
    sample, activations = _of_sample(federation, model, habits), numbers_per_sample(model, federation)[1]
    if models > MANY_MODELS:
        return min(64, federation.clients) * (habits.alone * model.size + TILE * (sample + 2 * activations))
    samples = federation.test.rows.shape[0]
    block = min(samples, block_size(model, federation, models, samples, False))
    return int(block * (sample + habits.looked * models * activations))


def _of_sample(federation: Federation, model: Model, habits: Habits) -> int:
    """Numbers of a sample, and of where they come from."""
    turned = federation.view is not None and federation.view.pixels is not None
    return (1 + habits.indices * turned) * _tiled(numbers_per_sample(model, federation)[0], habits)


def _tiled(length: int, habits: Habits) -> int:
    return -(-length // habits.tile) * habits.tile
