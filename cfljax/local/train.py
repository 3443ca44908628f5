"""One client's local training, step by step on the model's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from cfljax import keys
from cfljax.lazy import flatten_util, jax, jnp
from cfljax.local.data import MAX_TILE
from cfljax.local.gradients import Gradient, batch_gradient, full_gradient, make_batches, whole_batch
from cfljax.local.optimiser import StepRule
from cfljax.local.schedule import Course, Orders, StepSamples, Stepwise, Task, all_steps
from cfljax.types import Array, Federation, LocalStep, Model, Tree, Updates


class Position(NamedTuple):
    """The state of a client's training between two steps."""

    params: Tree
    optimiser: Tree  # The state of the optimiser
    loss: Array  # f32[]: the sum of the losses of all samples seen so far


class Turns(NamedTuple):
    """Which numbers of a model train when. Other numbers have a gradient of zero and stay as they are."""

    epochs: int  # How many first epochs train the head alone; then the body trains, with a fresh optimiser. 0: both train in all.
    head: np.ndarray  # bool[d]: the head's numbers
    trains: np.ndarray  # bool[d]: the numbers that train at all

    def masks(self, unravel: Callable[[Array], Tree]) -> tuple[Tree, Tree]:
        """Return (what trains before the first turn is over, what trains afterwards), as trees of truth values."""
        of = lambda which: jax.tree.map(lambda leaf: leaf > 0, unravel(jnp.asarray(which, jnp.float32)))  # noqa: E731
        before = of(self.trains & self.head if self.epochs else self.trains)
        return before, of(self.trains & ~self.head) if self.epochs else before


class Step(Protocol):
    """Does one step of the optimiser."""

    def __call__(self, position: Position, gradient: Gradient, trains: Tree | None = None) -> Position:
        """Return the state after the step, from the state before it and the gradient at its parameters. `trains`: a tree of truth
        values, False for parameters that stay as they are; None: everything trains."""


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
    in_lines: bool = False,
) -> Stepwise:
    """Return the training of one client from the model of its task. `summed`: steps follow the gradient of the summed loss.
    `turns`: which part trains when; None: all do always.
    `in_lines`: whether the samples are laid out before the first step."""
    params = model.unravel(task.start)
    velocity = None if task.velocity is None else model.unravel(task.velocity)
    every = make_stepper(rule, numbers, params if task.anchor is None else model.unravel(task.anchor))
    masks = None if turns is None else turns.masks(model.unravel)
    most = federation.train.longest if model.statistics else MAX_TILE  # statistics need all samples of a step at once
    whole = whole_batch(federation, task.client, task.weights, most) if orders is None else None
    known = all_steps(course, orders) if orders is not None and orders.in_order else None
    batch_of = make_batches(federation, task.client, task.weights, known, in_lines)

    def step(position: Position, gradient: Gradient, number: Array) -> Position:
        if turns is None or masks is None:
            return every(position, gradient)
        if not turns.epochs:
            return every(position, gradient, masks[0])
        turn = turns.epochs * course.per_epoch
        first = number < turn
        begun = rule.init(position.params, velocity)  # the body's optimiser has not seen the head's steps
        fresh = jax.tree.map(lambda new, old: jnp.where(number == turn, new, old), begun, position.optimiser)
        position = position._replace(optimiser=fresh)
        return every(position, gradient, jax.tree.map(lambda *each: jnp.where(first, *each), *masks))

    def visit(position: Position, seen: StepSamples | None, number: Array) -> Position:
        key, here = keys.fold(task.key, "step", number), position.params
        if seen is None:
            return step(position, full_gradient(model, federation, task.client, here, whole, key, summed, task.weights), number)
        batch = batch_of(seen, number)
        return step(position, batch_gradient(model, here, batch, key, seen.samples, summed), number)

    def end(position: Position) -> Updates:
        delta = jnp.where(course.total > 0, model.ravel(position.params) - task.start, 0.0)
        buffers = None if task.velocity is None else model.ravel(position.optimiser)
        state = None if kept is None else jnp.where(course.total > 0, flatten_util.ravel_pytree(position.optimiser)[0], kept)
        return Updates(delta, position.loss / course.visited, course.total, buffers, optimiser=state)

    def begin() -> Position:
        position = start_at(rule, params, velocity)
        if kept is None:
            return position
        fresh, unravel = flatten_util.ravel_pytree(position.optimiser)
        return position._replace(optimiser=unravel(jnp.where(jnp.isfinite(kept).all(), kept, fresh)))

    kept = task.optimiser
    return Stepwise(begin, visit, end)


def start_at(rule: StepRule, params: Tree, velocity: Tree | None) -> Position:
    """Return the state of training before the first step. `velocity`: the momentum buffer to start with; None: zeros."""
    return Position(params, rule.init(params, velocity), jnp.float32(0))


def make_stepper(rule: StepRule, numbers: LocalStep, anchor: Tree) -> Step:
    """Make the function that does a step: it adds proximal term (towards `anchor`) and weight decay, and applies the rule.
    Statistics of batches are set to what the batch makes of them."""
    mu, decay, running = numbers.mu, numbers.weight_decay, rule.running

    def step(position: Position, gradient: Gradient, trains: Tree | None = None) -> Position:
        loss, count, grads = gradient
        if mu is not None:  # FedProx: the gradient of mu/2 · ‖w − anchor‖²
            grads = jax.tree.map(lambda g, w, a: g + mu * (w - a), grads, position.params, anchor)
        if decay is not None:
            grads = jax.tree.map(lambda g, w: g + decay * w, grads, position.params)
        if trains is not None:
            grads = jax.tree.map(lambda which, g: jnp.where(which, g, 0.0), trains, grads)
        if running is not None:
            grads = jax.tree.map(lambda set_, g: jnp.zeros_like(g) if set_ else g, running, grads)
        params, state = rule.step(grads, position.optimiser, position.params)
        if running is not None:  # their gradient is old − new
            set_to = lambda set_, new, old, g: old - g if set_ else new  # noqa: E731
            params = jax.tree.map(set_to, running, params, position.params, gradient.grads)
        if trains is not None:
            params = jax.tree.map(jnp.where, trains, params, position.params)
        return Position(params, state, position.loss + loss * count)

    return step
