"""Whether local training can be one kernel of an accelerator (`local.chip`), and in which form."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from cfljax.lazy import jax, jnp
from cfljax.local.gram import first_layer
from cfljax.local.nested import inner
from cfljax.local.schedule import SHUFFLED, Work
from cfljax.models.flat import NetForward
from cfljax.types import Kernel, Model

SCALARS = 1 << 18
"""Bytes of a TPU's memory for numbers that are read one by one, for the orders of a client's epochs."""
MATRIX = 1 << 19
"""Numbers of the largest matrix that a TPU's step computes with: the compiler writes out what is done with each 8 × 128 of them."""
CARRIED = 140 << 10
"""Bytes that the threads of a GPU's program carry from step to step, in registers."""
AT_A_TIME = 32 << 10
"""Bytes of D and of its momentum buffer that they read, change and write at a time, where these stay in the chip's memory."""


class Form(NamedTuple):
    """What a kernel is compiled for. Static."""

    dialect: str
    """"tpu" (Mosaic) or "gpu" (Triton)."""
    batch: int | None
    """Samples of a step; None: all."""
    seen: int
    """Rows that a step computes with: the batch, or all samples, filled up."""
    rows: int
    """n: samples of a client, filled up."""
    across: int
    """m: the numbers of a row f, filled up."""
    widths: tuple[int, ...]
    """Outputs of each layer, filled up."""
    classes: int
    """Outputs of the last layer."""
    models: int
    """K: the models among which the client chooses its start; 1: it has one."""
    gram: bool
    momentum: bool
    mu: bool
    decay: bool
    begun: bool
    """Whether there is a momentum buffer to start with."""
    anchored: bool
    """Whether the proximal term pulls to other models than that of the start."""
    summed: bool
    """Whether a step follows the summed loss."""
    tile: int = 0
    """On a GPU, whose registers are few: the rows of D that are in them at a time, if it stays in the chip's memory; 0: all rows
    are, from the first step to the last."""

    @property
    def lanes(self) -> int:
        """Columns of the narrowest arrays."""
        return 128 if self.dialect == "tpu" else 16

    @property
    def along(self) -> tuple[bool, bool]:
        """Whether samples have a row of X · anchor, and one of X V (the momentum buffer to start with)."""
        return self.mu and self.anchored, self.begun

    @property
    def columns(self) -> tuple[int, ...]:
        """The numbers of a sample in each array of `chip.Refs.rows`."""
        return (self.lanes, self.across, *(self.widths[0] for there in self.along if there))


def form_of(
    kernel: Kernel,
    model: Model,
    work: Work,
    longest: int,
    gram: bool,
    *,
    models: int = 1,
    momentum: bool = False,
    mu: bool = False,
    decay: bool = False,
) -> Form | str:
    """The kernel for clients of at most `longest` samples, as if with anchors and buffers to start with; or why there is none.
    `gram`: whether in Gram form, if that fits; by steps otherwise."""
    first, dialect = first_layer(model), kernel.dialect
    if first is None or first.chain is None:
        return f"it is for mclr and mlp, not for {model.name}"
    assert isinstance(model.forward, NetForward)  # or it had no first layer
    net = model.forward.net
    if net.loss != "softmax" or net.own is not None:
        return f'it is for one label of several classes (loss "softmax"), not for loss "{net.loss if net.own is None else "own"}"'
    batch = None if work.batch is None else min(work.batch, longest)
    if batch is not None and (orders := epochs_of(work) * (longest + batch)) > SHUFFLED:
        return f"{orders} positions of samples are too many to be drawn at once"
    inputs, widths = layers_of(model)
    filled = lambda length: _filled(dialect, length)  # noqa: E731
    rows = filled(longest if batch is None else -(-longest // batch) * batch)
    seen = rows if batch is None else -(-batch // 8) * 8 if dialect == "tpu" else filled(batch)
    form = Form(
        dialect, batch, seen, rows, rows, tuple(map(filled, widths)), widths[-1], models, True, momentum, mu, decay, momentum, mu,
        work.summed,
    )  # fmt: skip
    forms = [*([form] if gram else []), form._replace(gram=False, across=filled(inputs))]
    if dialect == "gpu":
        forms += [each._replace(tile=_tile(each)) for each in forms]
    reasons = [_lacks(each, epochs_of(work) * (longest + (batch or 0)), kernel.near) for each in forms]
    return next((each for each, reason in zip(forms, reasons, strict=True) if reason is None), str(reasons[-1]))


def layers_of(model: Model) -> tuple[int, tuple[int, ...]]:
    """(the inputs of the first layer, the outputs of all) of a chain of dense layers."""
    first = first_layer(model)
    assert first is not None and first.chain is not None
    shapes = jax.eval_shape(lambda flat: model.unravel(flat), jax.ShapeDtypeStruct((model.size,), jnp.float32))
    inputs, width = inner(shapes, first.kernel).shape
    return inputs, (width, *(shapes[name]["bias"].shape[0] for name in first.chain))


def epochs_of(work: Work) -> int:
    """The most epochs of a client; one of a single batch begins an epoch at each step."""
    return work.steps or work.epochs or 1


def _filled(dialect: str, length: int) -> int:
    return -(-length // 128) * 128 if dialect == "tpu" else max(16, 1 << (length - 1).bit_length())


def _tile(form: Form) -> int:
    """`Form.tile`, a power of two as all lengths of Triton's are."""
    rows = max(1, AT_A_TIME // (4 * form.widths[0] * (1 + form.momentum)))
    return min(form.across, max(16, 1 << (rows.bit_length() - 1)))


def _lacks(form: Form, orders: int, room: int) -> str | None:
    """Why the form does not fit on the chip; None: it does."""
    if form.dialect == "tpu":
        if form.batch is not None and 8 * orders > SCALARS:
            return f"the orders of its epochs take {8 * orders >> 10} KiB of the scalar unit's memory, of {SCALARS >> 10}"
        largest = max(form.across * form.widths[0], form.seen * max(form.widths), *(a * b for a, b in pairs_of(form)))
        if largest > MATRIX:
            return f"a matrix of {largest} numbers makes too long a program, of at most {MATRIX}"
        needs = vectors(form)
    else:
        needs = _shared(form)
        if (seen := 4 * max(form.widths) * (form.rows if form.models > 1 else form.seen)) > CARRIED:
            what = "all samples, among whose losses it chooses," if form.models > 1 else "a step's samples"
            return f"the outputs of {what} take {seen >> 10} KiB of registers, of {CARRIED >> 10}"
        if (carried := 4 * _state(form)) > CARRIED:
            return f"a client's state takes {carried >> 10} KiB of registers, of {CARRIED >> 10}"
    return None if needs <= room else f"a client takes {needs >> 10} KiB on the chip, of {room >> 10}"


def _state(form: Form) -> int:
    """Numbers that steps change, of those that stay on the chip."""
    return ((form.tile or form.across) * form.widths[0] + _others(form)) * (1 + form.momentum)


def pairs_of(form: Form) -> list[tuple[int, int]]:
    """The forms of the kernels of all layers but the first."""
    return list(itertools.pairwise(form.widths))


def _others(form: Form) -> int:
    """Numbers of a model besides its first kernel, as a TPU keeps them: a bias fills eight rows."""
    return sum(a * b for a, b in pairs_of(form)) + (8 if form.dialect == "tpu" else 1) * sum(form.widths)


def vectors(form: Form) -> int:
    """Bytes of a TPU's memory for vectors. What goes in and out is there twice, while the next client's is on its way."""
    given = form.rows * sum(form.columns) + form.models * form.rows * form.widths[0]
    given += _others(form) * (form.models + form.anchored + form.begun)
    step = form.seen * (sum(form.columns) + form.across + 4 * sum(form.widths)) + 2 * form.across * form.widths[0] + _others(form)
    return 4 * (2 * (given + _state(form) + 8 * form.lanes) + step)


def _shared(form: Form) -> int:
    """Bytes of the operands of the largest product."""
    return 4 * max(a * (form.seen + b) for a, b in ((form.tile or form.across, form.widths[0]), *pairs_of(form)))
