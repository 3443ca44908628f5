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
from typing import NamedTuple

from cfljax.kernels.choose import least_loss
from cfljax.lazy import jax, jnp
from cfljax.local.optimiser import sgd
from cfljax.local.products import Gram, all_samples, compute_gram, read_gram
from cfljax.local.schedule import Course, Orders, StepSamples, Task, follow
from cfljax.local.train import Gradient, Position, Turns, make_stepper, start_at
from cfljax.local.turned import drop_path, get_path, make_turn, replace_path
from cfljax.models.flat import FirstDense, NetForward
from cfljax.types import Array, Federation, Grams, LocalStep, Model, Tree, Updates

# For a first layer of at most this number of outputs, `_product_across` fixes the order of its
# product
MAX_THIN_OUTPUTS = 32

MAX_PRODUCT_UPDATE = 20
"""If neither the outputs of the layer nor the samples of a mini-batch are more than this, each step
updates the product G A (G the Gram matrix) instead of computing the batch's rows of it. Measured on
a CPU, n of 64 to 1,024: this saves a third to a half of a step's time at batches of 5 and 10, and
nothing at 32."""
Coefficients = tuple[Array, ...]
"""(A f32[n, h],), or (Aᵀ f32[h, n], (G A)ᵀ f32[h, n]) where steps update that product, too (see
MAX_PRODUCT_UPDATE)."""


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


class Among(NamedTuple):
    """The models from which clients choose their start."""

    # f32[K, d]
    models: Array
    # f32[inputs, K · h] the first kernels of all models side by side: one product with it is faster
    # than K products
    kernels: Array
    # A tree of all other parameters; each of its arrays has a leading axis K
    others: Tree


def prepare_choice(model: Model, models: Array) -> Among:
    """Convert the models f32[K, d] to the form that `train_on_gram` needs to choose among them."""
    first = first_layer(model)
    assert first is not None
    kernels, others = jax.vmap(lambda flat: split_kernel(first, model, flat))(models)
    return Among(models, jnp.concatenate(list(kernels), axis=1), others)


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
    grams: Grams | None = (
        # The Gram matrices that were computed before the first round; None: they are computed here
        None
    )
    choice: Among | None = None
    """Models among which each client takes the one with the least loss as its start; None: it
    starts from the model of its task."""
    # As in `follow`
    block: int = 0
    turns: Turns | None = (
        # Which numbers train; None: all do. The first kernel does, and there are no turns by
        # epochs.
        None
    )


def train_on_gram(
    model: Model,
    federation: Federation,
    task: Task,
    course: Course,
    orders: Orders | None,
    numbers: LocalStep,
    plan: GramPlan,
) -> Updates:
    """Train one client: the same update as `train` with plain SGD, up to rounding."""
    first = first_layer(model)
    assert first is not None
    length, sequential, summed, grams, choice, block, turns_of_parts = plan
    rule, count = sgd(numbers), course.samples
    mask = jnp.arange(length, dtype=jnp.int32) < count
    (x, y), which, outputs = all_samples(federation, task.client, length), None, None
    if choice is not None:
        which, outputs = _choose(model, first, choice, x, y, mask)
        task = task._replace(start=choice.models[which])
    kernel, others = split_kernel(first, model, task.start)
    anchor, anchor_of_others = (
        (None, others) if task.anchor is None else split_kernel(first, model, task.anchor)
    )
    velocity, velocity_of_others = (
        (None, None) if task.velocity is None else split_kernel(first, model, task.velocity)
    )
    pull = compute_pull(numbers, kernel, anchor)
    along = (None if pull is None else x @ pull, None if velocity is None else x @ velocity)
    gram = (
        compute_gram(x, count, sequential)
        if grams is None
        else read_gram(grams, task.client, count, length, orders is None)
    )
    fixed = Fixed(
        gram,
        x @ kernel if outputs is None else outputs,
        along,
        y,
        pad_weights(task.weights, length),
    )
    turn = make_turn(others) if sequential else lambda tree: tree
    step = make_stepper(rule, numbers, turn(anchor_of_others))
    trains = (
        None
        if turns_of_parts is None
        else turn(drop_path(turns_of_parts.masks(model.unravel)[0], first.kernel))
    )
    begin = _init_layer(
        fixed.outputs.shape[1],
        length,
        sequential,
        orders,
        numbers,
        pull is not None or velocity is not None,
    )

    def visit(
        at: tuple[Position, FirstLayer], seen: StepSamples | None, number: Array
    ) -> tuple[Position, FirstLayer]:
        position, layer = at
        where, here, number_of = (None, mask, count) if seen is None else seen
        z, labels, weights = _read_batch(fixed, layer, where, None if block else number > 0)
        loss_sum = lambda z, params: _loss_sum(model, z, turn(params), first, labels, here, weights)  # noqa: E731
        loss, (dz, grads) = jax.value_and_grad(loss_sum, (0, 1))(z, position.params)
        samples = number_of.astype(jnp.float32)
        mean = 1 / jnp.maximum(samples, 1.0)
        dz, grads = (dz, grads) if summed else (dz * mean, jax.tree.map(lambda g: g * mean, grads))
        return step(position, Gradient(loss * mean, samples, grads), trains), _move(
            fixed.gram, layer, numbers, where, dz
        )

    end, layer = follow(
        course,
        orders,
        visit,
        (start_at(rule, turn(others), turn(velocity_of_others)), begin),
        block,
    )
    moved = -_product_across(layer.a, x) - weighted_sum(layer.moved, pull, velocity)
    step_of_others = jax.tree.map(jnp.subtract, turn(end.params), others)
    delta = jnp.where(
        course.total > 0, model.ravel(replace_path(step_of_others, first.kernel, moved)), 0.0
    )
    buffers = None
    if velocity is not None and layer.u is not None:
        buffer = _product_across(layer.u, x) + weighted_sum(layer.speed, pull, velocity)
        buffers = model.ravel(replace_path(turn(end.optimiser), first.kernel, buffer))
    return Updates(delta, end.loss / course.visited, course.total, buffers, which)


def _init_layer(
    width: int,
    length: int,
    sequential: bool,
    orders: Orders | None,
    numbers: LocalStep,
    pulled: bool,
) -> FirstLayer:
    """Return the first layer before the first step. `width`: the number h of its outputs. `pulled`:
    whether Q or V exists."""
    few = sequential and orders is not None and max(orders.batch, width) <= MAX_PRODUCT_UPDATE
    zero = (jnp.zeros((width, length)),) * 2 if few else (jnp.zeros((length, width)),)
    aside = (jnp.zeros(2), jnp.array([0.0, 1.0])) if pulled else (None, None)
    return FirstLayer(zero, None if numbers.momentum is None else zero, *aside)


def pad_weights(weights: Array | None, length: int) -> Array | None:
    """Pad or cut the weights of a client's samples to f32[length]; None for None."""
    return (
        None
        if weights is None
        else jnp.pad(weights[:length], (0, max(length - weights.shape[0], 0)))
    )


def _choose(
    model: Model, first: FirstDense, choice: Among, x: Array, y: Array, mask: Array
) -> tuple[Array, Array]:
    """Return the model with the least loss on the samples, i32[], and the outputs f32[n, h] of its
    first kernel for them."""
    clusters, outputs = choice.models.shape[0], x @ choice.kernels
    width = outputs.shape[1] // clusters
    of = lambda k: jax.lax.dynamic_slice_in_dim(outputs, k * width, width, 1)  # noqa: E731

    def loss(k: Array) -> Array:
        return _loss_sum(
            model, of(k), jax.tree.map(lambda leaf: leaf[k], choice.others), first, y, mask
        )

    which = least_loss(jax.lax.map(loss, jnp.arange(clusters))[:, None])[0]
    return which, of(which)


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


def weighted_sum(amounts: Array | None, *matrices: Array | None) -> Array:
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
    """Compute Xᵀ A f32[inputs, h] as (Aᵀ X)ᵀ. For a thin A this order is three times as fast on a
    CPU; a barrier keeps it."""
    product = (a[0].T if len(a) == 1 else a[0]) @ x
    return (
        jax.lax.optimization_barrier(product) if product.shape[0] <= MAX_THIN_OUTPUTS else product
    ).T


def _read_batch(
    fixed: Fixed, layer: FirstLayer, where: Array | None, begun: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return (f32[B, h] the outputs of the first kernel for the batch, i32[B] its labels, f32[B]
    its weights or None). `where` i32[B]: the positions of the batch; None: all samples. `begun`
    bool[]: False in the first step, where A is still zero; None: every step computes with A, as on
    a GPU, whose host would have to decide."""

    def rows(matrix: Array) -> Array:
        return matrix if where is None else matrix[where]

    whole = lambda: fixed.gram.rows @ layer.a[0]  # noqa: E731
    # Skips a large product in the first step
    if where is None:
        change = (
            whole()
            if begun is None
            else jax.lax.cond(begun, whole, lambda: jnp.zeros_like(layer.a[0]))
        )
    else:
        change = layer.a[1][:, where].T if len(layer.a) == 2 else fixed.gram.of(where) @ layer.a[0]
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
    shrink = functools.reduce(jnp.add, pulls) if pulls else None
    constant = jnp.array([1.0, 0.0])
    each = lambda f, *of: tuple(map(f, *of))  # noqa: E731

    if momentum is None:
        kept = 1.0 if shrink is None else 1 - lr * shrink
        a = _add_rows(
            layer.a if shrink is None else each(lambda a: kept * a, layer.a), gram, where, lr * dz
        )
        return layer._replace(
            a=a, moved=None if layer.moved is None else kept * layer.moved + lr * constant
        )
    assert layer.u is not None
    u = each(lambda u: momentum * u, layer.u)
    if shrink is not None:
        u = each(lambda u, a: u - shrink * a, u, layer.a)
    u = _add_rows(u, gram, where, dz)
    a = each(lambda a, u: a + lr * u, layer.a, u)
    if layer.moved is None or layer.speed is None:
        return layer._replace(a=a, u=u)
    speed = momentum * layer.speed + constant - (0.0 if shrink is None else shrink) * layer.moved
    return FirstLayer(a, u, layer.moved + lr * speed, speed)


def _add_rows(to: Coefficients, gram: Gram, where: Array | None, what: Array) -> Coefficients:
    """Add `what` f32[B, h] to the rows `where` i32[B] of A (None: to all rows)."""
    if where is None:
        return (to[0] + what,)
    if len(to) == 1:
        return (to[0].at[where].add(what, unique_indices=True),)
    # written out it is one loop over n, twice as fast as the matrix product
    change = sum(what[i][:, None] * gram.of(where[i]) for i in range(what.shape[0]))
    return to[0].at[:, where].add(what.T, unique_indices=True), to[1] + change
