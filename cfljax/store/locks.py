"""Locks that tell processes sharing a folder which of them works on which batch.

A claim is an `flock` on `locks/<name>.lock`, which the kernel drops the moment its owner dies: no
heartbeat, no guess. Linux passes it on to an NFS server, so it holds between machines, too."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import TypedDict

from cfljax.errors import StoreError
from cfljax.store.atomic import host, is_alive, name_pid_space, store_errors

try:
    import fcntl
# A system that is not POSIX has no such module
except ImportError:
    fcntl = None  # type: ignore[assignment]


# How often a lock is tried that its last owner has removed between open and lock
MAX_ATTEMPTS = 1000


class Note(TypedDict):
    """The owner of a lock."""

    pid: int
    host: str
    # Where the pid means this process; notes of earlier versions have none
    place: str
    # Local time, ISO 8601
    since: str


class Claim:
    """True while this process owns the name; released by `release`, at the end of a `with`, or by
    the kernel."""

    def __init__(self, path: Path | None = None, descriptor: int | None = None):
        self._path = path
        self._descriptor = descriptor

    def __bool__(self) -> bool:
        return self._descriptor is not None

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock. The file is removed first, so that whoever locks it afterwards sees
        that it is gone."""
        if self._descriptor is None or self._path is None:
            return
        # In one step, so that a signal handler that releases, too, finds nothing left to close
        descriptor, self._descriptor = self._descriptor, None
        with contextlib.suppress(OSError):
            if _is_current(self._path, descriptor):
                self._path.unlink()
        os.close(descriptor)


def claim(path: Path, wait: bool = False) -> Claim:
    """Take the lock of that file; the Claim is false if another process (or another claim of this
    one) has it."""
    if fcntl is None:
        raise StoreError(
            f"{path.parent}: this system has no file locks (flock); run on Linux, macOS or WSL"
        )
    for again in reversed(range(MAX_ATTEMPTS)):
        with store_errors(path):
            try:
                claimed = _try_lock(path, wait)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE) or not (
                    again and path.parent.is_dir()
                ):
                    raise
                # On a network file system another machine may remove the file during this call
                time.sleep(0.01)
            else:
                if claimed is not None:
                    return claimed
    raise StoreError(f"{path}: other processes hold this lock; start again")


def _try_lock(path: Path, wait: bool) -> Claim | None:
    """Lock the file. Return a false Claim if another process holds it, and None if the file was
    removed before it was locked: then another process may lock a new file of this name."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    held = False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return Claim()
        held = _is_current(path, descriptor)
        if not held:
            return None
        _write_note(descriptor)
        return Claim(path, descriptor)
    finally:
        if not held:
            os.close(descriptor)


def _is_current(path: Path, descriptor: int) -> bool:
    """Return whether the locked file is the one of that name: its last owner may have removed it
    between open and lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):
            return False
        raise


def _write_note(descriptor: int) -> None:
    """Write into the lock file who holds it, for people and for `status`; the lock itself does not
    depend on it."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S")
    note: Note = {"pid": os.getpid(), "host": host(), "place": name_pid_space(), "since": since}
    # The note is only for people: a full disk does not stop a claim
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)


def list_owners(folder: Path) -> dict[str, Note]:
    """Map names to the owners of their locks, by the lock files' notes, without dead processes
    here. Claims are not disturbed."""
    held = {}
    for path in sorted(folder.glob("*.lock")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            note = json.loads(path.read_bytes()[:4096])
            here = note.get("place", note["host"]) in (name_pid_space(), host())
            if not here or is_alive(int(note["pid"])):
                held[path.name.removesuffix(".lock")] = note
    return held
