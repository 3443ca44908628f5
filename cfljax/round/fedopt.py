"""FedAdam, FedYogi and FedAdagrad as Reddi et al. 2021 print them (Algorithm 2), for `train.server`: no bias correction, m_0 = 0,
v_0 = tau², and steps lr · m / (√v + tau). FedAdagrad has no momentum unless `b1` is given, and does not forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cfljax.lazy import jax, jnp, optax
from cfljax.types import Array, Tree


class Moments(NamedTuple):
    """The state of the optimiser."""

    m: Tree
    v: Tree


def fedadam(learning_rate: float | Array, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3) -> Any:
    """FedAdam: v ← b2 · v + (1 − b2) · g²."""
    return _made(learning_rate, b1, tau, lambda v, square: b2 * v + (1 - b2) * square)


def fedyogi(learning_rate: float | Array, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3) -> Any:
    """FedYogi: v ← v − (1 − b2) · g² · sign(v − g²)."""
    return _made(learning_rate, b1, tau, lambda v, square: v - (1 - b2) * square * jnp.sign(v - square))


def fedadagrad(learning_rate: float | Array, b1: float = 0.0, tau: float = 1e-3) -> Any:
    """FedAdagrad: v ← v + g²."""
    return _made(learning_rate, b1, tau, lambda v, square: v + square)


PRINTED: dict[str, Callable[..., Any]] = {"fedadam": fedadam, "fedyogi": fedyogi, "fedadagrad": fedadagrad}


def maker(name: str) -> Callable[..., Any]:
    """Return the function that makes the optimiser with this name: one of `PRINTED`, or optax's."""
    found: Callable[..., Any] = PRINTED[name] if name in PRINTED else getattr(optax, name)
    return found


def _made(rate: float | Array, b1: float, tau: float, second: Callable[[Array, Array], Array]) -> Any:
    def init(params: Tree) -> Moments:
        return Moments(jax.tree.map(jnp.zeros_like, params), jax.tree.map(lambda p: jnp.full_like(p, tau**2), params))

    def update(grads: Tree, state: Moments, params: Tree = None) -> tuple[Tree, Moments]:  # noqa: ARG001 (optax's signature)
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.m, grads)
        v = jax.tree.map(lambda v, g: second(v, g * g), state.v, grads)
        return jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + tau), m, v), Moments(m, v)

    return optax.GradientTransformation(init, update)
