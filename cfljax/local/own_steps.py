"""Local training by steps that a method defines: it decides how a step uses gradients, and which
numbers stay with the client. The samples and the number of steps are as in any other training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from cfljax import keys
from cfljax.lazy import jnp
from cfljax.local.optimiser import StepRule
from cfljax.local.schedule import Course, Orders, StepSamples, Stepwise, Task
from cfljax.local.train import (
    Gradient,
    Samples,
    batch_gradient,
    full_gradient,
    gather_batch,
    whole_batch,
)
from cfljax.types import Array, Federation, Hyper, Model, Tree, Updates


class GradientAt(Protocol):
    """The function that gives a method's own steps their gradients: `gradient(params)` returns the
    loss and the gradient on the step's samples, as (loss f32[], their number f32[], gradient tree).
    All gradients of a step have the same crops and dropout.

    Args:
        params: The parameters at which to differentiate, as a tree.
        half: 0 or 1: only every second sample of the step, from the first or from the second on (a
            single sample is in both halves); None: all.
        of: Another model with these parameters, for another loss.
    """

    def __call__(self, params: Tree, half: int | None = None, of: Model | None = None) -> Gradient:
        """Return loss and gradient on the step's samples."""


class OwnSteps(NamedTuple):
    """The local steps that a method defines, for one client: what `steps` of a recipe returns, or
    the function that `Solver.with_own_steps` takes.

    Example:
        ```python
        def step(gradient, params):
            loss, _, slope = gradient(params)
            return jax.tree.map(lambda w, g: w - hyper["lr"] * g, params, slope), loss

        OwnSteps(lambda params, home: params, step, lambda params: (params, None))
        ```
    """

    begin: Callable[[Tree, Any], Tree]
    """(parameters of the start, `Jobs.home` of the client f32[m] or None) -> what its steps
    carry."""
    step: Callable[[GradientAt, Tree], tuple[Tree, Array]]
    """(gradients, carry) -> (carry after the step, f32[] the loss of the step for the report)."""
    end: Callable[[Tree], tuple[Tree, Array | None]]
    """(carry) -> (trained parameters, what stays at home f32[m]; None if nothing does)."""
    enter: Callable[[Tree, Array], Tree] | None = None
    """(carry, epoch i32[]) -> carry, before each step, for steps that depend on the epoch; None:
    they do not."""


# (numbers of the run, its optimiser) -> the steps
StepsOf = Callable[[Hyper, StepRule], OwnSteps]


def train_by(
    steps: OwnSteps,
    model: Model,
    federation: Federation,
    task: Task,
    course: Course,
    orders: Orders | None,
) -> Stepwise:
    """Return the training of one client by the steps of a method. `orders`: the shuffles of its
    epochs; None: each step sees all of its samples. The other arguments as in `make_training`."""
    whole = whole_batch(federation, task.client, task.weights) if orders is None else None

    def visit(
        at: tuple[Tree, Array], seen: StepSamples | None, number: Array
    ) -> tuple[Tree, Array]:
        key = keys.fold(task.key, "step", number)
        if seen is None:
            gradient = _full_gradients(model, federation, task, course, whole, key)
            samples = course.samples
        else:
            batch = gather_batch(federation, task.client, seen.positions, seen.mask, task.weights)
            gradient = _batch_gradients(model, batch, seen, key)
            samples = seen.samples
        carry, loss_sum = at
        if steps.enter is not None:
            carry = steps.enter(carry, number // jnp.maximum(course.per_epoch, 1))
        carry, loss = steps.step(gradient, carry)
        return carry, loss_sum + loss * samples

    def end(at: tuple[Tree, Array]) -> Updates:
        carry, loss_sum = at
        params, home = steps.end(carry)
        # A client without a step has the start's parameters up to rounding only, if `begin` and
        # `end` compute with them
        delta = jnp.where(course.total > 0, model.ravel(params) - task.start, 0.0)
        if home is not None and task.home is not None:
            home = jnp.where(course.total > 0, home, task.home)
        return Updates(delta, loss_sum / course.visited, course.total, home=home)

    def begin() -> tuple[Tree, Array]:
        return steps.begin(model.unravel(task.start), task.home), jnp.float32(0)

    return Stepwise(begin, visit, end)


def _batch_gradients(model: Model, batch: Samples, seen: StepSamples, key: Array) -> GradientAt:
    def gradient(params: Tree, half: int | None = None, of: Model | None = None) -> Gradient:
        if half is None:
            return batch_gradient(of or model, params, batch, key, seen.samples)
        mask, number = _select_half(half, jnp.arange(batch.mask.shape[0]), seen.samples)
        return batch_gradient(
            of or model, params, batch._replace(mask=batch.mask & mask), key, number
        )

    return gradient


def _full_gradients(
    model: Model,
    federation: Federation,
    task: Task,
    course: Course,
    whole: Samples | None,
    key: Array,
) -> GradientAt:
    def gradient(params: Tree, half: int | None = None, of: Model | None = None) -> Gradient:
        if half is None:
            return full_gradient(
                of or model, federation, task.client, params, whole, key, weights=task.weights
            )
        # A half of all samples by weights instead of a mask: `full_gradient` divides by the number
        # of all samples, which the weights make up for
        mask, number = _select_half(half, jnp.arange(federation.train.longest), course.samples)
        weights = jnp.where(mask, course.samples / jnp.maximum(number, 1), 0.0)
        if task.weights is not None:
            weights = weights * task.weights[: federation.train.longest]
        here = None if whole is None else whole._replace(weight=weights)
        return full_gradient(
            of or model, federation, task.client, params, here, key, weights=weights
        )

    return gradient


def _select_half(half: int, index: Array, samples: Array) -> tuple[Array, Array]:
    """Return which positions belong to a half, bool[B], and how many of the samples do, i32[]."""
    single = samples == 1
    mask = (index % 2 == half) | single
    return mask, jnp.where(single, 1, (samples + 1 - half) // 2)
