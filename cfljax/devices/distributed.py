"""Several processes, perhaps on several machines, that compute one run together (`--distributed`).
Arrays travel between devices through JAX, all else through the key-value store of
`jax.distributed`. All processes call these functions at the same points."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import traceback
from typing import Any, NoReturn, TypeVar

import numpy as np

from cfljax.errors import CfljaxError, SpecError
from cfljax.lazy import jax
from cfljax.types import Tree

Value = TypeVar("Value")
HEARTBEAT = 20
TOGETHER = 120
APART = 30
PARTING = 2
"""Seconds: without a sign of life from a process, after which JAX ends the others; for all to
start; for all to fail in a batch where one has failed; for the others to read why one ends."""
# Milliseconds between two checks for messages
POLL_MILLISECONDS = 500
_LOST = re.compile("gloo|nccl|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED", re.IGNORECASE)
# The key-value store; None: this process is alone
_client: Any = None
# Numbers of the batch and of the message in it, equal in all processes
_batch, _turn = 0, 0
# Is held by the thread that ends this process
_ending = threading.Lock()


def connect(coordinator: str | None, number: int | None, processes: int | None) -> None:
    """Join the other processes, before JAX computes anything. `coordinator`: host:port of process
    0; `number`: of this process. If none of the three is given, they are taken from Slurm,
    Kubernetes, MPI or the TPU."""
    global _client
    if len({value is None for value in (coordinator, number, processes)}) > 1:
        raise SpecError(
            "--distributed: give --coordinator, --process-id and --num-processes, or none of them"
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would keep SIGTERM to itself
    jax.config.update("jax_enable_preemption_service", False)
    where = f" at {coordinator}" if coordinator else ""
    why = (
        f"--distributed: not all processes have met{where} after {TOGETHER} seconds; start all "
        "of them"
    )
    # JAX itself would abort with a stack trace
    late = threading.Timer(TOGETHER, _end, [why, SpecError.exit_code])
    late.daemon = True
    late.start()
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            number,
            initialization_timeout=3 * TOGETHER,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise SpecError(f"--distributed: {' '.join(str(error).split())[:300]}") from None
    finally:
        late.cancel()
    from jax._src import distributed  # the store has no public name

    _client = distributed.global_state.client
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    """End this process if another one ends with an error: it may wait for devices, and never learn
    of it."""
    while (client := _client) is not None:
        try:
            said = client.key_value_dir_get("cfljax/end/")
        except jax.errors.JaxRuntimeError:
            # JAX ends this process
            return
        if said and _ending.acquire(blocking=False):
            _end(*json.loads(said[0][1]))
        time.sleep(POLL_MILLISECONDS / 1000)


def _end(line: str, code: int) -> NoReturn:
    print(f"cfljax: {line}", file=sys.stderr, flush=True)
    os._exit(code)


def fail(error: BaseException) -> None:
    """End the other processes because of this error and, unless it is a signal, this one, without
    waiting for dead devices."""
    line = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
    code = getattr(error, "exit_code", 1)
    if isinstance(error, CfljaxError):
        line = " ".join(str(error).split())
    elif is_connection_lost(error):
        # The reason of another process ends this one, if there is one
        time.sleep(PARTING)
        line = (
            f"the processes of this run lost their connection ({line[:500]}); start all of them "
            "again to continue"
        )
    elif isinstance(error, Exception):
        traceback.print_exception(error)
    _ending.acquire()
    try:
        message = f"process {jax.process_index()} of --distributed: {line[:2000]}"
        _client.key_value_set(f"cfljax/end/{jax.process_index()}", json.dumps([message, code]))
        # Process 0 keeps the messages
        time.sleep(PARTING if leads() else 0)
    except jax.errors.JaxRuntimeError:
        pass  # the others have gone
    if isinstance(error, Exception):
        _end(line, code)


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the error says that devices of another process no longer answer."""
    return isinstance(error, jax.errors.JaxRuntimeError) and _LOST.search(str(error)) is not None


def leave() -> None:
    """End with the other processes, after the last batch."""
    global _client
    _client = None
    jax.distributed.shutdown()


def is_connected() -> bool:
    """Return whether this process is one of several."""
    return _client is not None


def leads() -> bool:
    """Return whether this process decides and writes: process 0, or the only one."""
    return _client is None or jax.process_index() == 0


def gather(word: str) -> list[str]:
    """Collect the words of all processes, in the order of their indices."""
    global _turn
    _turn += 1
    key = f"cfljax/{_batch}/{_turn}"
    words = list[str]()
    _client.key_value_set(f"{key}/{jax.process_index()}", word)
    while len(words) < jax.process_count():
        try:  # in slices, so that signals are answered
            words.append(
                str(_client.blocking_key_value_get(f"{key}/{len(words)}", POLL_MILLISECONDS))
            )
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
    return words


def agree(value: Value) -> Value:
    """Return process 0's value on every process, once all have called this: anything that JSON can
    hold."""
    if not is_connected():
        return value
    first: Value = json.loads(gather(json.dumps(value))[0])
    return first


def next_batch(error: Exception | None) -> None:
    """Start the messages of the next batch. `error` of this one is raised again, unless all failed
    and can go on."""
    global _batch, _turn
    failed = f"cfljax/failed/{_batch}/"
    _batch = _batch + 1
    _turn = 0
    if error is None:
        return
    if is_connection_lost(error):
        raise error
    _client.key_value_set(f"{failed}{jax.process_index()}", "")
    until = time.monotonic() + APART
    while len(_client.key_value_dir_get(failed)) < jax.process_count():
        if time.monotonic() > until:
            raise error
        time.sleep(POLL_MILLISECONDS / 1000)


def broadcast(tree: Tree) -> Tree:
    """Return process 0's arrays on every process; the trees differ in shapes at most. Results of
    scikit-learn or numpy on the host may differ between machines in their last bits, and with them
    a decision of the method."""
    if not is_connected():
        return tree
    from jax.experimental import multihost_utils

    arrays, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    for at, (kind, shape) in enumerate(
        agree([(str(array.dtype), array.shape) for array in arrays])
    ):
        raw = (
            np.frombuffer(arrays[at].tobytes(), np.uint8)
            if leads()
            else np.zeros(shape, kind).reshape(-1).view(np.uint8)
        )
        if raw.size:
            # Devices wait for each other for half a minute only
            agree(None)
            raw = np.asarray(multihost_utils.broadcast_one_to_all(raw))
        arrays[at] = raw.view(kind).reshape(shape)
    return jax.tree.unflatten(structure, arrays)
