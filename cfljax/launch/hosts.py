"""A sweep over many devices in one process (`--mesh`), or over those of several processes (`--distributed`): process 0 carries
it out and alone reads and writes the results folder; the others compute along."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from cfljax import distributed, mesh
from cfljax.config import Spec
from cfljax.errors import CfljaxError, SpecError
from cfljax.launch import together
from cfljax.launch.batch import InHalves, run_batch
from cfljax.launch.devices import use_cores
from cfljax.launch.settled import as_laid_down
from cfljax.launch.sweep import Options, Outcome, carry_out
from cfljax.local import speed
from cfljax.store import Store

MOST = 1024
"""Devices of a process: simulated ones take memory and threads each."""


def prepare(shape: mesh.Shape, hosts: distributed.Hosts | None) -> None:
    """Devices, and the other processes, before JAX begins."""
    devices = max(1, shape.runs * shape.clients // ((hosts and hosts.processes) or 1))
    if devices > MOST:
        raise SpecError(f"--mesh {shape}: {devices:,} devices in a process; at most {MOST:,}")
    if shape != mesh.AUTO:
        use_cores(devices)
    else:
        use_cores()
    if hosts is not None:
        distributed.connect(hosts)
    mesh.ask(shape)
    if hosts is None:
        mesh.check()


@contextlib.contextmanager
def joined(spec: Spec) -> Iterator[None]:
    """Where several processes compute together: what ends one of them, all hear of, and end."""
    if not distributed.connected():
        yield
        return
    try:
        together.agree_on_start(spec)
        mesh.check()
        yield
    except BaseException as error:
        if distributed.lost(error) or isinstance(error, TimeoutError):
            _part(f"the processes of this run have lost each other ({_short(error)}); start all of them again to go on", 1)
        if not distributed.end(error) and isinstance(error, CfljaxError):
            _part(_short(error), error.exit_code)
        raise
    if not distributed.end(None):
        print("cfljax: another process of --distributed has not ended; what is done is kept", file=sys.stderr)


def carry_out_on_mesh(spec: Spec, store: Store, options: Options, workers: int | None, arguments: list[str]) -> Outcome:  # noqa: ARG001
    """The sweep, by this process and those that `follow`. The last two are for launchers that start processes."""
    return carry_out(spec, store, options)


def follow(spec: Spec) -> int:
    """Compute what process 0 tells, until it has had enough."""
    by_id = {run.id: run for run in spec.units()}
    while True:
        try:
            words = json.loads(distributed.hear())
        except distributed.Ended as end:
            if end.words:
                raise
            return 0
        distributed.begin()
        mesh.ask(mesh.Shape(*words["mesh"]))
        speed.use(speed.Speed(*words["speed"]))
        batch = as_laid_down([by_id[name] for name in words["runs"]], words["width"])
        assert batch is not None, "the same runs share a program in all processes"
        with contextlib.suppress(InHalves):
            run_batch(batch, "none", keeper=together.Listener())


def _part(message: str, code: int) -> NoReturn:
    """End at once. An orderly end would wait for processes that no longer answer."""
    print(f"cfljax: {message}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
