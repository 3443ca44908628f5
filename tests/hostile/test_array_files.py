"""Array files whose sums are right and whose content is not: every refusal in under a second and in little memory."""

import io
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pytest

from cfljax.store import arrays as npz
from tests.hostile.bounds import refused

ran = []


class Bomb:
    def __reduce__(self):
        return ran.append, ("code ran",)


def npy(header, body=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two of one name
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


def link():
    info = zipfile.ZipInfo("x.npy")
    info.external_attr = 0o120777 << 16
    return archive([(info, ONE)])


def lying_directory():
    """The directory says 8 bytes, the compressed stream holds 100 MB."""
    data = bytearray(archive([("x.npy", npy(FLOATS % "(1,)") + bytes(100 << 20))], zipfile.ZIP_DEFLATED))
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 74)
    return bytes(data)


def overlapping():
    """260 directory entries that all point to the same megabyte."""
    body = plain(np.zeros(1 << 17))
    data = archive([("x0.npy", body)])
    at = data.rindex(b"PK\x01\x02")
    entry = data[at : data.rindex(b"PK\x05\x06")]
    entries = b"".join(entry.replace(b"x0.npy", f"{chr(97 + i % 26)}{i // 26 % 10}.npy".encode()) for i in range(260))
    return data[:at] + entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 260, 260, len(entries), at, 0)


def vast_directory_of_64_bits():
    """A small file whose second, larger end record says that its directory has a terabyte."""
    data = archive([("x.npy", ONE)])
    end = len(data) - 22
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, 1 << 40, 0)
    return data[:end] + record + struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1) + data[end:]


FLOATS = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"
ONE = npy(FLOATS % "(1,)", bytes(8))
FOUR_MEGABYTES = npy(FLOATS % f"({1 << 19},)") + bytes(1 << 22)
HOSTILE = {
    "object array": object_array,
    "pickle": lambda: archive([("x.npy", pickle.dumps(Bomb()))]),
    "bare pickle": lambda: pickle.dumps(Bomb()),
    "zip bomb": lambda: archive([("x.npy", npy(FLOATS % f"({1 << 24},)") + bytes(1 << 27))], zipfile.ZIP_DEFLATED),
    "many small bombs": lambda: archive([(f"x{i}.npy", FOUR_MEGABYTES) for i in range(20)], zipfile.ZIP_DEFLATED),
    "other compression": lambda: archive([("x.npy", ONE)], zipfile.ZIP_BZIP2),
    "parent name": lambda: archive([("../x.npy", ONE)]),
    "absolute name": lambda: archive([("/x.npy", ONE)]),
    "no npy": lambda: archive([("x.py", ONE)]),
    "two of one name": lambda: archive([("x.npy", ONE), ("x.npy", ONE)]),
    "symbolic link": link,
    "huge shape": lambda: archive([("x.npy", npy(FLOATS % f"({10**15},)", bytes(8)))]),
    "overflowing shape": lambda: archive([("x.npy", npy(FLOATS % f"({1 << 32}, {1 << 32})", bytes(8)))]),
    "more than the header says": lambda: archive([("x.npy", ONE + bytes(8))]),
    "negative shape": lambda: archive([("x.npy", npy(FLOATS % "(-1, -1)", bytes(8)))]),
    "empty but vast": lambda: archive([("x.npy", npy(FLOATS % f"(0, {1 << 61}, {1 << 61})"))]),
    "code in header": lambda: archive([("x.npy", npy(FLOATS % "(__import__('os').getpid(),)", bytes(8)))]),
    "deep header": lambda: archive([("x.npy", npy("(" * 900))]),
    "long header": lambda: archive([("x.npy", npy(FLOATS % "(1,)" + " " * 60_000, bytes(8)))]),
    "structured": lambda: archive([("x.npy", npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", bytes(8)))]),
    "text": lambda: archive([("x.npy", plain(np.array(["text"])))]),
    "lying directory": lying_directory,
    "overlapping": overlapping,
    "too many members": lambda: archive([(f"x{i}.npy", ONE) for i in range(5000)]),
    "vast directory": lambda: archive([(f"{'x' * 150}{i}.npy", b"") for i in range(8000)]),
    "vast directory of 64 bits": vast_directory_of_64_bits,
    "garbage behind": lambda: archive([("x.npy", ONE)]) + b"PK",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_array_file_is_refused_quickly_in_little_memory(kind):
    data = HOSTILE[kind]()
    refused(lambda: npz.unpack(data), npz.Damaged, memory=4 * len(data) + (8 << 20), seconds=1)
    assert ran == []


@pytest.mark.parametrize("kind", ["vast directory", "vast directory of 64 bits"])
def test_a_vast_directory_is_refused_before_it_is_parsed(kind):
    with pytest.raises(npz.Damaged, match="its directory is too large"):
        npz.unpack(HOSTILE[kind]())


def test_what_the_hostile_kinds_vary_is_accepted_when_it_is_honest():
    assert npz.unpack(archive([("x.npy", ONE), ("y/z.npy", ONE)]))["y/z"].tolist() == [0.0]
    file = zipfile.ZipInfo("x.npy")
    file.external_attr = 0o100644 << 16  # as other programs say that it is a plain file
    assert npz.unpack(archive([(file, ONE)]))["x"].tolist() == [0.0]


def test_an_array_may_have_a_name_of_200_letters():
    longest = {"n" * 200: np.arange(3)}
    assert npz.unpack(npz.pack(longest))["n" * 200].tolist() == [0, 1, 2]
