"""Send the finished runs of a results folder to the sinks, each once, also while other processes
compute more."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cfljax.errors import StoreError
from cfljax.registry.options import Table
from cfljax.results.result import Result
from cfljax.sinks import SINKS
from cfljax.sinks.common import LOGS_FOLDER, Sink
from cfljax.store import Store

# Seconds after which the folder is searched for finished runs again
POLL_SECONDS = 2.0


class Feed:
    """The sinks of a results folder, and the runs that each has. A sink that fails is not used
    again, and the sweep goes on."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        names: list[str],
        sweep: Table,
        say: Callable[[str], None] = print,
    ):
        """`sweep` has the `name` of the sweep, `units` with the ids of its runs, and `named` with
        the label and the varying options of each. Runs of the folder that are not in `units` belong
        to an earlier spec and are not sent (without `units` all are). `say` prints an error of a
        sink."""
        self.units = None if sweep.get("units") is None else set(sweep["units"])
        self.named = sweep.get("named", {})
        self.folder = Path(folder)
        self.say = say
        makers = {name: SINKS.entry(name, "--log").make for name in dict.fromkeys(names)}
        self.sinks: dict[str, Sink] = {
            name: make(self.folder, str(sweep["name"])) for name, make in makers.items()
        }
        self.written = {name: self._read_written(name) for name in self.sinks}

    def feed(self) -> int:
        """Send the runs that were finished since the last call, and return their number."""
        store = Store(self.folder, read_only=True)
        count = 0
        for run in store.ids():
            waiting = [name for name in self.sinks if self.written[name].get(run) != "done"]
            if not waiting or (self.units is not None and run not in self.units):
                continue
            try:
                record, arrays = store.read(run)
                result = Result(record | self.named.get(run, {}), arrays)
            except StoreError:
                # The unit is damaged or being replaced. The sweep reports it.
                continue
            behind = [name for name in waiting if self.written[name].get(run) != result.status]
            for name in behind:
                self._send(name, result)
            count += bool(behind)
        return count

    def close(self) -> None:
        """Call `close()` of the sinks that have it: a package's own sink may write the rest
        then."""
        # A copy, because a sink that fails is dropped from the dict
        for name, sink in list(self.sinks.items()):
            if hasattr(sink, "close"):
                self._call_safely(name, sink.close)

    def _call_safely(self, name: str, call: Callable[[], object]) -> bool:
        """Call a sink; return whether that went well. A sink that fails is dropped."""
        try:
            call()
        # A sink's package may raise anything
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self.say(f"cfljax: --log {name}: {reason}; nothing more is logged there")
            del self.sinks[name]
            return False
        return True

    def _send(self, name: str, result: Result) -> None:
        """Send a run to a sink, and note in the folder that the sink has it."""
        if not self._call_safely(name, lambda: self.sinks[name].write(result)):
            return
        self.written[name][result.run] = result.status
        with self._written_file(name).open("a", encoding="utf-8") as file:
            file.write(json.dumps([result.run, result.status]) + "\n")

    def _written_file(self, name: str) -> Path:
        return self.folder / LOGS_FOLDER / f"written-{name}.jsonl"

    def _read_written(self, name: str) -> dict[str, str]:
        """Map each run to the status with which the sink has it. The incomplete line of a process
        that was killed is ignored."""
        written: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for line in self._written_file(name).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    run, status = json.loads(line)
                    written[run] = status
        return written


@contextlib.contextmanager
def send_finished_runs(
    folder: str | os.PathLike[str],
    names: list[str],
    sweep: Table,
    say: Callable[[str], None] = print,
) -> Iterator[None]:
    """Send the runs that finish in the `with` block to the sinks, and the rest at its end or after
    an error."""
    if not names:
        yield
        return
    feed = Feed(folder, names, sweep, say)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            with contextlib.suppress(StoreError):
                feed.feed()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        feed.feed()
        feed.close()
