"""Named arrays as the bytes of an npz file, and back."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np

from cfljax.errors import StoreError
from cfljax.files.npy import read_member

# Bytes up to which an array of any kind is compressed
MAX_SMALL_BYTES = 1 << 16
ARRAY_KINDS = "biufc"


class Damaged(ValueError):
    """A file is damaged: it does not hold what was written."""


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return an npz file, the same bytes for the same arrays. Integers (mostly repeats) and what is
    small are compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, each in arrays.items():
            array = np.asarray(each)
            if array.dtype.kind not in ARRAY_KINDS:
                raise TypeError(
                    f"array {name}: dtype {array.dtype} is not kept; use numbers or booleans"
                )
            # A ZipInfo has a fixed date, so that the same arrays give the same bytes
            info = zipfile.ZipInfo(f"{name}.npy")
            # Floats hardly shrink, and take long to compress
            if array.dtype.kind in "biu" or array.nbytes <= MAX_SMALL_BYTES:
                info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(
                    member, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False
                )
    return out.getvalue()


def unpack(data: bytes, prefixes: Iterable[str] = ("",)) -> dict[str, np.ndarray]:
    """Return the arrays whose names start with one of the prefixes. Raise Damaged if the file is no
    npz file of plain numbers."""
    prefixes = tuple(prefixes)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [
                name.removesuffix(".npy")
                for name in archive.namelist()
                if name.startswith(prefixes)
            ]
            return {name: read_member(archive, name, ARRAY_KINDS) for name in names}
    except MemoryError as error:
        raise StoreError("the arrays of a file do not fit into memory") from error
    # A broken or hostile file may provoke any error in the parsers
    except Exception as error:
        reason = " ".join(str(error).split())[:80]
        raise Damaged(f"not a readable npz file ({type(error).__name__}: {reason})") from error


def seal(packed: bytes) -> bytes:
    """Return the file followed by its SHA-256, so that the file can be verified alone."""
    return packed + hashlib.sha256(packed).digest()


def unseal(data: bytes) -> bytes:
    """Return the sealed content. Raise Damaged unless the file is exactly what `seal` returned."""
    packed = data[:-32]
    if data[-32:] != hashlib.sha256(packed).digest():
        raise Damaged("its SHA-256 does not match")
    return packed
