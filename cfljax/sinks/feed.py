"""From a results folder to sinks: each finished run once, while the sweep goes on, whoever computes it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cfljax.errors import StoreError
from cfljax.results.result import Result
from cfljax.sinks import SINKS
from cfljax.sinks.common import PLACE
from cfljax.store import Store

EVERY = 2.0
"""Seconds between two looks for finished runs."""


class Feed:
    """Sinks, and which runs they have. A sink that fails is left out from there on: no sweep ends because of its log."""

    def __init__(self, folder: str | os.PathLike[str], names: list[str], sweep: dict[str, Any], say: Callable[[str], None] = print):
        """`sweep`: its `name`, the `units` that are its runs (all, where it has none): others of the folder belong to an earlier
        spec, and are not logged under its name; and by `named` the label and what varies of each, which may be others than those of
        the start that computed it."""
        self.units, self.named = sweep.get("units"), sweep.get("named", {})
        self.folder, self.say = Path(folder), say
        makers = {name: SINKS.entry(name, "--log").make for name in dict.fromkeys(names)}
        self.sinks: dict[str, Any] = {name: make(self.folder, str(sweep["name"])) for name, make in makers.items()}
        self.written = {name: self._read(name) for name in self.sinks}

    def feed(self) -> int:
        """Hand over what has been finished since the last time; how many runs."""
        store, count = Store(self.folder, read_only=True), 0
        mine = None if self.units is None else set(self.units)
        for run in (name for name in store.ids() if mine is None or name in mine):
            waiting = [name for name in self.sinks if self.written[name].get(run) != "done"]
            if not waiting:
                continue
            try:
                record, arrays = store.read(run)
                result = Result(record | self.named.get(run, {}), arrays)
            except StoreError:
                continue  # damaged, or being replaced: the sweep says so itself
            behind = [name for name in waiting if self.written[name].get(run) != result.status]
            for name in behind:
                self._hand_over(name, result)
            count += bool(behind)
        return count

    def close(self) -> None:
        """After the last run."""
        for name, sink in self.sinks.items():
            self._guarded(name, sink.close)

    def _hand_over(self, name: str, result: Result) -> None:
        if name in self.sinks and self._guarded(name, lambda: self.sinks[name].write(result)):
            self.written[name][result.run] = result.status
            with (self._marks(name)).open("a", encoding="utf-8") as file:
                file.write(json.dumps([result.run, result.status]) + "\n")

    def _guarded(self, name: str, what: Callable[[], Any]) -> bool:
        try:
            what()
        except Exception as error:  # whatever a foreign package raises
            what_happened = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self.say(f"cfljax: --log {name}: {what_happened}; nothing more is logged there")
            self.sinks = {other: sink for other, sink in self.sinks.items() if other != name}
            return False
        return True

    def _marks(self, name: str) -> Path:
        return self.folder / PLACE / f"written-{name}.jsonl"

    def _read(self, name: str) -> dict[str, str]:
        """Run -> status under which the sink has it; half a line of a process that was killed is passed over."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for line in self._marks(name).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    run, status = json.loads(line)
                    found[run] = status
        return found


@contextlib.contextmanager
def following(
    folder: str | os.PathLike[str], names: list[str], sweep: dict[str, Any], say: Callable[[str], None] = print
) -> Iterator[None]:
    """While the sweep runs, its sinks are fed; the rest when it ends, however it ends."""
    if not names:
        yield
        return
    feed, done = Feed(folder, names, sweep, say), threading.Event()

    def watch() -> None:
        while not done.wait(EVERY):
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
