"""A batch that several processes compute together: what process 0 says before it begins, and the checkpoint that all go on from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cfljax import distributed, mesh
from cfljax.launch.checkpoint import Keeper, from_arrays, to_arrays
from cfljax.local import speed
from cfljax.plan import Batch
from cfljax.simulate import Checkpoint


def announce(batch: Batch) -> None:
    """Tell the others which batch comes next."""
    shape = mesh.asked() or mesh.AUTO
    words = {"runs": [run.id for run in batch.runs], "width": batch.width, "mesh": shape, "speed": list(speed.known())}
    distributed.tell(json.dumps(words))


class Sharer(Keeper):
    """Process 0's: what it finds, all go on from."""

    def load(self) -> Checkpoint | None:
        """The last checkpoint; the others get it, too."""
        found = super().load()
        arrays, meta = ({}, None) if found is None else to_arrays(found)
        forms = [(name, a.dtype.str, a.shape) for name, a in arrays.items()]
        distributed.tell(json.dumps([forms, meta]))
        for array in arrays.values():
            distributed.share(array)
        return found


class Listener(Keeper):
    """The others': they keep nothing."""

    def __init__(self) -> None:
        """Without a store."""

    def save(self, make: Any) -> None:
        """Process 0 does."""

    def load(self) -> Checkpoint | None:
        """What process 0 has found."""
        forms, meta = json.loads(distributed.hear())
        arrays = {name: distributed.share(np.zeros(shape, np.dtype(kind))) for name, kind, shape in forms}
        return None if meta is None else from_arrays(arrays, meta)
