"""A sweep over many devices of one process (`--mesh`), or over those of several processes (`--distributed`). Process 0 carries
it out, and it alone reads and writes the results folder; the others compute their parts of each batch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn

from cfljax.config import Spec
from cfljax.devices import distributed
from cfljax.devices.cores import use_cores
from cfljax.devices.machine import Speed, this_machine
from cfljax.devices.mesh import AUTO, Shape
from cfljax.errors import CfljaxError, SpecError, StoreError
from cfljax.launch import lockstep
from cfljax.launch.batch import InHalves, run_batch
from cfljax.launch.plan_file import as_laid_down
from cfljax.lazy import jax

MOST = 1024
"""Devices of a process: simulated ones take memory and threads each."""


def prepare(shape: Shape, hosts: distributed.Hosts | None) -> None:
    """Make the devices of the mesh, and join the other processes, before JAX begins. SpecError where that is not possible."""
    devices = max(1, shape.runs * shape.clients // ((hosts and hosts.processes) or 1))
    if devices > MOST:
        raise SpecError(f"--mesh {shape}: {devices:,} devices in a process; at most {MOST:,}")
    use_cores(None if shape == AUTO else devices)
    if hosts is None:
        this_machine(shape).shape()
    else:
        distributed.connect(hosts)


@contextlib.contextmanager
def joined(spec: Spec, shape: Shape | None) -> Iterator[None]:
    """Where several processes compute together, an exception in this context ends all of them. `shape`: the mesh that was asked
    for."""
    if not distributed.connected():
        yield
        return
    try:
        machine = this_machine(shape)
        lockstep.agree_on_start(spec, machine)
        machine.shape()
        yield
    except Exception as error:
        _part(error)
    except BaseException as signal:
        distributed.end(signal)
        raise
    if not distributed.end(None):
        print("cfljax: another process of --distributed has not ended well; what is done is kept", file=sys.stderr)


def follow(spec: Spec) -> int:
    """Compute the batches that process 0 announces, until it ends; the exit code."""
    by_id = {run.id: run for run in spec.units()}
    while True:
        try:
            words = json.loads(distributed.hear())
        except distributed.Ended as end:
            if end.words:
                raise
            return 0
        distributed.begin()
        machine = this_machine(Shape(*words["mesh"]), Speed(*words["speed"]))
        batch = as_laid_down([by_id[name] for name in words["runs"]], words["width"])
        assert batch is not None, "the same runs share a program in all processes"
        with contextlib.suppress(InHalves):
            run_batch(batch, machine, "none")


def _part(error: Exception) -> NoReturn:
    """Print the error, report it to the other processes, and end this one at once: an orderly end would wait for devices that no
    longer answer."""
    short = " ".join(str(error).split())
    if distributed.lost(error) or isinstance(error, TimeoutError):
        code, line = 1, f"the processes of this run have lost each other ({short[:500]}); start all of them again to go on"
    elif isinstance(error, OSError):
        code, line = StoreError.exit_code, f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
    else:
        code, line = getattr(error, "exit_code", 1), short
    if os.environ.get("CFLJAX_DEBUG") or not isinstance(error, (CfljaxError, OSError, jax.errors.JaxRuntimeError)):
        traceback.print_exception(error)
    print(f"cfljax: {line}", file=sys.stderr)
    sys.stderr.flush()
    distributed.end(error)
    os._exit(code)
