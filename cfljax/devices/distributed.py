"""Several processes, perhaps on several machines, that compute one run together: what process 0 tells the others.

The devices' own exchanges are JAX's. What the processes must agree on beside them (which batch, how many rounds until the next
look, what a method has found on the host) goes through the store of keys that `jax.distributed` has. Every wait looks now and then
whether another process has ended: its reason is then this process's, too. A process that is killed is noticed by JAX.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from cfljax.errors import CfljaxError, SpecError, StoreError

HEARTBEAT = 20
"""Seconds without a sign of life after which a process counts as dead, and the others end."""
TOGETHER = 120
"""Seconds for all processes to start."""
APART = 120
"""Seconds that a process with an error waits for the others to say how they fared; then it ends, which ends them."""
PARTING = 5
"""Seconds that a process waits at its end for the others to end, too."""
MOMENT = 0.5
"""Seconds for the others to print what they have read."""
SLICE = 500
"""Milliseconds between two looks at whether others have ended."""


class Hosts(NamedTuple):
    """How to find each other; None: as Slurm, Kubernetes, MPI or the TPU says."""

    coordinator: str | None = None
    """host:port of process 0."""
    number: int | None = None
    """Of this process."""
    processes: int | None = None
    """How many there are."""


class Ended(CfljaxError):
    """Another process has ended, or has broken off the batch: whose error it is, in which words, and its exit code."""

    def __init__(self, process: int, words: str, code: int):
        super().__init__(f"process {process} of --distributed: {words}" if words else "the sweep is over")
        self.process, self.words, self.exit_code = process, words, code


END = "cfljax/end"
"""The key under which processes say that they end."""
NOBODY = -1
"""Whose fault it is that devices of another process do not answer."""
_SILENCE = re.compile("gloo|nccl|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED", re.IGNORECASE)
_client: Any = None
_batch = 0
"""Batches so far: messages of one cannot be taken for those of the next, wherever an error broke it off."""
_turn = 0
"""Messages of the batch so far, equal in all processes."""


def connect(hosts: Hosts) -> None:
    """Join the other processes; before JAX computes anything."""
    global _client
    given = [value is not None for value in hosts]
    if any(given) and not all(given):
        raise SpecError("--distributed: give --coordinator, --process-id and --num-processes, or none of them")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    late = threading.Timer(TOGETHER, _alone, [hosts])  # JAX itself would abort with a page of its own names
    late.daemon = True
    late.start()
    try:
        times: dict[str, Any] = {"initialization_timeout": 3 * TOGETHER, "heartbeat_timeout_seconds": HEARTBEAT}
        jax.distributed.initialize(hosts.coordinator, hosts.processes, hosts.number, **times)
    except (RuntimeError, ValueError, TypeError) as error:
        raise SpecError(f"--distributed: {' '.join(str(error).split())[:300]}") from None
    finally:
        late.cancel()
    from jax._src import distributed  # the store of keys has no public name

    _client = distributed.global_state.client


def _alone(hosts: Hosts) -> NoReturn:
    where = f" at {hosts.coordinator}" if hosts.coordinator else ""
    number = f"{hosts.processes} processes" if hosts.processes else "processes"
    print(f"cfljax: --distributed: not all {number} have met{where} after {TOGETHER} seconds; start all of them", file=sys.stderr)
    sys.stderr.flush()
    os._exit(SpecError.exit_code)


def connected() -> bool:
    """Whether this process is one of several."""
    return _client is not None


def leads() -> bool:
    """Whether this process is the one that decides and writes: process 0, or the only one."""
    return _client is None or jax.process_index() == 0


def begin() -> None:
    """A batch begins, in all processes."""
    global _batch, _turn
    _batch, _turn = _batch + 1, 0


def _key() -> str:
    global _turn
    _turn += 1
    return f"cfljax/{_batch}/{_turn}"


def tell(message: str) -> None:
    """From process 0 to all others, who `hear`."""
    _client.key_value_set(_key(), message)


def hear() -> str:
    """What process 0 tells next, however long that takes: it may wait for another sweep on the same folder."""
    key = _key()
    while True:
        try:
            return str(_client.blocking_key_value_get(key, SLICE))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        _see_who_ended()


def gather(word: str) -> list[str]:
    """The words of all processes, by their numbers."""
    return _gathered(_key(), word)


def _gathered(key: str, word: str, patience: float = math.inf) -> list[str]:
    """The same under this key. TimeoutError where not all say theirs within so many seconds."""
    _client.key_value_set(f"{key}/{jax.process_index()}", word)
    until, pause = time.monotonic() + patience, 0.001
    while True:
        found = _under(key)
        if len(found) == jax.process_count():
            return [found[number] for number in sorted(found)]
        if pause >= SLICE / 1000:
            _see_who_ended(but=key)
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(pause)
        pause = min(2 * pause, SLICE / 1000)


def _under(key: str) -> dict[int, str]:
    """Number of a process → what it has said under the key."""
    return {int(name.rpartition("/")[2]): str(word) for name, word in _client.key_value_dir_get(f"{key}/")}


def agree(value: Any) -> Any:
    """The value of process 0: numbers, truths, texts, and lists and tables of them."""
    if not connected():
        return value
    if leads():
        tell(json.dumps(value))
        return value
    return json.loads(hear())


def meet() -> None:
    """Wait until all are here: devices wait for each other for half a minute only."""
    if connected():
        gather("")


def share(array: np.ndarray) -> np.ndarray:
    """The array of process 0, for all; the others give one of the same shape and type."""
    from jax.experimental import multihost_utils

    if not array.size:
        return array
    raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    meet()
    return np.asarray(multihost_utils.broadcast_one_to_all(raw)).view(array.dtype).reshape(array.shape)


def share_all(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The named arrays of process 0, for all, whatever the others give."""
    forms = agree([(name, str(array.dtype), array.shape) for name, array in arrays.items()])
    return {name: share(arrays[name] if leads() else np.zeros(shape, kind)) for name, kind, shape in forms}


def same(tree: Any) -> Any:
    """The arrays of process 0, for all. What scikit-learn or numpy makes on the host may differ between machines in its last
    bits, and a decision with them."""
    if not connected():
        return tree
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, share_all({str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}).values())


def outcome(error: BaseException | None) -> None:
    """Say how the batch went here, and hear how it went elsewhere. Returns where it went well in all processes, or in none for
    reasons of its own: all can go on. Else raises the error that another process has (`Ended`) or this one; TimeoutError
    where others neither end nor say anything."""
    found = _gathered(f"cfljax/{_batch}/end", _words(error), math.inf if error is None else APART)
    said = [json.loads(word) for word in found]
    wrong = [each for each in said if each[1]]
    if not wrong or [process for process, _, _ in wrong] == list(range(len(said))):
        return
    first = max(wrong, key=lambda each: each[0] >= 0)  # a silence has its reason elsewhere
    if error is not None and first[0] in (jax.process_index(), NOBODY):
        raise error
    if first[0] == NOBODY:
        raise TimeoutError(first[1])
    raise Ended(*first)


def end(error: BaseException | None) -> bool:
    """Say that this process ends, and why, so that the others end, too. Without an error all part in order; True where they do.
    After an error nobody waits for anybody, but for process 0, who keeps the messages until all have read them."""
    global _client
    client, _client = _client, None
    if client is None:
        return True
    try:
        client.key_value_set(f"{END}/{jax.process_index()}", _words(error))
        until = time.monotonic() + PARTING
        while len(said := client.key_value_dir_get(f"{END}/")) < jax.process_count() and time.monotonic() < until:
            if error is not None and jax.process_index():
                return False
            time.sleep(0.05)
        if error is None and [json.loads(word)[1] for _, word in said] == [""] * jax.process_count():
            jax.distributed.shutdown()  # waits for all, and aborts where one has gone
            return True
        time.sleep(MOMENT)
    except jax.errors.JaxRuntimeError:
        pass  # the others have gone already
    return False


def lost(error: BaseException) -> bool:
    """Whether the error says that devices of another process do not answer any more."""
    return isinstance(error, jax.errors.JaxRuntimeError) and _SILENCE.search(str(error)) is not None


def _words(error: BaseException | None) -> str:
    """[whose error, in words, exit code]; no words for none."""
    if error is None:
        return json.dumps([jax.process_index(), "", 0])
    if lost(error):
        return json.dumps([NOBODY, " ".join(str(error).split())[:2000], 1])
    if isinstance(error, Ended):
        return json.dumps([error.process, error.words, error.exit_code])
    words = str(error) if isinstance(error, CfljaxError) else f"{type(error).__name__}: {error}".rstrip(": ")
    code = getattr(error, "exit_code", StoreError.exit_code if isinstance(error, OSError) else 1)
    return json.dumps([jax.process_index(), " ".join(words.split())[:2000] or "?", code])


def _see_who_ended(but: str = "") -> None:
    """`Ended` where another process has ended, or has broken off this batch."""
    for key in (END, f"cfljax/{_batch}/end"):
        for number, word in _under(key).items():
            process, words, code = json.loads(word)
            if number != jax.process_index() and key != but and (words or key == END):
                raise Ended(process, words, code)
