"""A sweep over many devices in one process (`--mesh`), or over those of several processes (`--distributed`): process 0 carries
it out and alone reads and writes the results folder; the others compute along."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from cfljax import distributed, mesh
from cfljax.config import Spec
from cfljax.errors import CfljaxError, SpecError
from cfljax.launch import together
from cfljax.launch.batch import run_batch
from cfljax.launch.devices import use_cores
from cfljax.launch.sweep import OTHERS, Options, Outcome, as_laid_down, carry_out
from cfljax.local import speed
from cfljax.store import Store

END = "end"
MOST = 1024
"""Devices of a process: simulated ones take memory and threads each."""


def prepare(shape: mesh.Shape, hosts: distributed.Hosts | None) -> None:
    """Devices, and the other processes, before JAX begins."""
    devices = max(1, shape.runs * shape.clients // ((hosts and hosts.processes) or 1))
    if devices > MOST:
        raise SpecError(f"--mesh runs={shape.runs},clients={shape.clients}: {devices:,} devices in a process; at most {MOST:,}")
    if shape != mesh.AUTO:
        use_cores(devices)
    else:
        use_cores()
    if hosts is not None:
        distributed.connect(hosts)
    mesh.ask(shape)


def carry_out_on_mesh(spec: Spec, store: Store, options: Options, workers: int | None, arguments: list[str]) -> Outcome:  # noqa: ARG001
    """The sweep, by this process and those that `follow`. The last two are for launchers that start processes."""
    if not distributed.connected():
        return carry_out(spec, store, options)
    try:
        found = carry_out(spec, store, options)
    except CfljaxError:
        distributed.tell(END)
        raise
    except Exception as error:
        _give_up(error)
    distributed.tell(END)
    return found


def follow(spec: Spec) -> int:
    """Compute what process 0 tells, until it has had enough."""
    by_id = {run.id: run for run in spec.units()}
    while True:
        try:
            told = distributed.hear()
            if told == END:
                return 0
            _compute_along(json.loads(told), by_id)
        except CfljaxError:
            raise
        except Exception as error:
            _give_up(error)


def _compute_along(words: dict[str, Any], by_id: dict[str, Any]) -> None:
    missing = [name for name in words["runs"] if name not in by_id]
    batch = None if missing else as_laid_down([by_id[name] for name in words["runs"]], words["width"])
    if batch is None:
        raise SpecError(f"--distributed: process 0 reads another spec; give all the same. Or {OTHERS}")
    mesh.ask(mesh.Shape(*words["mesh"]))
    speed.use(speed.Speed(*words["speed"]))
    run_batch(batch, "none", keeper=together.Listener())


def _give_up(error: Exception) -> NoReturn:
    """Another process has died, or this one cannot go on: then all end, as none can compute alone."""
    why = " ".join(str(error).split())[:200]
    print(f"cfljax: the processes of this run have lost each other ({why}); start all of them again to go on", file=sys.stderr)
    sys.stderr.flush()
    os._exit(1)
