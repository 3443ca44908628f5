"""Local SGD of a model whose first layer is dense, without a step ever touching that layer's weights.

The gradient of the first kernel is a sum of samples: xᵀ · (gradient of the layer's outputs). So after any number of steps the
kernel is W_t = W_0 − Xᵀ A_t with one row of A per sample, and what a batch sees, x W_t = x W_0 − (x Xᵀ) A_t, needs the client's
Gram matrix X Xᵀ only, which is computed once. A step on B of n samples costs n · B in place of 784 · B (MNIST); the kernel is
formed once, at the end. Proximal terms and weight decay pull towards fixed matrices: they shrink A and add a multiple of one more
matrix. Momentum is a second A. The same numbers as `train`, up to rounding.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax.kernels.choose import least_loss
from cfljax.local.gradients import Gradient
from cfljax.local.optimiser import sgd
from cfljax.local.products import Gram, all_samples, kept, made
from cfljax.local.schedule import Course, Orders, StepSamples, Task, follow
from cfljax.local.train import Position, start_of, stepper
from cfljax.local.turned import turns
from cfljax.models.flat import FirstDense, NetForward
from cfljax.types import Array, Federation, Grams, LocalStep, Model, Tree, Updates

THIN = 32
"""Outputs of a first layer up to which turning a kernel round costs less than it saves."""

FEW = 20
"""Outputs, and samples of a mini-batch, up to which it costs less to carry G A along than to compute the batch's rows of
it (measured on a CPU, n of 64 to 1,024: a third to a half of a step's time at batches of 5 and 10, nothing at 32)."""


Coefficients = tuple[Array, ...]
"""(f32[n, h] A,), or (f32[h, n] Aᵀ, f32[h, n] (G A)ᵀ) where the latter is carried along."""


class FirstLayer(NamedTuple):
    """Where the first kernel is: W_0 − Xᵀ A − pulled · Q − carried · V, with Q the constant part of the pulls, V the momentum
    that the client started with."""

    a: Coefficients
    u: Coefficients | None
    """The momentum buffer is Xᵀ u + speed[0] · Q + speed[1] · V."""
    moved: Array | None
    """f32[2]: how much of Q and of V the kernel has moved by; None where there is neither."""
    speed: Array | None
    """f32[2]."""


class Fixed(NamedTuple):
    """What all steps of a client read and none changes."""

    gram: Gram
    outputs: Array
    """f32[n, h] X W_0."""
    along: tuple[Array | None, Array | None]
    """f32[n, h] X Q and X V, where there are such."""
    y: Array
    """i32[n]."""
    weights: Array | None
    """f32[n] by which the samples' losses are multiplied; None: by 1."""


class Among(NamedTuple):
    """The models from which clients choose their start."""

    models: Array
    """f32[K, d]."""
    kernels: Array
    """f32[inputs, K · h] the first kernels, side by side: one product is faster than K."""
    others: Tree
    """Trees [K, …] of all other parameters."""


def among(model: Model, models: Array) -> Among:
    """The models, laid out for `train_on_gram`."""
    first = first_layer(model)
    assert first is not None
    kernels, others = jax.vmap(lambda flat: _apart(first, model, flat))(models)
    return Among(models, jnp.concatenate(list(kernels), axis=1), others)


def first_layer(model: Model) -> FirstDense | None:
    """The model's first layer if training it this way is exact: dense, fed with the samples as they are, without a penalty."""
    if not isinstance(model.forward, NetForward) or model.penalty is not None:
        return None
    net = model.forward.net
    return net.first if net.training is None and net.evaluation is None else None


class GramPlan(NamedTuple):
    """How clients of at most `length` samples are trained on their Gram matrices: static, but for the arrays."""

    length: int
    sequential: bool
    """Clients one after another: each may do without what it does not need."""
    summed: bool = False
    """Steps go along the gradient of a batch's summed loss."""
    grams: Grams | None = None
    """The matrices, where they have been made beforehand."""
    choice: Among | None = None
    """The models of which each client starts from the one with the least loss; None: from its task's."""


def train_on_gram(
    model: Model, federation: Federation, task: Task, course: Course, orders: Orders | None, numbers: LocalStep, plan: GramPlan
) -> Updates:
    """The update of a client, as `train` with plain SGD gives it."""
    first = first_layer(model)
    assert first is not None
    length, sequential, summed, grams, choice = plan
    rule, count = sgd(numbers), course.samples
    mask = jnp.arange(length, dtype=jnp.int32) < count
    (x, y), which, outputs = all_samples(federation, task.client, length), None, None
    if choice is not None:
        which, outputs = _pick(model, first, choice, x, y, mask)
        task = task._replace(start=choice.models[which])
    kernel, others = _apart(first, model, task.start)
    anchor, anchor_of_others = (None, others) if task.anchor is None else _apart(first, model, task.anchor)
    velocity, velocity_of_others = (None, None) if task.velocity is None else _apart(first, model, task.velocity)
    pull = _pull(numbers, kernel, anchor)
    along = (None if pull is None else x @ pull, None if velocity is None else x @ velocity)
    gram = made(x, count, sequential) if grams is None else kept(grams, task.client, count, length, orders is None)
    fixed = Fixed(gram, x @ kernel if outputs is None else outputs, along, y, _padded(task.weights, length))
    turn = turns(others) if sequential else lambda tree: tree
    step = stepper(rule, numbers, turn(anchor_of_others))
    begin = _first(fixed.outputs.shape[1], length, sequential, orders, numbers, pull is not None or velocity is not None)

    def visit(at: tuple[Position, FirstLayer], seen: StepSamples | None, number: Array) -> tuple[Position, FirstLayer]:
        position, layer = at
        where, here, number_of = (None, mask, count) if seen is None else seen
        z, labels, weights = _seen(fixed, layer, where, number > 0)
        loss_sum = lambda z, params: _loss_sum(model, z, turn(params), first, labels, here, weights)  # noqa: E731
        loss, (dz, grads) = jax.value_and_grad(loss_sum, (0, 1))(z, position.params)
        samples = number_of.astype(jnp.float32)
        mean = 1 / jnp.maximum(samples, 1.0)
        dz, grads = (dz, grads) if summed else (dz * mean, jax.tree.map(lambda g: g * mean, grads))
        return step(position, Gradient(loss * mean, samples, grads)), _move(fixed.gram, layer, numbers, where, dz)

    end, layer = follow(course, orders, visit, (start_of(rule, turn(others), turn(velocity_of_others)), begin))
    moved = -_across(layer.a, x) - _sum(layer.moved, pull, velocity)
    step_of_others = jax.tree.map(jnp.subtract, turn(end.params), others)
    delta = jnp.where(course.total > 0, model.ravel(replaced(step_of_others, first.kernel, moved)), 0.0)
    buffers = None
    if velocity is not None and layer.u is not None:
        buffer = _across(layer.u, x) + _sum(layer.speed, pull, velocity)
        buffers = model.ravel(replaced(turn(end.optimiser), first.kernel, buffer))
    return Updates(delta, end.loss / course.visited, course.total, buffers, which)


def _first(width: int, length: int, sequential: bool, orders: Orders | None, numbers: LocalStep, pulled: bool) -> FirstLayer:
    """The first layer before the first step. `width`: its outputs. `pulled`: something moves it besides the samples."""
    few = sequential and orders is not None and max(orders.batch, width) <= FEW
    zero = (jnp.zeros((width, length)),) * 2 if few else (jnp.zeros((length, width)),)
    aside = (jnp.zeros(2), jnp.array([0.0, 1.0])) if pulled else (None, None)
    return FirstLayer(zero, None if numbers.momentum is None else zero, *aside)


def _padded(weights: Array | None, length: int) -> Array | None:
    """f32[length]."""
    return None if weights is None else jnp.pad(weights[:length], (0, max(length - weights.shape[0], 0)))


def _pick(model: Model, first: FirstDense, choice: Among, x: Array, y: Array, mask: Array) -> tuple[Array, Array]:
    """(i32[] the model of least loss on the samples, f32[n, h] what its first kernel makes of them)."""
    clusters, outputs = choice.models.shape[0], x @ choice.kernels
    width = outputs.shape[1] // clusters
    of = lambda k: jax.lax.dynamic_slice_in_dim(outputs, k * width, width, 1)  # noqa: E731

    def loss(k: Array) -> Array:
        return _loss_sum(model, of(k), jax.tree.map(lambda leaf: leaf[k], choice.others), first, y, mask)

    which = least_loss(jax.lax.map(loss, jnp.arange(clusters))[:, None])[0]
    return which, of(which)


def _apart(first: FirstDense, model: Model, flat: Array) -> tuple[Array, Tree]:
    """(the first kernel, the tree of all other parameters)."""
    params = model.unravel(flat)
    return inner(params, first.kernel), _without(params, first.kernel)


def inner(tree: Tree, path: tuple[str, ...]) -> Tree:
    """The entry of nested tables that the keys lead to."""
    for name in path:
        tree = tree[name]
    return tree


def _without(tree: Tree, path: tuple[str, ...]) -> Tree:
    head, *rest = path
    if not rest:
        return {name: value for name, value in tree.items() if name != head}
    return {name: _without(value, tuple(rest)) if name == head else value for name, value in tree.items()}


def replaced(tree: Tree, path: tuple[str, ...], leaf: Array) -> Tree:
    """The tree with this leaf at the end of the keys."""
    head, *rest = path
    return {**tree, head: replaced(tree[head], tuple(rest), leaf) if rest else leaf}


def _pull(numbers: LocalStep, kernel: Array, anchor: Array | None) -> Array | None:
    """f32[inputs, h]: what proximal term and weight decay add to the gradient at the start; None where that is nothing."""
    parts = []
    if numbers.mu is not None and anchor is not None:
        parts.append(numbers.mu * (kernel - anchor))
    if numbers.weight_decay is not None:
        parts.append(numbers.weight_decay * kernel)
    return functools.reduce(jnp.add, parts) if parts else None


def _sum(amounts: Array | None, *matrices: Array | None) -> Array:
    if amounts is None:
        return jnp.float32(0)
    return sum((amounts[i] * m for i, m in enumerate(matrices) if m is not None), start=jnp.float32(0))


def _loss_sum(
    model: Model, z: Array, params: Tree, first: FirstDense, y: Array, mask: Array, weights: Array | None = None
) -> Array:
    losses = model.loss(first.rest(params, z + inner(params, first.bias)), y)
    return jnp.sum(jnp.where(mask, losses if weights is None else weights * losses, 0.0))


def _across(a: Coefficients, x: Array) -> Array:
    """f32[inputs, h]: Xᵀ A, multiplied the way round that a CPU does faster: of a thin matrix three times, if XLA is kept from
    turning the product back."""
    product = (a[0].T if len(a) == 1 else a[0]) @ x
    return (jax.lax.optimization_barrier(product) if product.shape[0] <= THIN else product).T


def _seen(fixed: Fixed, layer: FirstLayer, where: Array | None, begun: Array) -> tuple[Array, Array, Array | None]:
    """(f32[B, h] outputs of the first kernel for the samples now, i32[B] their labels, f32[B] their weights). Before the first step
    (not `begun`) A is zero."""

    def rows(matrix: Array) -> Array:
        return matrix if where is None else matrix[where]

    if where is None:  # a large product, spared in the first of few steps
        change = jax.lax.cond(begun, lambda: fixed.gram.rows @ layer.a[0], lambda: jnp.zeros_like(layer.a[0]))
    else:
        change = layer.a[1][:, where].T if len(layer.a) == 2 else fixed.gram.of(where) @ layer.a[0]
    z = rows(fixed.outputs) - change
    if layer.moved is not None:
        for amount, along in zip(layer.moved, fixed.along, strict=True):
            if along is not None:
                z = z - amount * rows(along)
    return z, rows(fixed.y), None if fixed.weights is None else rows(fixed.weights)


def _move(gram: Gram, layer: FirstLayer, numbers: LocalStep, where: Array | None, dz: Array) -> FirstLayer:
    """One step of SGD along the samples f32[B, h]: what `optimiser.sgd` does, on the coefficients."""
    lr, momentum = numbers.lr, numbers.momentum
    pulls = [pull for pull in (numbers.mu, numbers.weight_decay) if pull is not None]
    shrink = functools.reduce(jnp.add, pulls) if pulls else None
    constant = jnp.array([1.0, 0.0])
    each = lambda f, *of: tuple(map(f, *of))  # noqa: E731

    if momentum is None:
        kept = 1.0 if shrink is None else 1 - lr * shrink
        a = _plus(layer.a if shrink is None else each(lambda a: kept * a, layer.a), gram, where, lr * dz)
        return layer._replace(a=a, moved=None if layer.moved is None else kept * layer.moved + lr * constant)
    assert layer.u is not None
    u = each(lambda u: momentum * u, layer.u)
    if shrink is not None:
        u = each(lambda u, a: u - shrink * a, u, layer.a)
    u = _plus(u, gram, where, dz)
    a = each(lambda a, u: a + lr * u, layer.a, u)
    if layer.moved is None or layer.speed is None:
        return layer._replace(a=a, u=u)
    speed = momentum * layer.speed + constant - (0.0 if shrink is None else shrink) * layer.moved
    return FirstLayer(a, u, layer.moved + lr * speed, speed)


def _plus(to: Coefficients, gram: Gram, where: Array | None, what: Array) -> Coefficients:
    """The coefficients with f32[B, h] added to those of the samples `where`."""
    if where is None:
        return (to[0] + what,)
    if len(to) == 1:
        return (to[0].at[where].add(what, unique_indices=True),)
    # written out it is one loop over n, twice as fast as the matrix product
    change = sum(what[i][:, None] * gram.of(where[i]) for i in range(what.shape[0]))
    return to[0].at[:, where].add(what.T, unique_indices=True), to[1] + change
