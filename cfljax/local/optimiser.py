"""The rules by which local training moves a client's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.lazy import jax, jnp, optax
from cfljax.types import Array, LocalStep, Tree


class StepRule(NamedTuple):
    """An optimiser for one client. Its state is made again each time that the client trains."""

    # (parameters, the momentum buffers to start with or None: zeros) -> the state before the first
    # step
    init: Callable[[Tree, Tree | None], Tree]
    # (gradients, state, parameters) -> (parameters, state) after the step
    step: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]
    # Which parameters are statistics of batches (`models.flat.mark_statistics`), which steps set;
    # None: none are
    running: Tree | None = None


def sgd(numbers: LocalStep) -> StepRule:
    """Make the rule of SGD: u ← momentum · u + g; w ← w − lr · u. Its state is the buffer u, or
    empty without momentum."""
    lr, momentum = numbers.lr, numbers.momentum

    def init(params: Tree, velocity: Tree | None) -> Tree:
        if momentum is None:
            return ()
        return jax.tree.map(jnp.zeros_like, params) if velocity is None else velocity

    def step(grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        if momentum is not None:
            state = grads = jax.tree.map(lambda u, g: momentum * u + g, state, grads)
        return jax.tree.map(lambda w, u: w - lr * u, params, grads), state

    return StepRule(init, step)


def with_head_rate(
    make: Callable[[LocalStep], StepRule], numbers: LocalStep, is_head: Callable[[], Tree]
) -> StepRule:
    """Make a rule whose head has a rate of its own, if the numbers tell one.

    Args:
        make: Makes a rule whose state does not depend on the rate.
        numbers: The numbers of a step.
        is_head: Returns the tree of parameters with whether each is the head's.
    """
    rule = make(numbers)
    if numbers.head_lr is None:
        return rule
    rule_of_head = make(numbers._replace(lr=numbers.head_lr))
    head = is_head()

    def step(grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        of_body, after = rule.step(grads, state, params)
        of_head, _ = rule_of_head.step(grads, state, params)
        choose = lambda is_head, one, other: one if is_head else other  # noqa: E731
        return jax.tree.map(choose, head, of_head, of_body), after

    return StepRule(rule.init, step)


def from_optax(name: str, arguments: dict[str, object], lr: Array) -> StepRule:
    """Make a rule of the optimiser of optax with this name and these arguments; `lr` f32[] may be
    traced."""
    transform = getattr(optax, name)(lr, **arguments)

    def step(grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return StepRule(lambda params, _: transform.init(params), step)
