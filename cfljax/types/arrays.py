"""Names for arrays."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from cfljax.lazy import jax

Array = jax.Array
"""An array of JAX. On the host, before the engine copies it to the device, it may be a numpy array
(`on_host`)."""
Tree = Any
"""A tree of arrays (JAX's pytree) whose form depends on the model, the method or the caller."""
Hyper = dict[str, Array]
"""The numbers of a run by name (`lr`, `mu`, `beta`, …), f32[] each. They are traced: a grid over
them is one compiled program. A learning rate's schedule is a table f32[rounds]."""
HostHyper = dict[str, float | tuple[float, ...]]
"""`Hyper` as the host makes it of a run's options."""


def on_host(array: np.ndarray) -> Array:
    """HOST. Return the numpy array unchanged, under the type jax.Array: JAX functions accept
    both."""
    return cast(Array, array)
