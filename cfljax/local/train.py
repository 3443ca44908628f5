"""One client's local training, step by step on the model's parameters, and the gradients that its
steps follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.lazy import flatten_util, jax, jnp
from cfljax.local.data import MAX_TILE, take
from cfljax.local.optimiser import StepRule
from cfljax.local.schedule import Course, Orders, StepSamples, Stepwise, Task
from cfljax.types import Array, Federation, LocalStep, Model, Tree, Updates


class Samples(NamedTuple):
    """Samples of one client, padded to B."""

    # f32[B, ...]: what the network gets
    x: Array
    # i32[B]: the labels
    y: Array
    # bool[B]: False for padding
    mask: Array
    # f32[B]: the factor of each sample's loss; None: all factors are 1
    weight: Array | None = None


class Gradient(NamedTuple):
    """The loss of a batch, and the gradient by the parameters."""

    # f32[]: the mean over the samples, without the model's penalty
    loss: Array
    # f32[]: the number of samples in the batch, padding left out
    samples: Array
    # The gradient of the mean loss (of the summed loss with `summed`) plus the gradient of the
    # model's penalty
    grads: Tree


def gather_batch(
    federation: Federation,
    client: Array,
    positions: Array,
    mask: Array,
    weights: Array | None = None,
) -> Samples:
    """Gather a client's training samples at the positions i32[B] of its list. `weights` f32[N]: one
    per sample of the list."""
    x, y = take(federation, federation.train, client, positions, mask)
    return Samples(x, y, mask, None if weights is None else weights[positions])


def batch_gradient(
    model: Model,
    params: Tree,
    batch: Samples,
    key: Array | None,
    count: Array | None = None,
    summed: bool = False,
) -> Gradient:
    """Compute loss and gradient on a batch. The mean is over the samples of the mask; `count` i32[]
    is their number, if the caller knows it. `summed`: the gradient of the summed loss. The model's
    penalty is added once in both cases."""
    count = (jnp.sum(batch.mask) if count is None else count).astype(jnp.float32)
    divisor = jnp.maximum(count, 1.0)

    def objective(params: Tree) -> tuple[Array, Array]:
        loss = loss_sum(model, params, batch, key)
        # The loss is divided, which takes less than to divide all numbers of the gradient
        return loss if summed else loss / divisor, loss

    grads, loss = jax.grad(objective, has_aux=True)(params)
    return _build_gradient(model, params, loss, grads, count, divide=False)


def whole_batch(
    federation: Federation, client: Array, weights: Array | None = None, most: int = MAX_TILE
) -> Samples | None:
    """Return all training samples of a client at once, or None if the largest client has more than
    `most` samples."""
    longest = federation.train.longest
    if longest > most:
        return None
    positions = jnp.arange(longest)
    return gather_batch(
        federation, client, positions, positions < federation.train.count[client], weights
    )


def full_gradient(
    model: Model,
    federation: Federation,
    client: Array,
    params: Tree,
    whole: Samples | None,
    key: Array | None = None,
    summed: bool = False,
    weights: Array | None = None,
) -> Gradient:
    """Compute loss and gradient on all training samples of a client. `whole` is the result of
    `whole_batch`; if it is None, the samples are taken tile by tile, and the client's number of
    samples determines the number of tiles."""
    if whole is not None:
        return batch_gradient(model, params, whole, key, summed=summed)
    count = federation.train.count[client]

    def tile(i: Array, total: Tree) -> Tree:
        positions = i * MAX_TILE + jnp.arange(MAX_TILE)
        batch = gather_batch(federation, client, positions, positions < count, weights)
        part = jax.value_and_grad(loss_sum, 1)(
            model, params, batch, None if key is None else keys.fold(key, "tile", i)
        )
        return jax.tree.map(jnp.add, total, part)

    zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    loss, grads = jax.lax.fori_loop(0, -(-count // MAX_TILE), tile, zero)
    return _build_gradient(model, params, loss, grads, count.astype(jnp.float32), divide=not summed)


def loss_sum(model: Model, params: Tree, batch: Samples, key: Array | None) -> Array:
    """Compute the weighted sum of the samples' losses, f32[]."""
    mask = (batch.mask,) if model.statistics and key is not None else ()
    losses = model.loss(model.forward(params, batch.x, key, *mask), batch.y)
    if batch.weight is not None:
        losses = batch.weight * losses
    return jnp.sum(jnp.where(batch.mask, losses, 0.0))


def _build_gradient(
    model: Model, params: Tree, loss: Array, grads: Tree, count: Array, divide: bool
) -> Gradient:
    """Build the result from the summed loss f32[], the gradients, and the number of samples f32[],
    by which they may be divided."""
    divisor = jnp.maximum(count, 1.0)
    if divide:
        grads = jax.tree.map(lambda g: g / divisor, grads)
    if model.penalty is not None:
        grads = jax.tree.map(jnp.add, grads, jax.grad(model.penalty)(params))
    return Gradient(loss / divisor, count, grads)


class Position(NamedTuple):
    """The state of a client's training between two steps."""

    params: Tree
    # The state of the optimiser
    optimiser: Tree
    # f32[]: the sum of the losses of all samples seen so far
    loss: Array


class Turns(NamedTuple):
    """Which numbers of a model train when. Other numbers have a gradient of zero and stay as they
    are."""

    # How many first epochs train the head alone; then the body trains, with a fresh optimiser. 0:
    # both train in all.
    epochs: int
    # bool[d]: the head's numbers
    head: np.ndarray
    # bool[d]: the numbers that train at all
    trains: np.ndarray

    def masks(self, unravel: Callable[[Array], Tree]) -> tuple[Tree, Tree]:
        """Return (what trains before the first turn is over, what trains afterwards), as trees of
        truth values."""

        def to_tree(which: np.ndarray) -> Tree:
            return jax.tree.map(lambda leaf: leaf > 0, unravel(jnp.asarray(which, jnp.float32)))

        if not self.epochs:
            always = to_tree(self.trains)
            return always, always
        return to_tree(self.trains & self.head), to_tree(self.trains & ~self.head)


def make_training(
    model: Model,
    federation: Federation,
    task: Task,
    course: Course,
    orders: Orders | None,
    rule: StepRule,
    numbers: LocalStep,
    summed: bool = False,
    turns: Turns | None = None,
) -> Stepwise:
    """Return the training of one client.

    Args:
      model: The network.
      federation: The clients' data.
      task: The client's job, with the model that it starts from.
      course: Its numbers of samples and steps.
      orders: The shuffles of its epochs; None: each step sees all of its samples.
      rule: The optimiser.
      numbers: The numbers of a step.
      summed: Whether steps follow the gradient of the summed loss.
      turns: Which part trains when; None: all do always.
    """
    params = model.unravel(task.start)
    velocity = None if task.velocity is None else model.unravel(task.velocity)
    anchor = params if task.anchor is None else model.unravel(task.anchor)
    step = make_stepper(rule, numbers, anchor)
    if turns is not None:
        step_some = _make_turns(step, rule, model, velocity, course, turns)
    # Statistics need all samples of a step at once
    most = federation.train.longest if model.statistics else MAX_TILE
    whole = whole_batch(federation, task.client, task.weights, most) if orders is None else None

    def begin() -> Position:
        position = start_at(rule, params, velocity)
        if "optimiser" not in task.rows:
            return position
        state = _resume_optimiser(position.optimiser, task.rows["optimiser"])
        return position._replace(optimiser=state)

    def visit(position: Position, seen: StepSamples | None, number: Array) -> Position:
        # Crops and dropout depend on the number of the step alone, not on how steps are grouped
        key = keys.fold(task.key, "step", number)
        if seen is None:
            gradient = full_gradient(
                model, federation, task.client, position.params, whole, key, summed, task.weights
            )
        else:
            batch = gather_batch(federation, task.client, seen.positions, seen.mask, task.weights)
            gradient = batch_gradient(model, position.params, batch, key, seen.samples, summed)
        if turns is None:
            return step(position, gradient)
        return step_some(position, gradient, number)

    def end(position: Position) -> Updates:
        # A client without a step has changed nothing, not even by rounding, and keeps the state of
        # its optimiser
        worked = course.total > 0
        delta = jnp.where(worked, model.ravel(position.params) - task.start, 0.0)
        buffers = None if task.velocity is None else model.ravel(position.optimiser)
        rows = {}
        if "optimiser" in task.rows:
            state = flatten_util.ravel_pytree(position.optimiser)[0]
            rows["optimiser"] = jnp.where(worked, state, task.rows["optimiser"])
        return Updates(delta, position.loss / course.visited, course.total, buffers, rows=rows)

    return Stepwise(begin, visit, end)


def _resume_optimiser(fresh: Tree, kept: Array) -> Tree:
    """Return the optimiser's state that a client continues with: `kept` f32[m], which it had at the
    end of its last round, or the state `fresh` if it has not trained yet."""
    flat, unravel = flatten_util.ravel_pytree(fresh)
    # A state that is not finite stands for a client that has not trained yet
    return unravel(jnp.where(jnp.isfinite(kept).all(), kept, flat))


def _make_turns(
    step: Callable[..., Position],
    rule: StepRule,
    model: Model,
    velocity: Tree | None,
    course: Course,
    turns: Turns,
) -> Callable[[Position, Gradient, Array], Position]:
    """Return (position, gradient, number of the step i32[]) -> position after it, in which the
    numbers train whose turn it is.

    Args:
      step: The step on all numbers, from `make_stepper`.
      rule: The optimiser.
      model: The network.
      velocity: The momentum buffer that the body's optimiser starts with; None: zeros.
      course: The client's numbers of steps.
      turns: Which numbers train when.
    """
    at_first, afterwards = turns.masks(model.unravel)

    def do_step(position: Position, gradient: Gradient, number: Array) -> Position:
        if not turns.epochs:
            return step(position, gradient, at_first)
        first_of_body = turns.epochs * course.per_epoch
        is_head = number < first_of_body
        # The body's optimiser has not seen the head's steps
        optimiser = jax.tree.map(
            lambda new, old: jnp.where(number == first_of_body, new, old),
            rule.init(position.params, velocity),
            position.optimiser,
        )
        position = position._replace(optimiser=optimiser)
        trains = jax.tree.map(
            lambda head, body: jnp.where(is_head, head, body), at_first, afterwards
        )
        return step(position, gradient, trains)

    return do_step


def start_at(rule: StepRule, params: Tree, velocity: Tree | None) -> Position:
    """Return the state of training before the first step. `velocity`: the momentum buffer to start
    with; None: zeros."""
    return Position(params, rule.init(params, velocity), jnp.float32(0))


def make_stepper(rule: StepRule, numbers: LocalStep, anchor: Tree) -> Callable[..., Position]:
    """Make the function (position, gradient, trains) -> position after a step: it adds proximal
    term (towards `anchor`) and weight decay, and applies the rule. `trains`: a tree of truth
    values, False for parameters that stay as they are; None: all train. Statistics of batches are
    set to their value after the batch."""
    mu = numbers.mu
    decay = numbers.weight_decay
    running = rule.running

    def step(position: Position, gradient: Gradient, trains: Tree | None = None) -> Position:
        loss, count, grads = gradient
        # FedProx: the gradient of mu/2 · ‖w − anchor‖²
        if mu is not None:
            grads = jax.tree.map(lambda g, w, a: g + mu * (w - a), grads, position.params, anchor)
        if decay is not None:
            grads = jax.tree.map(lambda g, w: g + decay * w, grads, position.params)
        # Gradients of 0 keep an optimiser's buffers at 0; the parameters themselves are restored
        # below, as weight decay inside an optimiser moves them all the same
        if trains is not None:
            grads = jax.tree.map(lambda which, g: jnp.where(which, g, 0.0), trains, grads)
        if running is not None:
            grads = jax.tree.map(
                lambda is_running, g: jnp.zeros_like(g) if is_running else g, running, grads
            )
        params, state = rule.step(grads, position.optimiser, position.params)

        # The gradient of a running statistic is its old value minus the new one
        def set_running(is_running: bool, after: Array, before: Array, g: Array) -> Array:
            return before - g if is_running else after

        if running is not None:
            params = jax.tree.map(set_running, running, params, position.params, gradient.grads)
        if trains is not None:
            params = jax.tree.map(jnp.where, trains, params, position.params)
        return Position(params, state, position.loss + loss * count)

    return step
