"""Trains a client by the kernel of `chip`: fills its arrays up, calls the kernel, and reads the update out. Under `vmap` the
clients of a round, and the runs of a batch, become axes of the kernel's grid."""

from __future__ import annotations

from typing import Any, NamedTuple

from cfljax.lazy import jax, jnp, pl
from cfljax.local import chip
from cfljax.local.chip import Refs
from cfljax.local.fitting import Form
from cfljax.local.gram import Among, apart, first_layer, padded, pull_of, weighted
from cfljax.local.nested import inner, replaced
from cfljax.local.products import all_samples
from cfljax.local.schedule import Course, Orders, Task
from cfljax.models.flat import FirstDense
from cfljax.types import Array, Federation, Kernel, LocalStep, Model, Tree, Updates


class OnChip(NamedTuple):
    """How clients are trained by the kernel. Static, except for the arrays in it."""

    form: Form
    epochs: int
    """The most epochs of a client, each of which has an order."""
    kernel: Kernel
    choice: Among | None = None
    """Models among which each client chooses its start; None: it starts from the model of its task."""


def train_on_chip(
    model: Model, federation: Federation, task: Task, course: Course, orders: Orders | None, numbers: LocalStep, how: OnChip
) -> Updates:
    """The update of one client: the same as that of `train` with plain SGD, up to rounding."""
    first, form, choice = first_layer(model), how.form, how.choice
    assert first is not None
    form = form._replace(anchored=task.anchor is not None, begun=form.momentum and task.velocity is not None)
    x, y = all_samples(federation, task.client, form.rows)
    none: tuple[None, list[Array]] = (None, [])
    anchor, anchors = none if task.anchor is None else _apart(form, first, model, task.anchor)
    velocity, velocities = none if task.velocity is None else _apart(form, first, model, task.velocity)
    if choice is None:
        kernel, starts = _apart(form, first, model, task.start)
    else:
        kernel, starts = choice.kernels, _layers(form, first, choice.others)
    how = how._replace(form=form)
    order, width = _orders(how, orders)
    counts = jnp.stack([course.samples, course.total, course.per_epoch, jnp.int32(width)])[None]
    z = _outputs(form, x, jnp.split(kernel, form.models, 1))
    along = [_outputs(form, x, [of]) for there, of in zip(form.along, (anchor, velocity), strict=True) if there and of is not None]
    f = _filled((x @ x.T if form.gram else x)[None], form.rows, form.across)
    facts = _facts(form, y, task.weights)
    inputs = [_numbers(numbers), counts, order, z, facts, f, *along, *starts, *anchors, *velocities]
    tally, state = _call(how, inputs)
    which = None if choice is None else tally[chip.WHICH].astype(jnp.int32)
    start = model.unravel(task.start if choice is None else choice.models[which])
    kernel = inner(start, first.kernel)

    def change(d: Array) -> Array:
        """f32[inputs, h]: the change of the first kernel that the state d stands for."""
        return (x.T @ d[: form.rows] if form.gram else d[: x.shape[1]])[:, : kernel.shape[1]]

    half, moves, speeds = len(state) // (1 + form.momentum), tally[chip.MOVED :][:2], tally[chip.SPEED :][:2]
    pull = pull_of(numbers, kernel, anchor)
    moved = jax.tree.map(jnp.subtract, _tree(first, start, kernel, state[1:half]), start)
    moved = replaced(moved, first.kernel, -change(state[0]) - weighted(moves, pull, velocity))
    buffers = None
    if velocity is not None and form.momentum:
        buffers = model.ravel(_tree(first, start, change(state[half]) + weighted(speeds, pull, velocity), state[half + 1 :]))
    delta = jnp.where(course.total > 0, model.ravel(moved), 0.0)
    return Updates(delta, tally[chip.LOSS] / course.visited, course.total, buffers, which)


def _paths(first: FirstDense) -> list[tuple[str, ...]]:
    """Where the parameters besides the first kernel are, in the kernel's order."""
    assert first.chain is not None
    return [first.bias, *((name, kind) for name in first.chain for kind in ("kernel", "bias"))]


def _apart(form: Form, first: FirstDense, model: Model, flat: Array) -> tuple[Array, list[Array]]:
    """(the first kernel f32[inputs, h], all other parameters as the kernel has them) of the flat parameters f32[d]."""
    kernel, others = apart(first, model, flat)
    return kernel, _layers(form, first, jax.tree.map(lambda leaf: leaf[None], others))


def _layers(form: Form, first: FirstDense, others: Tree) -> list[Array]:
    """[K · r, c] each: the parameters of all models [K, r, c] or [K, c] under one another, filled up."""
    found = []
    for at, path in enumerate(_paths(first)):
        leaf, columns = inner(others, path), form.widths[(at + 1) // 2]
        found.append(_filled(leaf, form.widths[at // 2], columns) if leaf.ndim == 3 else _filled(leaf[:, None], 1, columns))
    return found


def _tree(first: FirstDense, like: Tree, kernel: Array, others: list[Array]) -> Tree:
    """A tree of parameters such as `like`, from the first kernel and what the kernel returned for all others."""
    tree = replaced(like, first.kernel, kernel)
    for path, leaf in zip(_paths(first), others, strict=True):
        form = inner(like, path).shape
        tree = replaced(tree, path, leaf[0, : form[0]] if len(form) == 1 else leaf[: form[0], : form[1]])
    return tree


def _filled(a: Array, rows: int, columns: int) -> Array:
    """f32[K · rows, columns] of f32[K, r, c], with zeros."""
    room = ((0, 0), (0, rows - a.shape[1]), (0, columns - a.shape[2]))
    return jnp.pad(a, room).reshape(-1, columns)


def _numbers(numbers: LocalStep) -> Array:
    """f32[1, 4]; 0 for a number that is left out."""
    none = jnp.float32(0)
    each = (numbers.lr, numbers.momentum, numbers.mu, numbers.weight_decay)
    return jnp.stack([none if number is None else jnp.asarray(number, jnp.float32) for number in each])[None]


def _orders(how: OnChip, orders: Orders | None) -> tuple[Array, int]:
    """(i32[1, T] the orders of all epochs and some room, the length of one)."""
    if orders is None:
        return jnp.zeros((1, how.form.lanes), jnp.int32), 0
    all_of = orders.all if orders.all is not None else jax.vmap(orders.draw)(jnp.arange(how.epochs, dtype=jnp.int32))
    length, room = all_of.size, -(-(all_of.size + how.form.seen) // how.form.lanes) * how.form.lanes
    return jnp.pad(all_of.reshape(1, -1), ((0, 0), (0, room - length))), all_of.shape[1]


def _outputs(form: Form, x: Array, kernels: list[Array]) -> Array:
    """f32[K · n, h]: the outputs of the first layer with each of the kernels f32[inputs, h] for all samples."""
    wide = [jnp.pad(kernel, ((0, 0), (0, form.widths[0] - kernel.shape[1]))) for kernel in kernels]
    return jnp.concatenate([x @ kernel for kernel in wide])


def _facts(form: Form, y: Array, weights: Array | None) -> Array:
    """f32[n, lanes]: label, place and weight of each sample."""
    place = jnp.arange(form.rows, dtype=jnp.float32)
    factors = padded(jnp.ones(form.rows) if weights is None else weights, form.rows)
    assert factors is not None
    return _filled(jnp.stack([y.astype(jnp.float32), place, factors], 1)[None], form.rows, form.lanes)


def _call(how: OnChip, inputs: list[Array]) -> tuple[Array, list[Array]]:
    """(f32[lanes] the tally, the states) after training."""
    form, number = how.form, len(inputs)
    first = 4 + len(form.columns)
    others = (number - first) // (1 + form.anchored + form.begun)
    starts = inputs[first : first + others]
    shapes = [(form.across, form.widths[0]), *((each.shape[0] // form.models, each.shape[1]) for each in starts)]
    results = [*shapes * (1 + form.momentum), (8, form.lanes)]
    tpu = form.dialect == "tpu"
    wide = (*form.columns, form.widths[0]) if tpu and form.batch is not None else ()
    scratch = [(form.seen, columns) for columns in wide]

    settle = _barrier if form.tile and not how.kernel.interpret else lambda: None

    def body(*refs: Any) -> None:
        given, made, spare = refs[:number], refs[number : number + len(results)], refs[number + len(results) :]
        (scalars, counts, order, z), rows = given[:4], given[4:first]
        start, rest = given[first : first + others], given[first + others :]
        anchor, velocity = (rest[:others], rest[others:]) if form.anchored else ((), rest)
        chip.kernel(form, Refs(scalars, counts, order, z, rows, start, anchor, velocity, made[:-1], made[-1], spare, settle))

    call = pl.pallas_call(
        body,
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in results],
        interpret=how.kernel.interpret,
        name="client_training",
        **(_of_tpu(number, scratch, how.kernel.near) if tpu else _of_gpu()),
    )
    *states, tally = call(*inputs)
    return tally[0], states


def _of_tpu(number: int, scratch: list[tuple[int, int]], near: int) -> dict[str, Any]:
    """What Mosaic gets: what is read one by one lies in the memory of the scalar unit."""
    from jax.experimental.pallas import tpu

    scalars, vectors = pl.BlockSpec(memory_space=tpu.SMEM), pl.BlockSpec(memory_space=tpu.VMEM)
    return {
        "in_specs": [scalars] * 3 + [vectors] * (number - 3),
        "scratch_shapes": [tpu.VMEM(shape, jnp.float32) for shape in scratch],
        "compiler_params": tpu.CompilerParams(vmem_limit_bytes=near),
    }


def _barrier() -> None:
    """All threads of a GPU's program wait here for each other."""
    from jax.experimental.pallas import triton

    triton.debug_barrier()


def _of_gpu() -> dict[str, Any]:
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=8, num_stages=1)}
