"""HOST. What a batch of runs takes of an accelerator's memory. Compared with what XLA says of compiled programs, on one H200, H100,
A100 or v5e it is within a factor of 1.5 for the methods and models that were tried, and up to 1.85 times too high for programs of
less than 10 MB; on grids of chips it may be off by up to 2.5, on a v5p by up to 6 for small programs. The numbers in `GPU` and
`TPU`, `MethodConfig.sides` and `looks` were chosen by these same programs.

On a CPU runs go one after another, and `batching.memory` is all that is asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cfljax.config import Run
from cfljax.config.parts import stay_home
from cfljax.config.transit import keeps_dropped
from cfljax.devices import chips
from cfljax.devices.machine import Machine
from cfljax.devices.spread import RESERVE
from cfljax.engine.scoring import MANY_MODELS, TILE
from cfljax.experiment.batching import Batch, held, of_server
from cfljax.experiment.execution import Choice, choose
from cfljax.experiment.model_size import size_of_run
from cfljax.federation.pack import nbytes
from cfljax.local import live
from cfljax.local.data import TILE as TILE_OF_ALL
from cfljax.local.fitting import Form, pairs_of
from cfljax.local.gradients import lays_out
from cfljax.local.live import Layout, plain
from cfljax.local.schedule import SHUFFLED, batch_of, drawn_at_once
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
    layout: Layout
    """Of the arrays of a pass of a model."""
    indices: int
    """Arrays that say where each value of a sample comes from, if clients see turned images."""
    found: int
    """Arrays with a number for each sample of all steps, in lines of a batch, where only the places of samples are found before the
    first step: their rows, labels and masks, and what these are computed from."""
    looked: float
    """Arrays of an evaluation that are as large as the largest activation of all models, or rather more, since the participants of
    some methods choose among the models on all that they train on."""
    alone: float
    """Copies of a client's model where clients are scored one by one."""
    copies: int
    """Of a client's samples on their way to its kernel, where local training is one kernel: gathered, turned, as floats."""
    singles: int
    """Arrays with one number for each of these samples: where it is in the pool, its label, its weight."""


def in_tiles(shape: tuple[int, ...], each: int, convolves: bool, stacked: bool) -> int:
    """Bytes of an array on a TPU, which has tiles of 8 lines of 128 numbers. Of images either the channels fill whole lines and the
    samples whole tiles, or the other way round, whichever takes less. What a loop stacks lies in its own order. Other arrays of
    three axes or more are turned so that they need no more than they have."""
    up = lambda length, whole: -(-length // whole) * whole  # noqa: E731
    if stacked and len(shape) > 2:
        shape = (*shape[:-2], up(shape[-2], 8), up(shape[-1], 128))
    elif convolves and len(shape) > 3:
        samples, *pixels, channels = shape
        shape = (*pixels, min(up(samples, 8) * up(channels, 128), up(samples, 128) * up(channels, 8)))
    elif len(shape) == 2:
        shape = (shape[0], up(shape[1], 128))
    return plain(shape, each, convolves, stacked)


GPU, TPU = Habits(1, 3, Layout(), 0, 0, 2.6, 2, 0, 0), Habits(128, None, Layout("tpu", in_tiles, tiles=True), 4, 4, 0, 2, 4, 5)


class Needs(NamedTuple):
    """Bytes of a device's memory."""

    shared: int
    """What all runs of a batch read: the samples."""
    each: int
    """Of each run."""

    def of(self, runs: int) -> int:
        """Bytes of a batch in which a device has this number of runs."""
        return self.shared + runs * self.each


def needs(run: Run, federation: Federation, model: Model, machine: Machine, runs: int = 1) -> Needs:
    """What each of `runs` runs like this one takes on a device of the machine, where they go side by side."""
    choice, habits = choose(run, model, federation, machine, runs), GPU if machine.backend == "gpu" else TPU
    size = size_of_run(run, federation, model)
    lasting = sum(of_server(run, size).values())
    server, apart = 2 * run.options.models_kept * model.size + lasting, sum(held(run, size).values()) - lasting
    jobs = _places(choice) * run.options.models_trained
    block = min(choice.plan.stream or jobs, jobs)
    if isinstance(choice.form, Form):
        trained = _by_kernel(run, choice.form, federation, model, habits, block * runs, machine) // runs
    else:
        trained = _by_xla(run, choice, federation, model, habits, block, machine, runs)
    looked = _of_look(run, choice, federation, model, habits, chips.near_xla(machine) // runs)
    kept = isinstance(run.options, PersonalConfig) or stay_home(run.options, run.train)
    if kept or run.train.buffered is not None or keeps_dropped(run.options, run.train.transit):
        return Needs(nbytes(federation), 4 * (server + apart + max(trained, looked)))
    return Needs(nbytes(federation), 4 * (server + max(trained, looked, apart)))  # such as the updates of a round: trained has them


def bytes_of(batch: Batch, federation: Federation, model: Model, machine: Machine) -> int:
    """What the batch takes on a device of the machine."""
    runs = math.ceil(batch.width / machine.shape(batch.width).runs)
    return needs(batch.first, federation, model, machine, runs).of(runs)


def widest(run: Run, federation: Federation, model: Model, machine: Machine) -> int:
    """How many runs like this one go through one program together: as many as fill half of the memory, of each group of devices.
    Runs that go side by side may train in another way than one alone; the number is such that they fit in both."""
    width = 256
    for runs in (1, 0):
        found = needs(run, federation, model, machine, runs or width)
        width = max(1, min(width, (machine.memory // 2 - found.shared) // max(found.each, 1)))
    return width * machine.most_groups


def _places(choice: Choice) -> int:
    """Participants of a round whose updates a device has at once, if they do not come in blocks."""
    even = math.ceil(choice.participants / choice.devices)
    reserve = 0 if choice.devices == 1 or choice.plan.alike else min(RESERVE, even // 2)
    return min(choice.participants, even + reserve)


def _by_xla(
    run: Run, choice: Choice, federation: Federation, model: Model, habits: Habits, block: int, machine: Machine, runs: int
) -> int:
    """Numbers of a round whose clients are trained by XLA's kernels. `block`: the updates that a device has at once."""
    lanes = min(choice.plan.lanes or block, block)
    sides = run.options.sides if habits.sides is None else habits.sides
    if habits.sides is not None and isinstance(run.options, PersonalConfig):
        sides = max(sides, 2 * run.options.sides + 1)  # further models of a participant, before and after
    sides = 1 if choice.gram_sizes else sides  # it has coefficients in place of weights
    places = _tiled(block, habits) if block * model.size < SMALL else block
    in_lines = not choice.gram_sizes and lays_out(choice.plan, federation, choice.work)
    lines = _of_lines(choice, federation, model, habits, lanes * runs, chips.near_xla(machine)) // runs if in_lines else 0
    longest, batch = federation.train.longest, choice.work.batch
    if not (batch is None or in_lines or choice.gram_sizes) and drawn_at_once(choice.work, longest) * longest <= SHUFFLED:
        # of the samples only their places are found before the steps
        lines = habits.found * lanes * choice.work.most_steps(longest) * _tiled(batch, habits)
    kernels = 0
    if habits.sides is None:  # a TPU turns the vector of parameters into kernels, and has their gradients beside it
        kernels = _beyond([lanes * runs * model.size] * 2, chips.near_xla(machine)) // runs
    return sides * places * model.size + lanes * _of_client(choice, federation, model, habits, in_lines) + lines + kernels


def _of_lines(choice: Choice, federation: Federation, model: Model, habits: Habits, clients: int, near: int) -> int:
    """Numbers of the samples of all steps, which are laid out before these. Turned images are bytes until then, in three orders."""
    samples = choice.work.most_steps(federation.train.longest) * batch_of(federation, choice.work)
    lines = clients * samples * _tiled(numbers_per_sample(model, federation)[0], habits)
    return _beyond([lines, *[lines // 4] * 3 * _turned(federation)], near)


def _of_client(choice: Choice, federation: Federation, model: Model, habits: Habits, in_lines: bool) -> int:
    """Numbers that a client in training has besides models: the samples of a step with their activations, and the orders of its
    epochs, which are sorted by random numbers. In the Gram form it has all of its samples, and their inner products. `in_lines`:
    whether a step need not look for where each number of its samples comes from."""
    longest, work = federation.train.longest, choice.work
    length = max(choice.gram_sizes, default=0)
    at_once = length or min(work.batch or TILE_OF_ALL, longest)
    inputs = numbers_per_sample(model, federation)[0]
    sample = _tiled(inputs + 2, habits) if in_lines else _tiled(inputs, habits)
    of_step = at_once * sample + live.of_step(model, federation, at_once, habits.layout) // 4
    return of_step + length * length + (0 if work.batch is None else 2 * drawn_at_once(work, longest) * longest)


def _by_kernel(run: Run, form: Form, federation: Federation, model: Model, habits: Habits, clients: int, machine: Machine) -> int:
    """Numbers of a round whose clients, of all runs, are trained by a kernel each. Three things are there one after another: the
    samples on their way to the kernel; what it reads and writes; the updates. Of each, a TPU keeps some in its memory for vectors,
    of which the kernel leaves a part."""
    near = chips.near_xla(machine)
    sample = clients * form.rows * _tiled(numbers_per_sample(model, federation)[0], habits)
    z = clients * form.rows * form.models * form.widths[0]
    columns = [clients * form.rows * each for each in form.columns]
    of_gram = [sample] if form.gram else []  # besides their inner products
    # those of several models come from one product, in whose order the kernel does not read them
    outputs = [z, z] if form.models > 1 and form.dialect == "gpu" else [z]
    states = [clients * a * b for a, b in ((form.across, form.widths[0]), *pairs_of(form))] * (1 + form.momentum)
    before = _on_the_way(form, federation, model, habits, clients, sample, z, near)
    anchors = [clients * model.size] * (form.anchored + form.begun)
    at_call = _beyond([*columns, *of_gram, *outputs, *states, *anchors], chips.near_xla(machine, beside_ours=True))
    after = _beyond([clients * model.size] * (habits.sides or run.options.sides), near)
    return max(before, at_call, after)


def _on_the_way(
    form: Form, federation: Federation, model: Model, habits: Habits, clients: int, sample: int, z: int, near: int
) -> int:
    """Numbers that are there on a TPU while `sample` numbers of samples are gathered for kernels, and the outputs z of their first
    layers computed. A GPU does that in one go."""
    if not habits.copies:
        return 0
    # samples as bytes and as floats, the pool in another order, and numbers of samples each of which fills a line
    pool = federation.pool.x.shape[0] * _tiled(numbers_per_sample(model, federation)[0], habits)
    singles = [clients * form.rows * habits.tile] * habits.singles
    arrays = [*[sample] * habits.copies, sample // 4, z, pool * federation.pool.x.dtype.itemsize // 4, *singles]
    return _beyond(arrays, near)


def _beyond(arrays: list[int], near: int) -> int:
    """The numbers in those of the arrays that a chip's own memory of `near` bytes has no place for, the largest first."""
    beyond = 0
    for array in sorted(arrays, reverse=True):
        if 4 * array <= near:
            near -= 4 * array
        else:
            beyond += array
    return beyond


def _of_look(run: Run, choice: Choice, federation: Federation, model: Model, habits: Habits, near: int) -> int:
    """Numbers of an evaluation, in which models that all share score all test samples, and clients with models of their own some
    at a time; or, on a TPU, of the look at training samples by which a round's participants choose. `near`: bytes on the chip."""
    options, longest = run.options, federation.train.longest
    kept = federation.clients if options.own or stay_home(options, run.train) else options.models_kept
    looks = []
    if kept > MANY_MODELS:
        looks.append(_one_by_one(federation, model, habits, near))
    if kept <= MANY_MODELS or isinstance(options, PersonalConfig):
        looks.append(_all_at_once(federation, model, habits, options.models_kept, federation.test.rows.shape[0]))
    if options.looks and habits.sides is None:
        looks.append(_all_at_once(federation, model, habits, options.models_kept, choice.participants * longest))
    return max(looks)


def _one_by_one(federation: Federation, model: Model, habits: Habits, near: int) -> int:
    """Numbers of some clients that are scored with their own models, one tile of samples each."""
    clients, inputs = min(64, federation.clients), numbers_per_sample(model, federation)[0]
    of_pass = TILE * _tiled(inputs, habits) + live.of_look(model, federation, TILE, habits.layout) // 4
    return _beyond([int(clients * habits.alone * model.size), clients * of_pass], near)


def _all_at_once(federation: Federation, model: Model, habits: Habits, models: int, samples: int) -> int:
    """Numbers of a block of samples of many clients, each of which is turned in its own way, and of the activations of all models
    on it."""
    inputs, activations = numbers_per_sample(model, federation)
    block = min(samples, block_size(model, federation, models, samples, False))
    sample = (1 + habits.indices * _turned(federation)) * _tiled(inputs, habits)
    return int(block * (sample + habits.looked * models * activations))


def _turned(federation: Federation) -> bool:
    """Whether clients see turned images."""
    return federation.view is not None and federation.view.pixels is not None


def _tiled(length: int, habits: Habits) -> int:
    return -(-length // habits.tile) * habits.tile
