"""The arrays of an npz file. Only numbers are read: nothing is ever unpickled."""

from __future__ import annotations

import zipfile

import numpy as np


def read_member(archive: zipfile.ZipFile, name: str, kinds: str) -> np.ndarray:
    """Return one array of an npz file. Raise a ValueError, or what numpy and zipfile raise, if it
    is damaged or its dtype is not of these kinds of numbers."""
    with archive.open(f"{name}.npy") as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # reading to the end also makes zipfile compare its checksum
            raise ValueError("it holds more than its header says")
    if array.dtype.kind not in kinds:
        raise ValueError(f"an array of {str(array.dtype)[:40]}; only plain numbers are read")
    return array
