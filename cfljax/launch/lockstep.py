"""A batch that several processes compute together: what process 0 says before it begins, and the checkpoint that all go on from."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

from cfljax.config import Spec
from cfljax.devices import distributed, mesh
from cfljax.engine.checkpoint import Checkpoint
from cfljax.errors import SpecError
from cfljax.experiment.assemble import Assembled, checksum
from cfljax.experiment.batching import Batch
from cfljax.launch.keeper import Keeper, from_arrays, to_arrays
from cfljax.launch.plan_file import OTHERS, mark
from cfljax.local import speed
from cfljax.store import versions


def agree_on_start(spec: Spec) -> None:
    """SpecError in all processes where one reads another spec, or is another program; before anything is computed."""
    marks = distributed.gather(mark(spec))
    for number, other in enumerate(marks):
        if other != marks[0]:
            raise SpecError(f"--distributed: process {number} reads another spec than process 0; give all the same. Or {OTHERS}")
    facts: dict[str, Any] = {"--mesh": mesh.asked(), "version": versions()}
    facts["devices"] = [jax.default_backend(), jax.local_device_count()]
    _compare(facts, "give all processes the same")


def announce(batch: Batch) -> None:
    """Tell the others which batch comes next."""
    shape = mesh.asked() or mesh.AUTO
    words = {"runs": [run.id for run in batch.runs], "width": batch.width, "mesh": shape, "speed": list(speed.known())}
    distributed.tell(json.dumps(words))
    distributed.begin()


def compare(batch: Batch, parts: Assembled) -> None:
    """SpecError in all processes where one has other data, or would compute in another way: their parts of a round would not
    fit together."""
    facts = {
        "data": checksum(batch.first),
        "mesh": None if parts.mesh is None else list(parts.mesh.shape.items()),
        "train.plan": parts.plan,
        "train.plan.pool": "sharded" if parts.shard else "copied",
        "model": [parts.model.name, parts.model.size],
    }
    _compare(facts, f"give all the same for {batch.first.label}")


def _compare(facts: dict[str, Any], advice: str) -> None:
    said = [json.loads(word) for word in distributed.gather(json.dumps(facts))]
    for number, other in enumerate(said):
        for name, value in other.items():
            if value != said[0][name]:
                raise SpecError(f"--distributed: {name} is {value} in process {number} and {said[0][name]} in process 0; {advice}")


class Sharer(Keeper):
    """Process 0's: what it finds, all go on from."""

    def load(self) -> Checkpoint | None:
        """The last checkpoint; the others get it, too."""
        found = super().load()
        _shared(({}, None) if found is None else to_arrays(found))
        return found


class Listener(Keeper):
    """The others': they keep nothing."""

    def __init__(self) -> None:
        """Without a store."""

    def save(self, make: Any) -> None:
        """Process 0 does."""

    def refuse(self, why: str) -> None:
        """Process 0 says so."""

    def load(self) -> Checkpoint | None:
        """What process 0 has found."""
        arrays, meta = _shared(({}, None))
        return None if meta is None else from_arrays(arrays, meta)


def _shared(saved: tuple[dict[str, np.ndarray], Any]) -> tuple[dict[str, np.ndarray], Any]:
    """What process 0 has saved."""
    return distributed.share_all(saved[0]), distributed.agree(saved[1])
