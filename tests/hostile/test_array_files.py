"""Array files whose sums are right and whose content is not: one error, and no code runs."""

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from cfljax.errors import StoreError
from cfljax.store import arrays as npz

ran = []


class Bomb:
    def __reduce__(self):
        return ran.append, ("code ran",)


def npy(header, body=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def archive(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in members:
            file.writestr(name, data)
    return out.getvalue()


def plain(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def object_array():
    out = io.BytesIO()
    np.lib.format.write_array(out, np.array([Bomb()], object), allow_pickle=True)
    return archive([("x.npy", out.getvalue())])


FLOATS = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"
ONE = npy(FLOATS % "(1,)", bytes(8))
HOSTILE = {
    "object array": object_array,
    "pickle": lambda: archive([("x.npy", pickle.dumps(Bomb()))]),
    "bare pickle": lambda: pickle.dumps(Bomb()),
    "no npy": lambda: archive([("x.py", ONE)]),
    "huge shape": lambda: archive([("x.npy", npy(FLOATS % f"({10**12},)", bytes(8)))]),
    "overflowing shape": lambda: archive(
        [("x.npy", npy(FLOATS % f"({1 << 32}, {1 << 32})", bytes(8)))]
    ),
    "more than the header says": lambda: archive([("x.npy", ONE + bytes(8))]),
    "negative shape": lambda: archive([("x.npy", npy(FLOATS % "(-1, -1)", bytes(8)))]),
    "code in header": lambda: archive(
        [("x.npy", npy(FLOATS % "(__import__('os').getpid(),)", bytes(8)))]
    ),
    "deep header": lambda: archive([("x.npy", npy("(" * 900))]),
    "long header": lambda: archive([("x.npy", npy(FLOATS % "(1,)" + " " * 60_000, bytes(8)))]),
    "structured": lambda: archive(
        [
            (
                "x.npy",
                npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", bytes(8)),
            )
        ]
    ),
    "text": lambda: archive([("x.npy", plain(np.array(["text"])))]),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_array_file_is_refused_in_one_line(kind):
    with pytest.raises((npz.Damaged, StoreError)) as caught:
        npz.unpack(HOSTILE[kind]())
    assert "\n" not in str(caught.value) and ran == []


def test_a_name_that_leaves_its_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        npz.unpack(archive([("../x.npy", ONE)])).keys() == {"../x"}
        and list(tmp_path.parent.glob("x*")) == []
    )
