"""Write files atomically: a temporary file in the same folder, fsync, `os.replace`, fsync of the
folder."""

from __future__ import annotations

import contextlib
import errno
import functools
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
"""A temporary file of another machine or container that has not changed for this long was left by a
process that is dead."""


class Staged(NamedTuple):
    """A file that is complete on disk under a temporary name; `commit` gives it its real name."""

    path: Path
    temporary: Path

    def commit(self) -> None:
        """Replace the old file, if there is one, in one step."""
        with store_errors(self.path):
            self.temporary.replace(self.path)


def commit_in_order(*files: Staged) -> None:
    """Commit all files, each safely on disk before the next. Once one is in place the others follow
    even if a sync fails: a new file beside an old one that belongs to it would mean losing both."""
    first, *rest = files
    first.commit()
    # A rename is in the memory of the system until its folder is synced. Without that, a power cut
    # could keep the second rename and lose the first.
    try:
        with store_errors(first.path):
            sync_folder(first.path.parent)
    finally:
        if rest:
            commit_in_order(*rest)


@contextlib.contextmanager
def stage(path: Path, data: bytes) -> Iterator[Staged]:
    """Write `data` beside `path`, safely on disk but not yet under its name. What is not committed
    is removed."""
    temporary = (
        path.parent
        / f".{path.name}.{name_pid_space()}.{os.getpid()}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    )
    try:
        with (
            store_errors(path),
            os.fdopen(
                os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb"
            ) as file,
        ):
            file.write(data)
            file.flush()
            # The contents must be on disk before the rename: the name may not point to less
            os.fsync(file.fileno())
        yield Staged(path, temporary)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


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
        raise StoreError(
            f"{path}: cannot write: {reason}; {advice}, then start again: finished work is kept"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot fsync a folder: they order the operations themselves
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def read_bytes(path: Path, expected: int | None = None) -> bytes:
    """Return a regular file's bytes, never through a symbolic link; an OSError, or a ValueError for
    another size."""
    # O_NOFOLLOW and O_NONBLOCK: a link or a named pipe in a foreign folder is an error, not a wait
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    )
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        check_size(info, expected)
        # One byte more than there should be, to notice a file that grows
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


def remove_stale(folder: Path) -> None:
    """Remove the temporary files that dead processes left in the folder."""
    for path in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError):
            _, where, pid, _ = path.name.removesuffix(TEMPORARY_SUFFIX).rsplit(".", 3)
            dead = where == name_pid_space() and not is_alive(int(pid))
            if dead or time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()


def host() -> str:
    """Return this machine's name, without dots."""
    return socket.gethostname().replace(".", "-").replace("/", "-") or "localhost"


@functools.cache
def name_pid_space() -> str:
    """Name where this process's id means this process: the machine, and on Linux the space of ids
    there, because containers may share a host name while each has its own ids."""
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return host()
    return f"{host()}-{space}"


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine with that id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
