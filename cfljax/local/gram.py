"""Local SGD of a model whose first layer is dense, without a step ever touching that layer's weights.

The gradient of the first kernel is a sum of samples: xᵀ · (gradient of the layer's outputs). So after any number of steps the
kernel is W_t = W_0 − Xᵀ A_t with one row of A per sample, and what a batch sees, x W_t = x W_0 − (x Xᵀ) A_t, needs the client's
Gram matrix X Xᵀ only, which is computed once. A step on B of n samples costs n · B in place of 784 · B (MNIST); the kernel is
formed once, at the end. Proximal terms and weight decay pull towards fixed matrices: they shrink A and add a multiple of one more
matrix. Momentum is a second A. The same numbers as `train`, up to rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.kernels.choose import least_loss
from cfljax.local.data import take
from cfljax.local.optimiser import sgd
from cfljax.local.schedule import Course, Orders, Seen, Task, follow
from cfljax.local.train import Progress, start_of, stepper
from cfljax.models.flat import FirstDense, Forward
from cfljax.types import Federation, Hyper, Model, Updates

THIN = 32
"""Outputs of a first layer up to which turning a kernel round costs less than it saves."""

BLOCK, WHOLE = 64, 192
"""Samples whose products with as many others are computed in one go; up to WHOLE, those of all."""


class Layer(NamedTuple):
    """Where the first kernel is: W_0 − Xᵀ A − pulled · Q − carried · V, with Q the constant part of the pulls, V the momentum
    that the client started with."""

    a: jax.Array
    """f32[n, h]."""
    u: jax.Array | None
    """f32[n, h]: the momentum buffer is Xᵀ u + speed[0] · Q + speed[1] · V."""
    moved: jax.Array | None
    """f32[2]: how much of Q and of V the kernel has moved by; None where there is neither."""
    speed: jax.Array | None
    """f32[2]."""


class Fixed(NamedTuple):
    """What a client's steps read and never change."""

    gram: jax.Array
    """f32[n, n] X Xᵀ."""
    outputs: jax.Array
    """f32[n, h] X W_0."""
    along: tuple[jax.Array | None, jax.Array | None]
    """f32[n, h] X Q and X V, where there are such."""
    y: jax.Array
    """i32[n]."""


class Among(NamedTuple):
    """What clients choose their start from."""

    models: jax.Array
    """f32[K, d]."""
    kernels: jax.Array
    """f32[inputs, K · h] the first kernels, side by side: one product is faster than K."""
    others: Any
    """Trees [K, …] of all other parameters."""


def among(model: Model, models: jax.Array) -> Among:
    """The models, laid out for `train_on_gram`."""
    first = first_layer(model)
    assert first is not None
    kernels, others = jax.vmap(lambda flat: _apart(first, model, flat))(models)
    return Among(models, jnp.concatenate(list(kernels), axis=1), others)


def first_layer(model: Model) -> FirstDense | None:
    """The model's first layer if training it this way is exact: dense, fed with the samples as they are, without a penalty."""
    if not isinstance(model.forward, Forward) or model.penalty is not None:
        return None
    net = model.forward.net
    return net.first if net.training is None and net.evaluation is None else None


def train_on_gram(
    model: Model, federation: Federation, task: Task, course: Course, orders: Orders | None, hyper: Hyper, length: int,
    in_turn: bool, choice: Among | None = None,
) -> Updates:  # fmt: skip
    """As `train` with plain SGD, for a client of at most `length` samples, which starts from the model of least loss where there
    is a choice. `in_turn`: not side by side with others, so it may do without what it does not need."""
    first = first_layer(model)
    assert first is not None
    rule, count = sgd(hyper), course.samples
    place = jnp.arange(length, dtype=jnp.int32)
    x, y = take(federation, federation.train, task.client, place, place < count)
    x, which, outputs = x.reshape(length, -1), None, None
    if choice is not None:
        which, outputs = _pick(model, first, choice, x, y, place < count)
        task = task._replace(start=choice.models[which])
    (kernel, others), (anchor, near), (velocity, rest_velocity) = (
        _apart(first, model, flat) for flat in (task.start, task.anchor, task.velocity)
    )
    pull = _pull(hyper, kernel, anchor)
    along = (None if pull is None else x @ pull, None if velocity is None else x @ velocity)
    gram = products(x, count) if in_turn and length > WHOLE else x @ x.T
    fixed = Fixed(gram, x @ kernel if outputs is None else outputs, along, y)
    step = stepper(rule, hyper, others if near is None else near)
    zero = jnp.zeros_like(fixed.outputs)
    aside = (None, None) if pull is None and velocity is None else (jnp.zeros(2), jnp.array([0.0, 1.0]))
    layer = Layer(zero, zero if "momentum" in hyper else None, *aside)

    def visit(at: tuple[Progress, Layer], seen: Seen | None, number: jax.Array) -> tuple[Progress, Layer]:
        progress, layer = at
        where, here, there = (None, place < count, count) if seen is None else seen
        z, labels = _seen(fixed, layer, where, number > 0)
        loss, (dz, grads) = jax.value_and_grad(_loss_sum, (1, 2))(model, z, progress.params, first, labels, here)
        samples = there.astype(jnp.float32)
        mean = 1 / jnp.maximum(samples, 1.0)
        progress = step(progress, (loss * mean, samples, jax.tree.map(lambda g: g * mean, grads)))
        return progress, _move(layer, hyper, where, dz if "loss_sum" in hyper else dz * mean)

    end, layer = follow(course, orders, visit, (start_of(rule, others, rest_velocity), layer))
    moved = -_across(layer.a, x) - _sum(layer.moved, pull, velocity)
    step_of_others = jax.tree.map(jnp.subtract, end.params, others)
    delta = jnp.where(course.total > 0, model.ravel(replaced(step_of_others, first.kernel, moved)), 0.0)
    buffers = None
    if velocity is not None and layer.u is not None:
        buffers = model.ravel(replaced(end.optimiser, first.kernel, _across(layer.u, x) + _sum(layer.speed, pull, velocity)))
    return Updates(delta, end.loss / course.visited, course.total, buffers, which)


def products(x: jax.Array, count: jax.Array) -> jax.Array:
    """f32[n, n] X Xᵀ for the first `count` samples, zeros for the others: block by block up to the diagonal, the rest mirrored."""
    length = x.shape[0]
    some = lambda i: jax.lax.dynamic_slice_in_dim(x, i * BLOCK, BLOCK)  # noqa: E731 (the last ends where x does, here and below)

    def row(i: jax.Array, gram: jax.Array) -> jax.Array:
        mine = some(i)

        def cell(j: jax.Array, gram: jax.Array) -> jax.Array:
            block = mine @ some(j).T
            gram = jax.lax.dynamic_update_slice(gram, block, (i * BLOCK, j * BLOCK))
            return jax.lax.dynamic_update_slice(gram, block.T, (j * BLOCK, i * BLOCK))

        return jax.lax.fori_loop(0, i + 1, cell, gram)

    return jax.lax.fori_loop(0, -(-count // BLOCK), row, jnp.zeros((length, length)))


def _pick(
    model: Model, first: FirstDense, choice: Among, x: jax.Array, y: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(i32[] the model of least loss on the samples, f32[n, h] what its first kernel makes of them)."""
    clusters, outputs = choice.models.shape[0], x @ choice.kernels
    width = outputs.shape[1] // clusters
    of = lambda k: jax.lax.dynamic_slice_in_dim(outputs, k * width, width, 1)  # noqa: E731

    def loss(k: jax.Array) -> jax.Array:
        return _loss_sum(model, of(k), jax.tree.map(lambda leaf: leaf[k], choice.others), first, y, mask)

    which = least_loss(jax.lax.map(loss, jnp.arange(clusters))[:, None])[0]
    return which, of(which)


def _apart(first: FirstDense, model: Model, flat: jax.Array | None) -> tuple[Any, Any]:
    """(the first kernel, the tree of all other parameters)."""
    if flat is None:
        return None, None
    params = model.unravel(flat)
    return inner(params, first.kernel), _without(params, first.kernel)


def inner(tree: Any, path: tuple[str, ...]) -> Any:
    """What the keys lead to."""
    for name in path:
        tree = tree[name]
    return tree


def _without(tree: Any, path: tuple[str, ...]) -> Any:
    head, *rest = path
    if not rest:
        return {name: value for name, value in tree.items() if name != head}
    return {name: _without(value, tuple(rest)) if name == head else value for name, value in tree.items()}


def replaced(tree: Any, path: tuple[str, ...], leaf: jax.Array) -> Any:
    """The tree with this leaf at the end of the keys."""
    head, *rest = path
    return {**tree, head: replaced(tree[head], tuple(rest), leaf) if rest else leaf}


def _pull(hyper: Hyper, kernel: jax.Array, anchor: jax.Array | None) -> jax.Array | None:
    """f32[inputs, h]: what proximal term and weight decay add to the gradient at the start; None where that is nothing."""
    parts = []
    if "mu" in hyper and anchor is not None:
        parts.append(hyper["mu"] * (kernel - anchor))
    if "weight_decay" in hyper:
        parts.append(hyper["weight_decay"] * kernel)
    return sum(parts) if parts else None


def _sum(amounts: jax.Array | None, *matrices: jax.Array | None) -> Any:
    if amounts is None:
        return jnp.float32(0)
    return sum((amounts[i] * m for i, m in enumerate(matrices) if m is not None), start=jnp.float32(0))


def _loss_sum(
    model: Model, z: jax.Array, params: Any, first: FirstDense, y: jax.Array, mask: jax.Array
) -> jax.Array:
    return jnp.sum(jnp.where(mask, model.loss(first.rest(params, z + inner(params, first.bias)), y), 0.0))


def _across(rows: jax.Array, x: jax.Array) -> jax.Array:
    """f32[inputs, h]: xᵀ @ rows, multiplied the way round that a CPU does faster: of a thin matrix three times, if XLA is kept from
    turning the product back."""
    product = rows.T @ x
    return (jax.lax.optimization_barrier(product) if rows.shape[1] <= THIN else product).T


def _seen(fixed: Fixed, layer: Layer, where: jax.Array | None, begun: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(f32[B, h] what the first kernel makes of the samples now, i32[B] their labels); not `begun`: A is zero."""
    if where is None:  # a large product, spared in the first of few steps
        rows, change = (lambda m: m), jax.lax.cond(begun, lambda: fixed.gram @ layer.a, lambda: jnp.zeros_like(layer.a))
    else:
        rows = lambda m: m[where]  # noqa: E731
        change = rows(fixed.gram) @ layer.a
    z = rows(fixed.outputs) - change
    if layer.moved is not None:
        for amount, along in zip(layer.moved, fixed.along, strict=True):
            if along is not None:
                z = z - amount * rows(along)
    return z, rows(fixed.y)


def _move(layer: Layer, hyper: Hyper, where: jax.Array | None, dz: jax.Array) -> Layer:
    """One step of SGD along the samples f32[B, h]: what `optimiser.sgd` does, on the coefficients."""
    lr, momentum = hyper["lr"], hyper.get("momentum")
    pulls = [hyper[name] for name in ("mu", "weight_decay") if name in hyper]
    shrink: Any = sum(pulls) if pulls else None
    constant = jnp.array([1.0, 0.0])

    def add(to: jax.Array, what: jax.Array) -> jax.Array:
        return to + what if where is None else to.at[where].add(what, unique_indices=True)

    if momentum is None:
        kept = 1.0 if shrink is None else 1 - lr * shrink
        a = add(layer.a if shrink is None else kept * layer.a, lr * dz)
        return layer._replace(a=a, moved=None if layer.moved is None else kept * layer.moved + lr * constant)
    assert layer.u is not None
    u = add(momentum * layer.u if shrink is None else momentum * layer.u - shrink * layer.a, dz)
    if layer.moved is None or layer.speed is None:
        return layer._replace(a=layer.a + lr * u, u=u)
    speed = momentum * layer.speed + constant - (0.0 if shrink is None else shrink) * layer.moved
    return Layer(layer.a + lr * u, u, layer.moved + lr * speed, speed)
