"""Local SGD of a model whose first layer is dense, in which no step computes with the weights of
that layer.

Let X f32[n, inputs] be the client's samples and W the first layer's kernel. The gradient by W is Xᵀ
· (the gradient by the outputs of the layer). So after t steps W_t = W_0 − Xᵀ A_t, with one row of
coefficients A_t f32[n, h] per sample. The outputs for a batch x are x W_t = x W_0 − (x Xᵀ) A_t.
They need rows of the client's Gram matrix X Xᵀ, which is computed once. A step on B samples costs n
· B · h operations instead of inputs · B · h (784 inputs with MNIST). The kernel is formed once,
after the last step.

The proximal term and weight decay pull W towards fixed matrices: they shrink A and add a multiple
of one more matrix, Q. Momentum is a second matrix of coefficients. The result is as from `train`,
up to rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from cfljax.kernels.choose import least_loss
from cfljax.lazy import jax, jnp
from cfljax.local.optimiser import sgd, with_head_rate
from cfljax.local.products import Gram, all_samples, compute_gram, read_gram
from cfljax.local.schedule import Course, Orders, StepSamples, Task, follow
from cfljax.local.train import Gradient, Position, Turns, make_stepper, start_at
from cfljax.local.turned import drop_path, get_path, make_turn, replace_path
from cfljax.models.flat import FirstDense, NetForward, mark_head
from cfljax.types import Array, Federation, Grams, LocalStep, Model, Tree, Updates

# For a first layer of at most this number of outputs, `_product_across` fixes the order of its
# product
MAX_ORDERED_OUTPUTS = 32

# If neither the outputs of the layer nor the samples of a mini-batch are more than this, each step
# updates the product G A (G the Gram matrix) instead of computing the batch's rows of it. Measured
# on a CPU, n of 64 to 1,024: this saves a third to a half of a step's time at batches of 5 and 10,
# and nothing at 32
MAX_PRODUCT_UPDATE = 20
# (A f32[n, h],), or (Aᵀ f32[h, n], (G A)ᵀ f32[h, n]) where steps update that product, too (see
# MAX_PRODUCT_UPDATE)
Coefficients = tuple[Array, ...]


class FirstLayer(NamedTuple):
    """The first kernel during training: W_0 − Xᵀ a − moved[0] · Q − moved[1] · V. Q is the constant
    part of the proximal term's and the weight decay's gradient, V the momentum buffer that the
    client started with."""

    a: Coefficients
    # The momentum buffer is Xᵀ u + speed[0] · Q + speed[1] · V. None: no momentum.
    u: Coefficients | None
    # f32[2]: the factors of Q and V in the kernel; None: neither Q nor V exists
    moved: Array | None
    # f32[2]: the factors of Q and V in the momentum buffer; None as `moved`
    speed: Array | None


class Fixed(NamedTuple):
    """The data of a client that all steps read and no step changes."""

    gram: Gram
    # X W_0 f32[n, h]: the outputs of the first kernel at the start
    outputs: Array
    # X Q and X V, f32[n, h] each; None for a matrix that does not exist
    along: tuple[Array | None, Array | None]
    # i32[n] the labels
    y: Array
    # f32[n] the factors of the samples' losses; None: all are 1
    weights: Array | None


class Candidates(NamedTuple):
    """The models from which clients choose their start."""

    # f32[K, d]
    models: Array
    # f32[inputs, K · h] the first kernels of all models side by side: one product with it is faster
    # than K products
    kernels: Array
    # A tree of all other parameters; each of its arrays has a leading axis K
    others: Tree


def prepare_choice(model: Model, models: Array) -> Candidates:
    """Convert the models f32[K, d] to the form that `train_on_gram` needs to choose among them."""
    first = first_layer(model)
    assert first is not None
    kernels, others = jax.vmap(lambda flat: split_kernel(first, model, flat))(models)
    return Candidates(models, jnp.concatenate(list(kernels), axis=1), others)


def first_layer(model: Model) -> FirstDense | None:
    """Return the model's first layer if training it this way is exact, else None. It is exact if
    the layer is dense, gets the samples unchanged, and the model has no penalty."""
    if not isinstance(model.forward, NetForward) or model.penalty is not None:
        return None
    net = model.forward.net
    return net.first if net.training is None and net.evaluation is None else None


class GramPlan(NamedTuple):
    """How clients of at most `length` samples are trained on their Gram matrices. Static, except
    for the arrays in it."""

    length: int
    # Whether clients train one after another. Then each client skips the computations that it does
    # not need.
    sequential: bool
    # Whether a step follows the gradient of the batch's summed loss; False: of its mean loss
    summed: bool = False
    # The Gram matrices that were computed before the first round; None: they are computed here
    grams: Grams | None = None
    # Models among which each client takes the one with the least loss as its start; None: it starts
    # from the model of its task
    choice: Candidates | None = None
    # As in `follow`
    block: int = 0
    # Which numbers train; None: all do. The first kernel does, and there are no turns by epochs
    turns: Turns | None = None


def train_on_gram(
    model: Model,
    federation: Federation,
    task: Task,
    course: Course,
    orders: Orders | None,
    numbers: LocalStep,
    plan: GramPlan,
) -> Updates:
    """Train one client: the same update as `train` with plain SGD, up to rounding.

    Args:
      model: A model for which `first_layer` is not None.
      federation: The clients' data.
      task: The client's job.
      course: Its numbers of samples and steps.
      orders: The shuffles of its epochs; None: each step sees all of its samples.
      numbers: The numbers of a step.
      plan: How clients of this size are trained.
    """
    first = first_layer(model)
    assert first is not None
    mask = jnp.arange(plan.length, dtype=jnp.int32) < course.samples
    x, y = all_samples(federation, task.client, plan.length)
    which = None
    outputs = None
    if plan.choice is not None:
        # The outputs at the chosen start are known from the choice
        which, outputs = _choose(model, first, plan.choice, x, y, mask)
        task = task._replace(start=plan.choice.models[which])

    # The first kernel and all other parameters go separate ways from here on
    start = _split_task(first, model, task)
    pull = compute_pull(numbers, start.kernel, start.anchor)
    outputs = x @ start.kernel if outputs is None else outputs
    # What steps read: nothing of it has the size of the kernel
    fixed = Fixed(
        gram=_load_gram(task, course, orders, plan, x),
        outputs=outputs,
        along=(
            None if pull is None else x @ pull,
            None if start.velocity is None else x @ start.velocity,
        ),
        y=y,
        weights=pad_weights(task.weights, plan.length),
    )

    # Thin kernels of the other layers are transposed during training (local/turned.py); a second
    # `turn` turns them back
    turn = make_turn(start.others) if plan.sequential else _leave
    # The first kernel is no head: a method with a rate for its head has a body, too
    rule = with_head_rate(sgd, numbers, lambda: drop_path(mark_head(model), first.kernel))
    step = make_stepper(rule, numbers, turn(start.anchor_of_others))
    trains = None
    if plan.turns is not None:
        trains = turn(drop_path(plan.turns.masks(model.unravel)[0], first.kernel))

    def visit(
        at: tuple[Position, FirstLayer], seen: StepSamples | None, number: Array
    ) -> tuple[Position, FirstLayer]:
        position, layer = at
        where, valid, size = (None, mask, course.samples) if seen is None else seen
        # In blocks of steps a GPU would have to ask its host which branch to take
        begun = None if plan.block else number > 0
        z, labels, weights = _read_batch(fixed, layer, where, begun)

        def loss_sum(z: Array, params: Tree) -> Array:
            return _loss_sum(model, z, turn(params), first, labels, valid, weights)

        loss, (dz, grads) = jax.value_and_grad(loss_sum, (0, 1))(z, position.params)
        samples = size.astype(jnp.float32)
        mean = 1 / jnp.maximum(samples, 1.0)
        if not plan.summed:
            dz = dz * mean
            grads = jax.tree.map(lambda g: g * mean, grads)
        position = step(position, Gradient(loss * mean, samples, grads), trains)
        return position, _move(fixed.gram, layer, numbers, where, dz)

    has_matrices = pull is not None or start.velocity is not None
    layer = _init_layer(outputs.shape[1], plan, orders, numbers, has_matrices)
    begin = start_at(rule, turn(start.others), turn(start.velocity_of_others))
    end, layer = follow(course, orders, visit, (begin, layer), plan.block)

    delta, buffers = _form_updates(model, first, start, pull, x, turn, end, layer)
    # A client without a step has changed nothing, not even by rounding
    delta = jnp.where(course.total > 0, delta, 0.0)
    return Updates(delta, end.loss / course.visited, course.total, buffers, which)


class _SplitTask(NamedTuple):
    """The vectors of a client's task, each split into the first kernel f32[inputs, h] and the tree
    of all other parameters."""

    # The model that it starts from
    kernel: Array
    others: Tree
    # The model that the proximal term pulls to. Without an anchor this is the start, where the
    # constant part of the pull is 0: there is no matrix of it
    anchor: Array | None
    anchor_of_others: Tree
    # The momentum buffer that it starts with; None: there is none
    velocity: Array | None
    velocity_of_others: Tree


def _split_task(first: FirstDense, model: Model, task: Task) -> _SplitTask:
    """Split the vectors of a task."""
    kernel, others = split_kernel(first, model, task.start)
    anchor = None
    anchor_of_others = others
    if task.anchor is not None:
        anchor, anchor_of_others = split_kernel(first, model, task.anchor)
    velocity = None
    velocity_of_others = None
    if task.velocity is not None:
        velocity, velocity_of_others = split_kernel(first, model, task.velocity)
    return _SplitTask(kernel, others, anchor, anchor_of_others, velocity, velocity_of_others)


def _form_updates(
    model: Model,
    first: FirstDense,
    start: _SplitTask,
    pull: Array | None,
    x: Array,
    turn: Callable[[Tree], Tree],
    end: Position,
    layer: FirstLayer,
) -> tuple[Array, Array | None]:
    """Return (the client's update f32[d], its momentum buffer f32[d]; None: it has none). The
    kernel is formed here, once.

    Args:
      model: The network.
      first: Its first layer.
      start: The task, whose vectors are split.
      pull: f32[inputs, h] the matrix Q; None: there is none.
      x: f32[n, inputs] the client's samples.
      turn: Transposes kernels of other layers that were transposed during training.
      end: All other parameters, after the last step.
      layer: The first layer, after the last step.
    """
    moved = -_product_across(layer.a, x) - _sum_scaled(layer.moved, pull, start.velocity)
    step_of_others = jax.tree.map(jnp.subtract, turn(end.params), start.others)
    delta = model.ravel(replace_path(step_of_others, first.kernel, moved))
    if start.velocity is None or layer.u is None:
        return delta, None
    buffer = _product_across(layer.u, x) + _sum_scaled(layer.speed, pull, start.velocity)
    return delta, model.ravel(replace_path(turn(end.optimiser), first.kernel, buffer))


def _load_gram(
    task: Task,
    course: Course,
    orders: Orders | None,
    plan: GramPlan,
    x: Array,
) -> Gram:
    """Return the client's Gram matrix: one that was computed before the first round, or of its
    samples x f32[n, inputs]."""
    if plan.grams is None:
        return compute_gram(x, course.samples, plan.sequential)
    return read_gram(plan.grams, task.client, course.samples, plan.length, orders is None)


def _leave(tree: Tree) -> Tree:
    """Return the tree as it is, where kernels are not transposed."""
    return tree


def _init_layer(
    width: int, plan: GramPlan, orders: Orders | None, numbers: LocalStep, has_matrices: bool
) -> FirstLayer:
    """Return the first layer before the first step. `width`: the number h of its outputs.
    `has_matrices`: whether Q or V exists."""
    updates_product = (
        plan.sequential and orders is not None and max(orders.batch, width) <= MAX_PRODUCT_UPDATE
    )
    if updates_product:
        zero: Coefficients = (jnp.zeros((width, plan.length)),) * 2
    else:
        zero = (jnp.zeros((plan.length, width)),)
    u = None if numbers.momentum is None else zero
    if not has_matrices:
        return FirstLayer(zero, u, None, None)
    # The momentum buffer is V at the start
    return FirstLayer(zero, u, jnp.zeros(2), jnp.array([0.0, 1.0]))


def pad_weights(weights: Array | None, length: int) -> Array | None:
    """Pad or cut the weights of a client's samples to f32[length]; None for None."""
    if weights is None:
        return None
    return jnp.pad(weights[:length], (0, max(length - weights.shape[0], 0)))


def _choose(
    model: Model, first: FirstDense, choice: Candidates, x: Array, y: Array, mask: Array
) -> tuple[Array, Array]:
    """Return the model with the least loss on the samples, i32[], and the outputs f32[n, h] of its
    first kernel for them."""
    clusters = choice.models.shape[0]
    outputs = x @ choice.kernels
    width = outputs.shape[1] // clusters

    def outputs_of(k: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(outputs, k * width, width, 1)

    def loss(k: Array) -> Array:
        z = outputs_of(k)
        others = jax.tree.map(lambda leaf: leaf[k], choice.others)
        return _loss_sum(model, z, others, first, y, mask)

    which = least_loss(jax.lax.map(loss, jnp.arange(clusters))[:, None])[0]
    return which, outputs_of(which)


def split_kernel(first: FirstDense, model: Model, flat: Array) -> tuple[Array, Tree]:
    """Split the flat parameters f32[d] into the first kernel f32[inputs, h] and the tree of all
    other parameters."""
    params = model.unravel(flat)
    return get_path(params, first.kernel), drop_path(params, first.kernel)


def compute_pull(numbers: LocalStep, kernel: Array, anchor: Array | None) -> Array | None:
    """Compute Q f32[inputs, h], the part of the gradient at the start from proximal term and weight
    decay; None: there is none."""
    parts = []
    if numbers.mu is not None and anchor is not None:
        parts.append(numbers.mu * (kernel - anchor))
    if numbers.weight_decay is not None:
        parts.append(numbers.weight_decay * kernel)
    return functools.reduce(jnp.add, parts) if parts else None


def _sum_scaled(amounts: Array | None, *matrices: Array | None) -> Array:
    """Sum amounts[i] · matrices[i] over the matrices that are not None; 0 if `amounts` is None."""
    if amounts is None:
        return jnp.float32(0)
    return sum(
        (amounts[i] * m for i, m in enumerate(matrices) if m is not None), start=jnp.float32(0)
    )


def _loss_sum(
    model: Model,
    z: Array,
    params: Tree,
    first: FirstDense,
    y: Array,
    mask: Array,
    weights: Array | None = None,
) -> Array:
    """Compute the weighted sum of the samples' losses, f32[]. z f32[B, h]: the outputs of the first
    kernel, without the bias."""
    losses = model.loss(first.rest(params, z + get_path(params, first.bias)), y)
    return jnp.sum(jnp.where(mask, losses if weights is None else weights * losses, 0.0))


def _product_across(a: Coefficients, x: Array) -> Array:
    """Compute Xᵀ A f32[inputs, h]."""
    # As (Aᵀ X)ᵀ: for a thin A this order is three times as fast on a CPU. Without the barrier XLA
    # would choose the other one
    product = (a[0].T if len(a) == 1 else a[0]) @ x
    if product.shape[0] <= MAX_ORDERED_OUTPUTS:
        product = jax.lax.optimization_barrier(product)
    return product.T


def _read_batch(
    fixed: Fixed, layer: FirstLayer, where: Array | None, begun: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return the outputs f32[B, h] of the first kernel for a batch, the batch's labels i32[B], and
    its weights f32[B] or None.

    Args:
      fixed: The data that no step changes.
      layer: The first layer now.
      where: i32[B] the positions of the batch; None: all samples.
      begun: bool[] False in the first step, where A is still zero; None: every step computes with
        A.
    """

    def rows(matrix: Array) -> Array:
        return matrix if where is None else matrix[where]

    def multiply_all() -> Array:
        return fixed.gram.rows @ layer.a[0]

    # x W_t = x W_0 − (x Xᵀ) A_t
    if where is None and begun is None:
        change = multiply_all()
    elif where is None:
        # The first step skips a large product
        change = jax.lax.cond(begun, multiply_all, lambda: jnp.zeros_like(layer.a[0]))
    elif len(layer.a) == 2:
        change = layer.a[1][:, where].T
    else:
        change = fixed.gram.of(where) @ layer.a[0]
    z = rows(fixed.outputs) - change
    if layer.moved is not None:
        for amount, along in zip(layer.moved, fixed.along, strict=True):
            if along is not None:
                z = z - amount * rows(along)
    return z, rows(fixed.y), None if fixed.weights is None else rows(fixed.weights)


def _move(
    gram: Gram, layer: FirstLayer, numbers: LocalStep, where: Array | None, dz: Array
) -> FirstLayer:
    """Do one step of SGD on the first layer: `make_stepper` and `optimiser.sgd`, written for the
    coefficients. `dz` f32[B, h]: the gradient by the outputs of the layer for the samples `where`
    (None: all samples)."""
    lr, momentum = numbers.lr, numbers.momentum
    pulls = [pull for pull in (numbers.mu, numbers.weight_decay) if pull is not None]
    # The gradient of the pulls at W_t = W_0 − Xᵀ a − …: Q − shrink · (Xᵀ a + …)
    shrink = functools.reduce(jnp.add, pulls) if pulls else None
    only_q = jnp.array([1.0, 0.0])

    if momentum is None:
        factor = 1.0 if shrink is None else 1 - lr * shrink
        a = layer.a if shrink is None else _map_coefficients(lambda a: factor * a, layer.a)
        a = _add_rows(a, gram, where, lr * dz)
        moved = None if layer.moved is None else factor * layer.moved + lr * only_q
        return layer._replace(a=a, moved=moved)
    assert layer.u is not None
    u = _map_coefficients(lambda u: momentum * u, layer.u)
    if shrink is not None:
        u = _map_coefficients(lambda u, a: u - shrink * a, u, layer.a)
    u = _add_rows(u, gram, where, dz)
    a = _map_coefficients(lambda a, u: a + lr * u, layer.a, u)
    if layer.moved is None or layer.speed is None:
        return layer._replace(a=a, u=u)
    speed = momentum * layer.speed + only_q - (0.0 if shrink is None else shrink) * layer.moved
    return FirstLayer(a, u, layer.moved + lr * speed, speed)


def _map_coefficients(f: Callable[..., Array], *of: Coefficients) -> Coefficients:
    """Return f of the matrices of coefficients; what is linear in A is so in G A, too."""
    return tuple(map(f, *of))


def _add_rows(to: Coefficients, gram: Gram, where: Array | None, what: Array) -> Coefficients:
    """Add `what` f32[B, h] to the rows `where` i32[B] of A (None: to all rows)."""
    if where is None:
        return (to[0] + what,)
    if len(to) == 1:
        return (to[0].at[where].add(what, unique_indices=True),)
    # Written out it is one loop over n, twice as fast as the matrix product
    change = sum(what[i][:, None] * gram.of(where[i]) for i in range(what.shape[0]))
    return to[0].at[:, where].add(what.T, unique_indices=True), to[1] + change
