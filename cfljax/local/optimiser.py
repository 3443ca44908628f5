"""The step rules of local training, as `init(params, velocity)` and `step(grads, state, params)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.types import Hyper


class StepRule(NamedTuple):
    """An optimiser for one client; its state starts anew at each local start."""

    init: Callable[[Any, Any], Any]
    """(params, velocity or None) -> state."""
    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    """(grads, state, params) -> (params, state)."""


def sgd(hyper: Hyper) -> StepRule:
    """u ← momentum · u + g; w ← w − lr · u. Without "momentum" in `hyper` there is no buffer at all."""
    lr, momentum = hyper["lr"], hyper.get("momentum")

    def init(params: Any, velocity: Any) -> Any:
        if momentum is None:
            return ()
        return jax.tree.map(jnp.zeros_like, params) if velocity is None else velocity

    def step(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        if momentum is not None:
            state = grads = jax.tree.map(lambda u, g: momentum * u + g, state, grads)
        return jax.tree.map(lambda w, u: w - lr * u, params, grads), state

    return StepRule(init, step)


def from_optax(name: str, arguments: dict[str, Any], hyper: Hyper) -> StepRule:
    """Any optax optimiser by name; the learning rate is traced."""
    import optax

    transform = getattr(optax, name)(hyper["lr"], **arguments)

    def step(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return StepRule(lambda params, _: transform.init(params), step)
