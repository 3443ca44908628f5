"""Names for arrays."""

from __future__ import annotations

from typing import Any, cast

import jax
import numpy as np

Array = jax.Array
"""On the host, before the engine puts things on the device, a numpy array stands in its place (`on_host`)."""
Tree = Any
"""A tree of arrays (JAX's pytree) whose form depends on the model, the method or the caller."""
Hyper = dict[str, Array]
"""Traced numbers of a run (`lr`, `mu`, `beta`, …): f32[] each, so that a grid over them is one compiled program."""


def on_host(array: np.ndarray) -> Array:
    """HOST. The numpy array itself, where the type says jax.Array: JAX takes either."""
    return cast(Array, array)
