"""The arrays of process 0, in all processes of a run."""

from __future__ import annotations

import numpy as np

from cfljax.devices import distributed
from cfljax.lazy import jax
from cfljax.types import Tree


def share(array: np.ndarray) -> np.ndarray:
    """The array of process 0, in all processes; the others give one of the same shape and type."""
    from jax.experimental import multihost_utils

    if not array.size:
        return array
    raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    distributed.meet()
    return np.asarray(multihost_utils.broadcast_one_to_all(raw)).view(array.dtype).reshape(array.shape)


def share_all(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The named arrays of process 0, in all processes, whatever the others give."""
    forms = distributed.agree([(name, str(array.dtype), array.shape) for name, array in arrays.items()])
    return {name: share(arrays[name] if distributed.leads() else np.zeros(shape, kind)) for name, kind, shape in forms}


def same(tree: Tree) -> Tree:
    """The arrays of process 0, in all processes. What scikit-learn or numpy computes on the host may differ between machines in
    its last bits, and with them a decision of the method."""
    if not distributed.connected():
        return tree
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, share_all({str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}).values())
