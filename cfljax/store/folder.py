"""A results folder: `units/<id>.npz` and then `units/<id>.json`, whose presence with matching sums means that the unit is done.

    DIR/spec.toml           the sweep as the user wrote it, resolved
    DIR/plan.json           how runs are batched; settled before the first unit runs
    DIR/units/<id>.npz      arrays of a run
    DIR/units/<id>.json     its record, written last
    DIR/checkpoints/<id>.npz  state of an unfinished run
    DIR/locks/<name>.lock   who works on what
    DIR/damaged/            files that were not what was written
    DIR/log.jsonl           events
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cfljax.errors import StoreError
from cfljax.store import arrays as npz
from cfljax.store import atomic, locks, records
from cfljax.store.arrays import Damaged

FOLDERS = ("units", "checkpoints", "locks")
_META = "checkpoint_meta"


class DamagedWarning(UserWarning):
    """A file of a results folder was not what was written; it has been set aside or skipped."""


class Unit(NamedTuple):
    """A finished run."""

    record: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Store:
    """One results folder. `read_only`: nothing in it is created, moved or removed, and it must exist."""

    def __init__(self, folder: str | os.PathLike[str], read_only: bool = False):
        self.folder = Path(folder)
        self.read_only = read_only
        self.units, self.checkpoints, self.locks = (self.folder / name for name in FOLDERS)
        if read_only:
            if not self.units.is_dir():
                what = "is not a results folder (it has no units/)" if self.folder.is_dir() else "there is no such folder"
                raise StoreError(f"{self.folder}: {what}; give the folder that a sweep wrote")
            return
        for path in (self.units, self.checkpoints, self.locks):
            with atomic.storing(path):
                path.mkdir(parents=True, exist_ok=True)
        for path in (self.folder, self.units, self.checkpoints):
            atomic.remove_stale(path)

    # --- units ---------------------------------------------------------------------------------------------------

    def write(self, id: str, record: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Keep a finished unit: both files are safely on disk before the first gets its name, the record is last, and
        the unit's checkpoint goes. `record` as in RECORD_SCHEMA; `schema` and `arrays` are added here."""
        records.check_id(id)
        if record.get("id", id) != id:
            raise ValueError(f"record of {record['id']} written as {id}")
        record = {"schema": records.SCHEMA, "id": id} | record
        records.check_record(record)
        packed = npz.pack(arrays)
        digest = hashlib.sha256(packed).hexdigest()
        record["arrays"] = {"bytes": len(packed), "sha256": digest, "names": list(arrays)}
        encoded = records.encode(record)
        with atomic.staged(self._array_file(id), packed) as first, atomic.staged(self._record_file(id), encoded) as second:
            first.commit()
            second.commit()
        self.remove_checkpoint(id)

    def read(self, id: str, prefixes: Collection[str] = ("",)) -> Unit:
        """A unit, verified to the last bit; only the arrays whose names start with one of the prefixes are unfolded.
        StoreError when there is none, or when it is damaged (then it is set aside, with a warning)."""
        records.check_id(id)
        try:
            return self._read(id, prefixes)
        except FileNotFoundError as error:
            raise StoreError(f"{self._record_file(id)}: there is no such unit") from error
        except Damaged as error:
            self._set_aside(id)
            raise StoreError(f"{self.units / id}: damaged: {error}; start the sweep again to compute it anew") from error

    def record(self, id: str) -> dict[str, Any] | None:
        """The record of a finished unit, or None. Its sum and the size of its array file are checked, which is quick;
        the arrays' own sum is checked where they are read."""
        try:
            return self._record(records.check_id(id))
        except FileNotFoundError:
            return None
        except Damaged as error:
            self._set_aside(id, error)
            return None

    def records(self) -> dict[str, dict[str, Any]]:
        """Id -> record of every finished unit, sorted by id; damaged ones are left out with a warning."""
        found = ((name, self.record(name)) for name in self.ids())
        return {name: record for name, record in found if record is not None}

    def done(self, redo: Collection[str] = (), verify: bool = False) -> set[str]:
        """Ids of the units that need no work: those on record whose status is not in `redo` (`("failed",)` for
        --retry-failed). `verify` reads the array files, too: what a resume wants, about 1 ms a unit."""
        found = {name for name, record in self.records().items() if record["status"] not in redo}
        return {name for name in found if self._verified(name)} if verify else found

    def ids(self) -> list[str]:
        """Ids of all records there are, good or not, sorted."""
        with self._reading(self.units):
            names = sorted(entry.name for entry in os.scandir(self.units) if entry.name.endswith(".json"))
        return [name.removesuffix(".json") for name in names if records._ID.fullmatch(name.removesuffix(".json"))]

    def check(self, id: str) -> str | None:
        """What is wrong with a unit on record, or None; nothing is moved."""
        try:
            self._read(id, prefixes=("",))
        except (Damaged, FileNotFoundError) as error:
            return str(error)
        return None

    def set_aside(self, id: str) -> None:
        """Move a damaged unit to DIR/damaged, with a warning; a good one stays."""
        self._set_aside(records.check_id(id))

    def _array_file(self, id: str) -> Path:
        return self.units / f"{id}.npz"

    def _record_file(self, id: str) -> Path:
        return self.units / f"{id}.json"

    def _record(self, id: str) -> dict[str, Any]:
        """The checked record; FileNotFoundError, or Damaged."""
        record = records.decode(self._bytes(self._record_file(id), records.MAX_RECORD))
        if record.get("schema", 0) > records.SCHEMA:
            raise StoreError(f"{self._record_file(id)}: written by a newer cfljax (schema {record['schema']}); upgrade cfljax")
        if record.get("id") != id or record.get("status") not in records.STATUSES:
            raise Damaged("the record is that of another unit")
        try:
            atomic.check_size(os.lstat(self._array_file(id)), npz.MAX_FILE, record["arrays"]["bytes"])
        except FileNotFoundError as error:
            raise Damaged(f"{id}.npz is missing") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{id}.npz: {error}") from error
        return record

    def _array_bytes(self, id: str, record: dict[str, Any]) -> bytes:
        data = self._bytes(self._array_file(id), npz.MAX_FILE, record["arrays"]["bytes"])
        if hashlib.sha256(data).hexdigest() != record["arrays"].get("sha256"):
            raise Damaged(f"{id}.npz: its SHA-256 is not that of its record")
        return data

    def _read(self, id: str, prefixes: Collection[str]) -> Unit:
        record = self._record(id)
        return Unit(record, npz.unpack(self._array_bytes(id, record), prefixes))

    def _bytes(self, path: Path, limit: int, expected: int | None = None) -> bytes:
        """The file's bytes; Damaged for anything but a plain file of the right size."""
        try:
            return atomic.read_bytes(path, limit, expected)
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise StoreError(f"{path}: cannot read: {error.strerror}; check the permissions") from error
        except (OSError, ValueError) as error:  # OSError: a symbolic link, a folder, a bad disk
            raise Damaged(f"{path.name}: {getattr(error, 'strerror', None) or error}") from error

    def _verified(self, id: str) -> bool:
        try:
            self._array_bytes(id, self._record(id))
        except FileNotFoundError:
            return False
        except Damaged as error:
            self._set_aside(id, error)
            return False
        return True

    def _set_aside(self, id: str, problem: Exception | None = None) -> None:
        """Move the unit's files away unless another process owns the unit (it may be between its two renames)."""
        if self.read_only:
            return self._warn(f"{self.units / id}: damaged, left out: {problem or 'see verify'}")
        with self.claim(id, redo=records.STATUSES, wait=False) as held:
            if not held:
                return None
            problem_now = self.check(id)  # its owner may have repaired it before we got the claim
            if problem_now is None or not self._record_file(id).exists():
                return None
            for path in (self._record_file(id), self._array_file(id)):  # the record first: it is what makes a unit done
                self._move_to_damaged(path)
        return self._warn(f"{self.units / id}: damaged ({problem_now}); moved to {self.folder / 'damaged'}, will be computed again")

    def _move_to_damaged(self, path: Path) -> None:
        with atomic.storing(path):
            damaged = self.folder / "damaged"
            damaged.mkdir(exist_ok=True)
            target, number = damaged / path.name, 1
            while os.path.lexists(target):
                target, number = damaged / f"{path.name}.{number}", number + 1
            with contextlib.suppress(FileNotFoundError):
                path.replace(target)

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, DamagedWarning, stacklevel=3)

    @contextlib.contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{path}: cannot read: {error.strerror or error}") from error

    # --- several processes ---------------------------------------------------------------------------------------

    def claim(self, name: str, redo: Collection[str] = (), wait: bool = False) -> locks.Claim:
        """`with store.claim(id) as mine: if mine: …` False when another process works on it, or when the unit is on
        record already (unless its status is in `redo`). Any name will do: a unit, a batch, "plan" (`wait=True` there)."""
        held = locks.claim(self.locks / f"{records.check_id(name)}.lock", wait)
        if held and self._on_record(name, redo):
            held.release()
        return held

    def _on_record(self, name: str, redo: Collection[str]) -> bool:
        try:
            return self._record(name)["status"] not in redo
        except (FileNotFoundError, Damaged):
            return False

    def claimed(self) -> dict[str, dict[str, Any]]:
        """Name -> {pid, host, since} of what is being worked on now."""
        return locks.owners(self.locks)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def save_checkpoint(self, id: str, arrays: Mapping[str, np.ndarray], meta: dict[str, Any] | None = None) -> None:
        """Keep the state of an unfinished run in one sealed file, in place of the one before."""
        note = np.frombuffer(json.dumps(meta or {}).encode(), np.uint8)
        packed = npz.seal(npz.pack({**arrays, _META: note}))
        atomic.write_bytes(self._checkpoint_file(id), packed)

    def load_checkpoint(self, id: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """(arrays, meta) of the last checkpoint; None when there is none, or, with a warning, when it is damaged."""
        path = self._checkpoint_file(id)
        try:
            data = self._bytes(path, npz.MAX_FILE)
            npz.check_seal(data)
            arrays = npz.unpack(data)
            return arrays, json.loads(arrays.pop(_META).tobytes())
        except FileNotFoundError:
            return None
        except (Damaged, ValueError, KeyError, AttributeError, RecursionError) as error:
            if not self.read_only:
                self._move_to_damaged(path)
            self._warn(f"{path}: damaged checkpoint ({error}); the run starts from its beginning")
            return None

    def remove_checkpoint(self, id: str) -> None:
        """Forget the state of a run that is done."""
        with contextlib.suppress(OSError):
            self._checkpoint_file(id).unlink()

    def _checkpoint_file(self, id: str) -> Path:
        return self.checkpoints / f"{records.check_id(id)}.npz"

    # --- the sweep itself ----------------------------------------------------------------------------------------

    def write_spec(self, text: str) -> None:
        """Keep the resolved spec as DIR/spec.toml."""
        atomic.write_bytes(self.folder / "spec.toml", text.encode())

    def read_spec(self) -> str | None:
        """The text of DIR/spec.toml, or None."""
        try:
            return self._bytes(self.folder / "spec.toml", records.MAX_RECORD).decode()
        except FileNotFoundError:
            return None
        except (Damaged, UnicodeDecodeError) as error:
            raise StoreError(f"{self.folder / 'spec.toml'}: damaged ({error}); remove it and start the sweep again") from error

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Keep the plan, sealed. `plan["units"]` lists the ids of this sweep in order: readers show these and no others."""
        atomic.write_bytes(self.folder / "plan.json", records.encode(plan))

    def read_plan(self) -> dict[str, Any] | None:
        """The plan, or None; a damaged one is set aside with a warning."""
        path = self.folder / "plan.json"
        try:
            return records.decode(self._bytes(path, records.MAX_RECORD))
        except FileNotFoundError:
            return None
        except Damaged as error:
            if not self.read_only:
                self._move_to_damaged(path)
            self._warn(f"{path}: damaged ({error}); it will be made again")
            return None

    def log(self, event: dict[str, Any]) -> None:
        """Append a line to DIR/log.jsonl; lines of several processes do not mix."""
        path = self.folder / "log.jsonl"
        with atomic.storing(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, json.dumps(event).encode() + b"\n")
            finally:
                os.close(descriptor)
