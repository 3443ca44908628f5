"""Several processes, perhaps on several machines, that compute one run together: the messages between them.

Arrays travel between devices through JAX; `cfljax.devices.same` gives all processes those of process 0. What the processes must
agree on besides (which batch, how many rounds until the next look) goes through the key-value store of `jax.distributed`. A process
that waits looks every half second whether another one has ended, and then ends for the same reason. JAX notices a process that is
killed.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
from typing import Any, NamedTuple, NoReturn, TypeVar

from cfljax.devices.watch import Seen, watch
from cfljax.errors import CfljaxError, SpecError, StoreError
from cfljax.lazy import jax

Told = TypeVar("Told")

HEARTBEAT = 20
"""Seconds without a sign of life after which a process counts as dead, and the others end."""
TOGETHER = 120
"""Seconds for all processes to start."""
APART = 120
"""Seconds that a process with an error waits for the others to report; then it ends, which ends them."""
PARTING = 10
"""Seconds that a process waits at its end for the others to end, too."""
MOMENT = 0.5
"""Seconds for the others to print what they have read."""
SLICE = 500
"""Milliseconds between two looks at whether others have ended."""


class Hosts(NamedTuple):
    """How the processes find each other; what is None is taken from Slurm, Kubernetes, MPI or the TPU."""

    coordinator: str | None = None
    """host:port of process 0."""
    number: int | None = None
    """The number of this process, from 0."""
    processes: int | None = None
    """The number of processes."""


class Ended(CfljaxError):
    """Another process has ended, or has broken off the batch. `process`: the one with the error, `words`: its message."""

    def __init__(self, process: int, words: str, code: int):
        super().__init__(f"process {process} of --distributed: {words}" if words else "the sweep is over")
        self.process, self.words, self.exit_code = process, words, code


END = "cfljax/end"
"""The key under which processes say that they end."""
NOBODY = -1
"""Stands for the number of the process with the error, where devices of another process do not answer."""
_SILENCE = re.compile("gloo|nccl|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED", re.IGNORECASE)
_client: Any = None
"""The key-value store of `jax.distributed`; None: this process is alone."""
_batch = 0
"""Number of the batch: so the messages of one cannot be taken for those of the next, wherever an error broke it off."""
_turn = 0
"""Number of the message in its batch, equal in all processes."""


def connect(hosts: Hosts) -> None:
    """Join the other processes. Call this before JAX computes anything."""
    global _client
    if 0 < sum(value is not None for value in hosts) < len(hosts):
        raise SpecError("--distributed: give --coordinator, --process-id and --num-processes, or none of them")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    late = threading.Timer(TOGETHER, _alone, [hosts])  # JAX itself would abort with a page of its own names
    late.daemon = True
    late.start()
    try:
        jax.distributed.initialize(
            hosts.coordinator,
            hosts.processes,
            hosts.number,
            initialization_timeout=3 * TOGETHER,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise SpecError(f"--distributed: {' '.join(str(error).split())[:300]}") from None
    finally:
        late.cancel()
    from jax._src import distributed  # the store of keys has no public name

    _client = distributed.global_state.client
    if distributed.global_state.process_id:  # process 0 keeps the messages, and nothing aborts it
        watch(_seen, SLICE / 1000, end)


def _alone(hosts: Hosts) -> NoReturn:
    """Say that other processes have not come, and end this process."""
    where = f" at {hosts.coordinator}" if hosts.coordinator else ""
    number = f"{hosts.processes} processes" if hosts.processes else "processes"
    why = f"not all {number} have met{where} after {TOGETHER} seconds; start all of them"
    print(f"cfljax: --distributed: {why}", file=sys.stderr, flush=True)
    os._exit(SpecError.exit_code)


def connected() -> bool:
    """Whether this process is one of several."""
    return _client is not None


def leads() -> bool:
    """Whether this process is the one that decides and writes: process 0, or the only one."""
    return _client is None or jax.process_index() == 0


def begin() -> None:
    """Count a new batch; all processes call this at the same point."""
    global _batch, _turn
    _batch, _turn = _batch + 1, 0


def _key() -> str:
    """The key of the next message."""
    global _turn
    _turn += 1
    return f"cfljax/{_batch}/{_turn}"


def tell(message: str) -> None:
    """Send a message from process 0 to all others, which `hear`."""
    _client.key_value_set(_key(), message)


def hear() -> str:
    """The next message of process 0, however long that takes: it may wait for another sweep on the same folder."""
    key = _key()
    while True:
        try:
            return str(_client.blocking_key_value_get(key, SLICE))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        _see_who_ended()


def gather(word: str) -> list[str]:
    """The words of all processes, in the order of their numbers; all call this at the same point."""
    return _gathered(_key(), word)


def _gathered(key: str, word: str, patience: float = math.inf) -> list[str]:
    """As `gather`, under this key. TimeoutError where not all have given their word within `patience` seconds."""
    _client.key_value_set(f"{key}/{jax.process_index()}", word)
    until, pause = time.monotonic() + patience, 0.001
    while True:
        words = _under(key)
        if len(words) == jax.process_count():
            return [words[number] for number in sorted(words)]
        if pause >= SLICE / 1000:
            _see_who_ended(but=key)
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(pause)
        pause = min(2 * pause, SLICE / 1000)


def _under(key: str) -> dict[int, str]:
    """Number of a process → its word under the key; none where this process has parted from the others."""
    client = _client  # the thread of `watch` asks, too
    said = [] if client is None else client.key_value_dir_get(f"{key}/")
    return {int(name.rpartition("/")[2]): str(word) for name, word in said}


def agree(value: Told) -> Told:
    """The value of process 0, in all processes: anything that JSON can hold."""
    if not leads():
        value = json.loads(hear())
    elif connected():
        tell(json.dumps(value))
    return value


def meet() -> None:
    """Wait until all processes have come to this point: devices wait for each other for half a minute only."""
    if connected():
        gather("")


def outcome(error: BaseException | None) -> None:
    """Exchange with the other processes how the batch has ended. `error`: what it raised in this process. Returns where it ended
    well in all processes, or with an error in each of them: then all can go on. Else raises the error of this process (also where
    others neither end nor report), or `Ended` with that of another one."""
    try:
        words = _gathered(f"cfljax/{_batch}/end", _words(error), math.inf if error is None else APART)
    except TimeoutError:
        assert error is not None  # or there was no limit
        raise error from None
    said = [json.loads(word) for word in words]
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
    """Report that this process ends, and why, so that the others end, too. True where all processes have ended without an error.
    After an error no process waits for another, except process 0, which keeps the messages until all have read them."""
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
    """JSON of [number of the process with the error, its message, exit code]; the message is empty without an error."""
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
    """Raise `Ended` where another process has ended, or has broken off this batch."""
    for key in (END, f"cfljax/{_batch}/end"):
        if key != but:
            _see_who_said(key)


def _see_who_said(key: str) -> None:
    """Raise `Ended` where another process has said under this key that it has ended, or why."""
    for number, word in _under(key).items():
        process, words, code = json.loads(word)
        if number != jax.process_index() and (words or key == END):
            raise Ended(process, words, code)


def _seen() -> Seen:
    """Why another process has ended. To break off a batch ends none: this one may yet fail in it, too, and then all go on."""
    try:
        _see_who_said(END)
    except Ended as ended:
        return ended if ended.words else "apart"
    except jax.errors.JaxRuntimeError:
        return "apart"  # JAX ends this process
    return None if connected() else "apart"
