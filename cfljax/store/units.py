"""The units and checkpoints of a results folder, and the claims of the processes that compute
them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.errors import StoreError
from cfljax.registry.options import Table
from cfljax.store import arrays as npz
from cfljax.store import atomic, locks, records
from cfljax.store.arrays import Damaged
from cfljax.store.atomic import write_bytes
from cfljax.store.folder import Folder
from cfljax.store.records import decode, encode

# The names of the arrays of a unit's last state begin with it
STATE_PREFIX = "state/"
_NOTE_KEY = "checkpoint_meta"
# Ends the name of the lock that is held while the files of a unit are written; no id has a ~
_WRITING_SUFFIX = "~write"


class Unit(NamedTuple):
    """A finished run."""

    record: Table
    arrays: dict[str, np.ndarray]


class Store(Folder):
    """One results folder. `read_only`: nothing in it is created, moved or removed, and it must
    exist."""

    # --- units ------------------------------------------------------------------------------------

    def write(self, id: str, record: Table, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a finished unit: both files are safely on disk before the first gets its name, the
        record is last, and the unit's checkpoint is removed. `record` as in RECORD_SCHEMA; `schema`
        and `arrays` are added here."""
        records.check_id(id)
        if record.get("id", id) != id:
            raise ValueError(f"record of {record['id']} written as {id}")
        record = {"schema": records.SCHEMA, "id": id} | record
        records.check_record(record)
        packed = npz.pack(arrays)
        digest = hashlib.sha256(packed).hexdigest()
        record["arrays"] = {"bytes": len(packed), "sha256": digest, "names": list(arrays)}
        encoded = records.encode(record)
        with (
            atomic.stage(self._array_file(id), packed) as first,
            atomic.stage(self._record_file(id), encoded) as second,
            self._writing(id, wait=True),
        ):
            atomic.commit_in_order(first, second)
        self.remove_checkpoint(id)

    def read(self, id: str, prefixes: Collection[str] = ("",)) -> Unit:
        """Read a unit, verified to the last bit; only the arrays whose names start with one of the
        prefixes are unpacked. Raises a StoreError if there is none, or if it is damaged (then it is
        set aside, with a warning)."""
        records.check_id(id)
        try:
            return self._read_unit(id, prefixes)
        except FileNotFoundError as error:
            raise StoreError(f"{self._record_file(id)}: there is no such unit") from error
        except Damaged as error:
            if not self.read_only:
                self._set_aside(id)
            raise StoreError(
                f"{self.units / id}: damaged: {error}; start the sweep again to recompute it"
            ) from error

    def record(self, id: str, verify: bool = False) -> Table | None:
        """Read the record of a finished unit, or None. Its checksum and the size of its array file
        are checked, which is quick; the checksum of the arrays is checked when they are read, and
        here with `verify`."""
        try:
            record = self._read_record(records.check_id(id))
            if verify:
                self._read_array_file(id, record)
        except FileNotFoundError:
            return None
        except Damaged as error:
            self._set_aside(id, error)
            return None
        return record

    def records(self) -> dict[str, Table]:
        """Map id to record of every finished unit, sorted by id; damaged ones are left out with a
        warning."""
        pairs = ((name, self.record(name)) for name in self.ids())
        return {name: record for name, record in pairs if record is not None}

    def done(self, redo: Collection[str] = (), verify: bool = False) -> set[str]:
        """Return the ids of the units that need no work: those on record whose status is not in
        `redo` (`("failed",)` for --retry-failed). `verify` reads the array files, too, as a resume
        does, about 1 ms a unit."""
        names = {name for name, record in self.records().items() if record["status"] not in redo}
        return (
            {name for name in names if self.record(name, verify=True) is not None}
            if verify
            else names
        )

    def has(self, id: str) -> bool:
        """Return whether this one unit needs no work: as `done`, without reading the others."""
        return self.record(id) is not None

    def ids(self) -> list[str]:
        """List the ids of all records, good or not, sorted."""
        try:
            names = sorted(
                entry.name for entry in os.scandir(self.units) if entry.name.endswith(".json")
            )
        except OSError as error:
            raise StoreError(f"{self.units}: cannot read: {error.strerror or error}") from error
        return [
            name.removesuffix(".json")
            for name in names
            if records.is_id(name.removesuffix(".json"))
        ]

    def check(self, id: str) -> str | None:
        """Return the error of a damaged unit, or None; nothing is moved."""
        try:
            self._read_unit(id, prefixes=("",))
        except (Damaged, FileNotFoundError) as error:
            return str(error)
        return None

    def forget_failed(self, ids: Collection[str]) -> None:
        """Remove the failed ones among these units, so that they are not done any more."""
        self._forget(ids, lambda record: record["status"] == "failed")

    def forget_stopped(self, ids: Collection[str]) -> None:
        """Remove those among these units that a callback has stopped."""
        self._forget(ids, lambda record: "stopped_at" in record)

    def _forget(self, ids: Collection[str], applies: Callable[[Table], bool]) -> None:
        for name in ids:
            if (record := self.record(name)) is None or not applies(record):
                continue
            with self._writing(name, wait=True), atomic.store_errors(self._record_file(name)):
                # The record first, as it makes the unit done
                self._record_file(name).unlink(missing_ok=True)
                self._array_file(name).unlink(missing_ok=True)

    def _array_file(self, id: str) -> Path:
        return self.units / f"{id}.npz"

    def _record_file(self, id: str) -> Path:
        return self.units / f"{id}.json"

    def _read_record(self, id: str) -> Table:
        """Read and check the record of a unit, and the size of its array file."""
        record = records.decode(self._read_file(self._record_file(id)))
        schema = record.get("schema")
        if isinstance(schema, int) and schema > records.SCHEMA:
            raise StoreError(
                f"{self._record_file(id)}: written by a newer cfljax (schema {schema}); "
                "upgrade cfljax"
            )
        if record.get("id") != id:
            raise Damaged("the record belongs to another unit")
        try:
            records.check_record(record)
        except ValueError as error:
            raise Damaged(str(error)) from error
        try:
            atomic.check_size(os.lstat(self._array_file(id)), record["arrays"]["bytes"])
        except FileNotFoundError as error:
            raise Damaged(f"{id}.npz is missing") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{id}.npz: {error}") from error
        return record

    def _read_array_file(self, id: str, record: Table) -> bytes:
        """Read the array file of a unit; Damaged if its checksum is not the record's."""
        data = self._read_file(self._array_file(id), record["arrays"]["bytes"])
        if hashlib.sha256(data).hexdigest() != record["arrays"].get("sha256"):
            raise Damaged(f"{id}.npz: its SHA-256 is not that of its record")
        return data

    def _read_unit(self, id: str, prefixes: Collection[str]) -> Unit:
        """Read a unit, or raise a FileNotFoundError or Damaged; nothing is moved."""
        record = self._read_record(id)
        return Unit(record, npz.unpack(self._read_array_file(id, record), prefixes))

    def _set_aside(self, id: str, problem: Exception | None = None) -> None:
        """Move a damaged unit's files to DIR/damaged, with a warning, unless another process is
        between its two renames."""
        if self.read_only:
            if f"{id}{_WRITING_SUFFIX}" in locks.list_owners(self.locks):
                return None
            return self.warn(f"{self.units / id}: damaged, left out: {problem}")
        with self._writing(id, wait=False) as held:
            if not held:
                return None
            # Another process may have written the unit again before the lock was taken
            problem_now = self.check(id)
            if problem_now is None or not self._record_file(id).exists():
                return None
            # The record first, as it makes the unit done: if this process dies after one of the two
            # moves, the unit is computed again
            for path in (self._record_file(id), self._array_file(id)):
                self._move(path)
        return self.warn(
            f"{self.units / id}: damaged ({problem_now}); moved to "
            f"{self.folder / 'damaged'}, will be computed again"
        )

    # --- several processes ------------------------------------------------------------------------

    def claim(self, name: str, wait: bool = False) -> locks.Claim:
        """Claim a name: `with store.claim(name) as claimed: if claimed: …`. The claim is false if
        another process holds the name, or if the unit of that name is on record already. A name is
        the id of a unit or a batch, or "plan" (with `wait=True`)."""
        held = locks.claim(self.locks / f"{records.check_id(name)}.lock", wait)
        if held:
            with contextlib.suppress(FileNotFoundError, Damaged):
                self._read_record(name)
                held.release()
        return held

    def _writing(self, id: str, wait: bool) -> locks.Claim:
        """Hold a lock while a unit's two files are put in place, or moved away."""
        return locks.claim(self.locks / f"{id}{_WRITING_SUFFIX}.lock", wait)

    def claimed(self) -> dict[str, locks.Note]:
        """Map the names of units and batches that are being computed to their owners."""
        return {
            name: owner
            for name, owner in locks.list_owners(self.locks).items()
            if not name.endswith(_WRITING_SUFFIX)
        }

    # --- checkpoints ------------------------------------------------------------------------------

    def save_checkpoint(
        self, id: str, arrays: Mapping[str, np.ndarray], meta: Table | None = None
    ) -> None:
        """Save the state of an unfinished run in one sealed file, replacing the one before."""
        note = np.frombuffer(json.dumps(meta or {}).encode(), np.uint8)
        atomic.write_bytes(
            self._checkpoint_file(id), npz.seal(npz.pack({**arrays, _NOTE_KEY: note}))
        )

    def load_checkpoint(self, id: str) -> tuple[dict[str, np.ndarray], Table] | None:
        """Return (arrays, meta) of the last checkpoint; None if there is none, or, with a warning,
        if it is damaged."""
        path = self._checkpoint_file(id)
        try:
            arrays = npz.unpack(npz.unseal(self._read_file(path)))
            return arrays, json.loads(arrays.pop(_NOTE_KEY).tobytes())
        except FileNotFoundError:
            return None
        except (Damaged, ValueError, KeyError, AttributeError, RecursionError) as error:
            if not self.read_only:
                self._move(path)
            self.warn(f"{path}: damaged checkpoint ({error}); the run starts from its beginning")
            return None

    def has_checkpoint(self, id: str) -> bool:
        """Return whether there is a checkpoint, damaged or not."""
        return self._checkpoint_file(id).exists()

    def set_aside_checkpoint(self, id: str, why: str) -> None:
        """Move a checkpoint out of the way, with a warning that says why it cannot be used."""
        kept = self._move(self._checkpoint_file(id), "set_aside")
        self.warn(
            f"checkpoint {id} cannot be used: {why}; it was moved to {kept}, and its runs "
            "start again from round 0"
        )

    def remove_checkpoint(self, id: str) -> None:
        """Remove the state of a run that is done."""
        with contextlib.suppress(OSError):
            self._checkpoint_file(id).unlink()

    def _checkpoint_file(self, id: str) -> Path:
        return self.checkpoints / f"{records.check_id(id)}.npz"


SEARCH_FILE = "tune.json"
MAX_BYTES = 256 << 20


def read_search(store: Store) -> Table | None:
    """Read the record of the folder's search; None if it has none."""
    file = store.folder / SEARCH_FILE
    try:
        if file.stat().st_size > MAX_BYTES:
            raise StoreError(f"{file}: is larger than a search's record can be; move it away")
        table = decode(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{file}: cannot be read ({' '.join(str(error).split())[:80]}); move it away to "
            "start a new search"
        ) from error
    groups = table.get("groups")
    known = isinstance(groups, list) and all(
        isinstance(each, dict) and isinstance(each.get("settings"), list) for each in groups
    )
    if not known or not isinstance(table.get("rungs"), list):
        raise StoreError(f"{file}: is not a record of a search; move it away to start a new search")
    return table


def write_search(store: Store, table: Table) -> None:
    """Write the record of the folder's search atomically."""
    write_bytes(store.folder / SEARCH_FILE, encode(table))
