"""One file from the network: with progress, going on where an earlier try was interrupted, and whole or not at all."""

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


def fetch(url: str, file: Path, check: Callable[[Path], None]) -> None:
    """The file under its name, once `check` has found nothing wrong with it; what has arrived of it stays as FILE.part."""
    part = file.with_name(f"{file.name}.part")
    mine = False
    try:
        with part.open("ab") as f:
            _alone(f, part)
            mine = True
            with contextlib.suppress(_AlreadyWhole):
                _append(url, f, file.name)
            f.flush()
            os.fsync(f.fileno())
    finally:
        if mine and not part.stat().st_size:
            part.unlink()  # nothing has arrived
    try:
        check(part)
    except DataError:
        part.unlink(missing_ok=True)  # no use going on with it
        raise
    part.replace(file)


class _AlreadyWhole(Exception):
    """There is nothing after what has arrived."""


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
    """A DataError where another process is downloading the same file; where there are no locks, trust."""
    try:
        import fcntl

        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return
    except OSError as error:
        raise DataError(f"{part}: another process is downloading it; wait for that one") from error
