"""From a member of an npz file, which may be damaged or hostile, to an array: no pickles, no objects, and the size that a header
claims is compared with the size of the member before memory is taken."""

from __future__ import annotations

import functools
import io
import math
import zipfile
from typing import IO

import numpy as np

MAX_HEADER = 1024
_START = b"\x93NUMPY\x01\x00"
_PIECE = 1 << 22


class Damaged(ValueError):
    """A file is damaged: it does not hold what was written."""


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, kinds: str, where: str) -> np.ndarray:
    """One array of an npz file; Damaged if it is not of one of these `kinds` of numbers. `where` names it in errors. At most
    `member.file_size` bytes are decompressed: the caller checks that the file can hold as many."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Damaged(f"{where} is compressed in a way that numpy does not write; save it again with numpy.savez")
    try:
        with archive.open(member) as file:
            return _read(file, member.file_size, kinds, where)
    except Damaged:
        raise
    except Exception as error:  # the parsers raise a dozen kinds: ValueError, TokenError, struct.error, KeyError …
        reason = " ".join(str(error).split())[:80] or type(error).__name__
        raise Damaged(f"{where} cannot be read ({reason})") from error


def _read(file: IO[bytes], size: int, kinds: str, where: str) -> np.ndarray:
    head = file.read(min(size, _PIECE))  # most members are not larger
    start = 10 + int.from_bytes(head[8:10], "little")
    if len(head) < start or head[:8] != _START or start > MAX_HEADER:
        raise Damaged(f"{where} is not an array of npy version 1; save it again with numpy.savez")
    shape, fortran, dtype = _header(head[:start])
    if dtype.hasobject or dtype.kind not in kinds or dtype.shape:
        raise Damaged(f"{where} is an array of {str(dtype)[:40]}; only plain numbers are read")
    count, held = math.prod(shape), size - start
    if any(n < 0 for n in shape) or count * dtype.itemsize != held:
        raise Damaged(f"{where} claims shape {list(shape)} of {dtype}, but the file holds {held} bytes")
    flat = np.empty(count, dtype)
    view, done, piece = memoryview(flat.view(np.uint8)), 0, head[start:]
    while done < held:
        if not piece:
            raise Damaged(f"{where} ends early: copy the file again")
        view[done : done + len(piece)] = piece
        done += len(piece)
        piece = file.read(min(_PIECE, held - done))  # the last read, of 0 bytes, lets zipfile compare the checksum
    return flat.reshape(shape, order="F" if fortran else "C")


@functools.lru_cache(maxsize=256)  # thousands of units share a few headers, and numpy parses each with `ast`
def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    return np.lib.format.read_array_header_1_0(file, max_header_size=MAX_HEADER)
