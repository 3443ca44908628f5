"""One client's local training, step by step on the model's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import take
from cfljax.local.gradients import Gradient, batch_gradient, full_gradient, whole_batch
from cfljax.local.optimiser import StepRule
from cfljax.local.schedule import Course, Orders, Seen, Task, follow
from cfljax.types import Federation, Hyper, Model, Updates


class Progress(NamedTuple):
    """What the loops carry."""

    params: Any
    optimiser: Any
    loss: jax.Array
    """f32[] sum over the samples visited."""


Step = Callable[[Progress, Gradient], Progress]
"""Takes one optimiser step along the gradient at the current parameters."""


def train(
    model: Model, federation: Federation, task: Task, course: Course, orders: Orders | None, rule: StepRule, hyper: Hyper
) -> Updates:
    """Local training of one client from its start model."""
    params = model.unravel(task.start)
    velocity = None if task.velocity is None else model.unravel(task.velocity)
    step = stepper(rule, hyper, params if task.anchor is None else model.unravel(task.anchor))
    summed = "loss_sum" in hyper  # the batch's summed loss in place of its mean
    whole = whole_batch(federation, task.client) if orders is None else None

    def visit(progress: Progress, seen: Seen | None, number: jax.Array) -> Progress:
        key = keys.fold(task.key, "step", number)
        if seen is None:
            return step(progress, full_gradient(model, federation, task.client, progress.params, whole, key, summed))
        samples = (*take(federation, federation.train, task.client, seen.positions, seen.mask), seen.mask)
        return step(progress, batch_gradient(model, progress.params, samples, key, seen.there, summed))

    end = follow(course, orders, visit, start_of(rule, params, velocity))
    delta = jnp.where(course.total > 0, model.ravel(end.params) - task.start, 0.0)
    buffers = None if task.velocity is None else model.ravel(end.optimiser)
    return Updates(delta, end.loss / course.visited, course.total, buffers)


def start_of(rule: StepRule, params: Any, velocity: Any) -> Progress:
    """Before the first step."""
    return Progress(params, rule.init(params, velocity), jnp.float32(0))


def stepper(rule: StepRule, hyper: Hyper, anchor: Any) -> Step:
    """The step of a run: its gradient, the pulls that the run's numbers add to it, the optimiser's rule."""

    def step(progress: Progress, gradient: Gradient) -> Progress:
        loss, count, grads = gradient
        if "mu" in hyper:  # FedProx: the gradient of mu/2 · ‖w − anchor‖²
            grads = jax.tree.map(lambda g, w, a: g + hyper["mu"] * (w - a), grads, progress.params, anchor)
        if "weight_decay" in hyper:
            grads = jax.tree.map(lambda g, w: g + hyper["weight_decay"] * w, grads, progress.params)
        params, state = rule.step(grads, progress.optimiser, progress.params)
        return Progress(params, state, progress.loss + loss * count)

    return step
