"""Downloading one file: with a progress bar, from where an earlier try was interrupted. The file appears when it is complete."""

from __future__ import annotations

import contextlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from cfljax.errors import DataError

_PATIENCE = 30.0
"""Seconds to wait for the server."""


def fetch(url: str, file: Path, check: Callable[[Path], None]) -> None:
    """Download the file, which gets its name once `check` has found nothing wrong with it. Until then it is FILE.part."""
    part = file.with_name(f"{file.name}.part")
    locked = False
    try:
        with part.open("ab") as f:
            _alone(f, part)
            locked = True
            with contextlib.suppress(_AlreadyWhole):
                _append(url, f, file.name)
            f.flush()
            os.fsync(f.fileno())
    finally:
        if locked and not part.stat().st_size:
            part.unlink()  # nothing has arrived
    try:
        check(part)
    except DataError:
        part.unlink(missing_ok=True)  # a wrong file is not completed
        raise
    part.replace(file)


class _AlreadyWhole(Exception):
    """The server has no bytes beyond those that have arrived."""


def _append(url: str, f: IO[bytes], name: str) -> None:
    from tqdm import tqdm

    have = f.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:
            raise _AlreadyWhole from None
        raise
    with answer:
        if have and answer.status != 206:  # a server that knows no ranges sends all of it
            f.truncate(0)
            have = 0
        size = int(answer.headers.get("Content-Length") or 0)
        with tqdm(total=have + size or None, initial=have, unit="B", unit_scale=True, desc=name, disable=None) as bar:
            while piece := answer.read(1 << 20):
                f.write(piece)
                bar.update(len(piece))
                size -= len(piece)
    if size > 0:
        raise urllib.error.URLError(f"the connection ended {size} bytes early; start again to go on")


def _alone(f: IO[bytes], part: Path) -> None:
    """A DataError if another process is downloading the same file. Without file locks (Windows) that is not checked."""
    try:
        import fcntl

        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return
    except OSError as error:
        raise DataError(f"{part}: another process is downloading it; wait for that one") from error
