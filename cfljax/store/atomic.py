"""Write files atomically: a temporary file in the same folder, fsync, `os.replace`, fsync of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cfljax.errors import StoreError

TEMPORARY_SUFFIX = ".cfljax-tmp"
STALE_SECONDS = 24 * 3600.0
"""A temporary file of another host is stale after this long; one of this host if no process has it locked."""
_mine: set[str] = set()


class Staged(NamedTuple):
    """A file that is complete on disk under a temporary name; `commit` gives it its real name."""

    path: Path
    temporary: Path

    def commit(self) -> None:
        """Replace the old file, if there is one, in one step."""
        with store_errors(self.path):
            self.temporary.replace(self.path)


def commit_in_order(*files: Staged) -> None:
    """Commit all files, each safely on disk before the next. Once one is in place the others follow even if a sync fails: a new
    file beside an old one that belongs to it would mean losing both."""
    first, *rest = files
    first.commit()
    try:
        with store_errors(first.path):
            sync_folder(first.path.parent)
    finally:
        if rest:
            commit_in_order(*rest)


@contextlib.contextmanager
def stage(path: Path, data: bytes) -> Iterator[Staged]:
    """Write `data` beside `path`, safely on disk but not yet under its name. What is not committed is removed."""
    temporary = path.parent / f".{path.name}.{host()}.{os.getpid()}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    _mine.add(temporary.name)
    descriptor = None
    try:
        with store_errors(path):
            descriptor = _create(temporary)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        yield Staged(path, temporary)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if descriptor is not None:
            os.close(descriptor)
        _mine.discard(temporary.name)


def _create(temporary: Path) -> int:
    """Create a file, locked as long as it is open, so that all processes see that its owner lives, in whatever container."""
    while True:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        locked = _lock(descriptor)
        if locked is False or (locked and os.fstat(descriptor).st_nlink):
            return descriptor
        os.close(descriptor)  # another process took it for a dead one's before it was locked
        temporary.unlink(missing_ok=True)


def _lock(descriptor: int) -> bool | None:
    """Lock the file. True: it is locked now; None: another process has locked it; False: the system has no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except (ImportError, OSError):
        return False
    return True


def write_bytes(path: Path, data: bytes) -> None:
    """Write one file atomically."""
    with stage(path, data) as file:
        commit_in_order(file)


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system into one line that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "free some space" if full else "make the folder writable or choose another"
        reason = error.strerror or str(error)
        raise StoreError(f"{path}: cannot write: {reason}; {advice}, then start again: finished work is kept") from error


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no fsync of a folder
            raise
    finally:
        os.close(descriptor)


def read_bytes(path: Path, expected: int | None = None) -> bytes:
    """Return the bytes of a regular file, never through a symbolic link. Raise an OSError, or a ValueError if it has another size
    than expected."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        check_size(info, expected)
        data = file.read(info.st_size + 1)
    if len(data) != info.st_size:
        raise ValueError("it changed while it was read")
    return data


def check_size(info: os.stat_result, expected: int | None = None) -> None:
    """Raise a ValueError unless this is a regular file of the expected size."""
    if not stat.S_ISREG(info.st_mode):
        raise ValueError("not a regular file")
    if expected is not None and info.st_size != expected:
        raise ValueError(f"{info.st_size} bytes instead of {expected}")


def remove_stale(folder: Path) -> list[Path]:
    """Remove the temporary files that dead processes left in the folder."""
    removed = []
    for path in filter(_is_stale, folder.glob(f".*{TEMPORARY_SUFFIX}")):
        with contextlib.suppress(OSError):
            path.unlink()
            removed.append(path)
    return removed


def _is_stale(path: Path) -> bool:
    """Return whether the process that wrote the file, and would hold its lock, is dead. Process ids do not tell: each container
    counts from 1."""
    if path.name in _mine:
        return False
    parts = path.name.removesuffix(TEMPORARY_SUFFIX).rsplit(".", 3)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            locked = _lock(descriptor) if len(parts) == 4 and parts[1] == host() else False  # locks may hold on one machine only
            return time.time() - os.fstat(descriptor).st_mtime > STALE_SECONDS if locked is False else locked is True
        finally:
            os.close(descriptor)
    return False


def host() -> str:
    """Return this machine's name, without dots."""
    return socket.gethostname().replace(".", "-").replace("/", "-") or "localhost"


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine with that id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
