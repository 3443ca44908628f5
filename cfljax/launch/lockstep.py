"""A batch that several processes compute together: what they compare and agree on before it begins, and the checkpoint that all
go on from."""

from __future__ import annotations

import json

from cfljax.config import Spec
from cfljax.devices import distributed
from cfljax.devices.machine import Machine
from cfljax.devices.mesh import AUTO
from cfljax.devices.same import share_all
from cfljax.engine.resume import Checkpoint
from cfljax.engine.settings import Assembled
from cfljax.errors import SpecError
from cfljax.experiment.batching import Batch
from cfljax.experiment.federations import checksum
from cfljax.launch.checkpoints import from_arrays, to_arrays
from cfljax.launch.plan_file import OTHERS, mark
from cfljax.registry.options import Table
from cfljax.software import software


def agree_on_start(spec: Spec, machine: Machine) -> None:
    """SpecError in all processes where one reads another spec, or is another program, before anything is computed."""
    marks = distributed.gather(mark(spec))
    for number, other in enumerate(marks):
        if other != marks[0]:
            raise SpecError(f"--distributed: process {number} reads another spec than process 0; give all the same. Or {OTHERS}")
    facts = {"--mesh": machine.mesh, "version": software(), "devices": [machine.backend, machine.devices]}
    _compare(facts, "give all processes the same")


def announce(batch: Batch, machine: Machine) -> None:
    """Tell the other processes which batch comes next, and which mesh and speed it goes by."""
    words = {"runs": [run.id for run in batch.runs], "width": batch.width, "mesh": machine.mesh or AUTO, "speed": machine.speed}
    distributed.tell(json.dumps(words))
    distributed.begin()


def compare(batch: Batch, parts: Assembled) -> None:
    """SpecError in all processes where one of them has other data, or would compute in another way: the results of the processes
    would not fit together."""
    facts = {
        "data": checksum(batch.first),
        "mesh": None if parts.mesh is None else list(parts.mesh.shape.items()),
        "train.plan": parts.plan,
        "train.plan.pool": "sharded" if parts.sharded else "copied",
        "model": [parts.model.name, parts.model.size],
    }
    _compare(facts, f"give all the same for {batch.first.label}")


def _compare(facts: Table, advice: str) -> None:
    """SpecError in all processes where one of the facts is not the same in all; all processes call this at the same time."""
    said = [json.loads(word) for word in distributed.gather(json.dumps(facts))]
    for number, other in enumerate(said):
        for name, value in other.items():
            if value != said[0][name]:
                raise SpecError(f"--distributed: {name} is {value} in process {number} and {said[0][name]} in process 0; {advice}")


def share_checkpoint(checkpoint: Checkpoint | None) -> Checkpoint | None:
    """The checkpoint that process 0 gives, in all processes, which call this at the same point; None where there is none."""
    arrays, meta = ({}, None) if checkpoint is None else to_arrays(checkpoint)
    arrays, meta = share_all(arrays), distributed.agree(meta)
    return None if meta is None else from_arrays(arrays, meta)
