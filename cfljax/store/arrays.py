"""Named arrays as the bytes of an npz file, and back, from files that nobody vouches for.

Reading trusts nothing: no pickles, no object arrays, only names that the writer could have written, and every size is
checked against the file before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np

from cfljax.files.npy import Damaged, read_member

MAX_FILE = 8 << 30
"""Bytes of the largest array file that is read."""
MAX_INFLATED = 64 << 20
"""Bytes that all compressed members together may unfold to; the writer compresses nothing beyond it."""
MAX_MEMBERS = 4096
SMALL = 1 << 16
"""Bytes up to which an array of any kind is compressed."""
MAX_DIRECTORY = 1 << 20
KINDS = "biufc"
_NAME = re.compile(r"[A-Za-z0-9_+=~-][A-Za-z0-9_.+=~-]*(/[A-Za-z0-9_+=~-][A-Za-z0-9_.+=~-]*)*")
_END = struct.Struct("<4s4H2LH")
_SEAL = b"sha256:"
_SEAL_LENGTH = len(_SEAL) + 64


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file, the same bytes for the same arrays. Integers (labels, mostly repeats) are compressed, and what is small
    (histories shrink to half); models are not."""
    converted = {_checked_name(name): _plain_array(name, array) for name, array in arrays.items()}
    if len(converted) > MAX_MEMBERS:
        raise ValueError(f"{len(converted)} arrays in one unit: the limit is {MAX_MEMBERS}")
    squeeze = sum(a.nbytes + 256 for a in converted.values() if _shrinks(a)) <= MAX_INFLATED
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", allowZip64=True) as archive:
        for name, array in converted.items():
            info = zipfile.ZipInfo(name + ".npy")  # its fixed date keeps the bytes the same
            info.compress_type = zipfile.ZIP_DEFLATED if squeeze and _shrinks(array) else zipfile.ZIP_STORED
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    return out.getvalue()


def _shrinks(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or array.nbytes <= SMALL


def unpack(data: bytes | memoryview, prefixes: Iterable[str] = ("",)) -> dict[str, np.ndarray]:
    """The arrays whose names start with one of the prefixes; Damaged for anything a writer of ours would not have written."""
    prefixes = tuple(prefixes)
    try:
        _check_end(memoryview(data))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check_directory(members, len(data))
            wanted = [m for m in members if m.filename.startswith(prefixes)]
            return {m.filename.removesuffix(".npy"): read_member(archive, m, KINDS, m.filename) for m in wanted}
    except Damaged:
        raise
    except Exception as error:  # whatever a broken or hostile file provokes in the parsers
        reason = " ".join(str(error).split())[:80]
        raise Damaged(f"not a readable npz file ({type(error).__name__}: {reason})") from error


def seal(packed: bytes) -> bytes:
    """The same npz file with the SHA-256 of its other bytes as its comment, so that one file vouches for itself."""
    data = bytearray(packed)
    struct.pack_into("<H", data, len(data) - 2, _SEAL_LENGTH)
    return bytes(data) + _SEAL + hashlib.sha256(data).hexdigest().encode()


def check_seal(data: bytes) -> None:
    """Damaged unless the file is exactly what `seal` returned."""
    body, comment = memoryview(data)[:-_SEAL_LENGTH], bytes(data[-_SEAL_LENGTH:])
    if comment != _SEAL + hashlib.sha256(body).hexdigest().encode():
        raise Damaged("its SHA-256 does not match")


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or len(name) > 200 or not _NAME.fullmatch(name):
        raise ValueError(f"array name {name!r}: letters, digits and _ . + = ~ -, in parts divided by a slash")
    return name


def _plain_array(name: str, array: object) -> np.ndarray:
    converted = np.asarray(array)
    if converted.dtype.kind not in KINDS or converted.dtype.hasobject:
        raise TypeError(f"array {name}: dtype {converted.dtype} is not kept; use numbers or booleans")
    return np.ascontiguousarray(converted).reshape(converted.shape)


def _check_end(data: memoryview) -> None:
    """The end record must be the last thing in the file, and the directory small: else parsing alone could take minutes."""
    for length in (0, _SEAL_LENGTH):
        start = len(data) - length - _END.size
        if start < 0:
            break
        signature, *_, directory, _, comment = _END.unpack(data[start : start + _END.size])
        if signature == b"PK\x05\x06" and comment == length:
            big = start >= 20 and bytes(data[start - 20 : start - 16]) == b"PK\x06\x07"
            if directory > MAX_DIRECTORY or (big and len(data) < zipfile.ZIP64_LIMIT):
                raise Damaged("its directory is too large")
            return
    raise Damaged("it does not end as an npz file does")


def _check_directory(members: list[zipfile.ZipInfo], total: int) -> None:
    if len(members) > MAX_MEMBERS:
        raise Damaged(f"{len(members)} arrays, more than the limit of {MAX_MEMBERS}")
    if len({m.filename for m in members}) < len(members):
        raise Damaged("two arrays have one name")
    for member in members:
        _check_member(member)
    if sum(member.compress_size for member in members) > total:
        raise Damaged("its arrays claim more bytes than the file has")
    inflated = sum(member.file_size for member in members if member.compress_type != zipfile.ZIP_STORED)
    if inflated > MAX_INFLATED:
        raise Damaged(f"it would unfold to {inflated} bytes, more than the limit of {MAX_INFLATED}")


def _check_member(member: zipfile.ZipInfo) -> None:
    name = member.filename
    if not name.endswith(".npy") or len(name) > 204 or not _NAME.fullmatch(name.removesuffix(".npy")):
        raise Damaged(f"array name {name[:60]!r} is not allowed")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG) or member.flag_bits & 0x1:
        raise Damaged(f"{name} is a link, a folder or encrypted")
    if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
        raise Damaged(f"{name} has two different sizes")
