"""A results folder: `units/<id>.npz` and then `units/<id>.json`, whose presence with matching
checksums means that the unit is done.

- `DIR/spec.toml`: the sweep as the user wrote it, resolved;
- `DIR/plan.json`: how runs are batched, fixed before the first unit runs;
- `DIR/units/<id>.npz`: the arrays of a run;
- `DIR/units/<id>.json`: its record, written last;
- `DIR/checkpoints/<id>.npz`: the state of an unfinished run;
- `DIR/locks/<name>.lock`: held by the process that works on that unit or batch;
- `DIR/damaged/`: files that were not what was written;
- `DIR/set_aside/`: checkpoints that other versions or devices made;
- `DIR/log.jsonl`: events."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

from cfljax.errors import StoreError
from cfljax.registry.options import Table
from cfljax.store import atomic, records
from cfljax.store.arrays import Damaged

FOLDERS = ("units", "checkpoints", "locks")


class DamagedWarning(UserWarning):
    """A file of a results folder was not what was written; it has been set aside or skipped."""


class Folder:
    """The folder itself, its spec, plan and log. `read_only`: nothing in it is created, moved or
    removed, and it must exist."""

    def __init__(self, folder: str | os.PathLike[str], read_only: bool = False):
        self.folder = Path(folder)
        self.read_only = read_only
        self.units, self.checkpoints, self.locks = (self.folder / name for name in FOLDERS)
        if read_only:
            if not self.units.is_dir():
                what = (
                    "is not a results folder (it has no units/)"
                    if self.folder.is_dir()
                    else "there is no such folder"
                )
                raise StoreError(f"{self.folder}: {what}; give the folder that a sweep wrote")
            return
        for path in (self.units, self.checkpoints, self.locks):
            with atomic.store_errors(path):
                path.mkdir(parents=True, exist_ok=True)
        with atomic.store_errors(self.folder):
            atomic.sync_folder(self.folder)
        for path in (self.folder, self.units, self.checkpoints):
            atomic.remove_stale(path)

    def write_spec(self, spec: str) -> None:
        """Write the resolved spec to DIR/spec.toml."""
        atomic.write_bytes(self.folder / "spec.toml", spec.encode())

    def read_spec(self) -> str | None:
        """Read DIR/spec.toml; None if there is no such file."""
        try:
            return self._read_file(self.folder / "spec.toml").decode()
        except FileNotFoundError:
            return None
        except (Damaged, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self.folder / 'spec.toml'}: damaged ({error}); remove it and start the "
                "sweep again"
            ) from error

    def write_plan(self, plan: Table) -> None:
        """Write the plan, sealed. `plan["units"]` lists the ids of this sweep in order: readers
        show these and no others."""
        atomic.write_bytes(self.folder / "plan.json", records.encode(plan, compact=True))

    def read_plan(self) -> Table | None:
        """Read plan.json; None if there is no such file. A damaged one is set aside with a
        warning."""
        path = self.folder / "plan.json"
        try:
            return records.check_plan(records.decode(self._read_file(path)))
        except FileNotFoundError:
            return None
        except Damaged as error:
            if not self.read_only:
                self._move(path)
            self.warn(f"{path}: damaged ({error}); it will be rebuilt")
            return None

    def log(self, event: Table) -> None:
        """Append a line to DIR/log.jsonl; lines of several processes do not mix."""
        path = self.folder / "log.jsonl"
        with atomic.store_errors(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                # One call: with O_APPEND the system does not mix the lines of two processes
                os.write(descriptor, json.dumps(event, default=str).encode() + b"\n")
            finally:
                os.close(descriptor)

    def events(self) -> list[Table]:
        """Read the lines of DIR/log.jsonl, without invalid ones: a process may have been killed
        while it wrote."""
        events = []
        with contextlib.suppress(OSError):
            for line in (
                (self.folder / "log.jsonl")
                .read_text(encoding="utf-8", errors="replace")
                .splitlines()
            ):
                with contextlib.suppress(ValueError):
                    events.append(json.loads(line))
        return [
            e
            for e in events
            if isinstance(e, dict)
            and isinstance(e.get("time"), float)
            and isinstance(e.get("event"), str)
        ]

    def _read_file(self, path: Path, expected: int | None = None) -> bytes:
        """Read a file of the folder; Damaged if it is not a regular file of the expected size."""
        try:
            return atomic.read_bytes(path, expected)
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise StoreError(
                f"{path}: cannot read: {error.strerror}; check the permissions"
            ) from error
        # An OSError tells of a symbolic link, a folder or a bad disk
        except (OSError, ValueError) as error:
            raise Damaged(f"{path.name}: {getattr(error, 'strerror', None) or error}") from error

    def _move(self, path: Path, name: str = "damaged") -> Path:
        """Move a file, if it is there, to the folder of this name in the results folder; return its
        new path."""
        with atomic.store_errors(path):
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            target = folder / path.name
            number = 1
            while os.path.lexists(target):
                target = folder / f"{path.name}.{number}"
                number += 1
            with contextlib.suppress(FileNotFoundError):
                path.replace(target)
        return target

    @staticmethod
    def warn(message: str) -> None:
        """Warn about damage in the folder."""
        warnings.warn(message, DamagedWarning, stacklevel=3)
