"""Several processes, perhaps on several machines, that compute one run together: what process 0 tells the others.

The devices' own exchanges are JAX's. What the processes must agree on beside them (which batch, how many rounds until the next
look) is told through the store of keys that `jax.distributed` has, which waits as long as it takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from cfljax.errors import SpecError

HEARTBEAT = 20
"""Seconds without a sign of life after which a process counts as dead, and the others end."""
PATIENCE = 24 * 3600 * 1000
"""Milliseconds to wait for process 0, which may be waiting for another sweep on the same folder."""


class Hosts(NamedTuple):
    """How to find each other; None: as Slurm, Kubernetes, MPI or the TPU says."""

    coordinator: str | None = None
    """host:port of process 0."""
    number: int | None = None
    """Of this process."""
    processes: int | None = None


_client: Any = None
_turn = 0
"""Messages so far, equal in all processes."""


def connect(hosts: Hosts) -> None:
    """Join the other processes; before JAX computes anything."""
    global _client
    given = [value is not None for value in hosts]
    if any(given) and not all(given):
        raise SpecError("--distributed: give --coordinator, --process-id and --num-processes, or none of them")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    try:
        jax.distributed.initialize(
            hosts.coordinator, hosts.processes, hosts.number, initialization_timeout=120, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError) as error:
        raise SpecError(f"--distributed: {' '.join(str(error).split())[:300]}") from None
    from jax._src import distributed  # the store of keys has no public name

    _client = distributed.global_state.client


def connected() -> bool:
    """Whether this process is one of several."""
    return _client is not None


def leads() -> bool:
    """Whether this process is the one that decides and writes: process 0, or the only one."""
    return _client is None or jax.process_index() == 0


def _key() -> str:
    global _turn
    _turn += 1
    return f"cfljax/{_turn}"


def tell(message: str) -> None:
    """From process 0 to all others, who `hear`."""
    _client.key_value_set(_key(), message)


def hear() -> str:
    """What process 0 tells next."""
    return str(_client.blocking_key_value_get(_key(), PATIENCE))


def agree(number: int) -> int:
    """The number of process 0."""
    if not connected():
        return number
    if leads():
        tell(str(number))
        return number
    return int(hear())


def meet() -> None:
    """Wait until all are here: devices wait for each other for half a minute only."""
    if connected():
        _client.wait_at_barrier(_key(), PATIENCE)


def share(array: np.ndarray) -> np.ndarray:
    """The array of process 0, for all; the others give one of the same shape and type."""
    from jax.experimental import multihost_utils

    raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    meet()
    return np.asarray(multihost_utils.broadcast_one_to_all(raw)).view(array.dtype).reshape(array.shape)
