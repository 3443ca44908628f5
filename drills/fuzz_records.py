"""A coverage-guided fuzz of what reads files: records, array files, checkpoints and the data
formats.

    pip install atheris
    python -m drills.fuzz_records CORPUS -max_total_time=600

Whatever the bytes, a reader returns arrays or raises its one error in one line.
"""

import hashlib
import io
import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["cfljax.store", "cfljax.data", "zipfile", "json", "numpy.lib"]
):
    import numpy as np

    from cfljax.data import cifar, idx, leaf, npz
    from cfljax.errors import DataError, StoreError
    from cfljax.store import arrays, records
from drills import common
from tests.store.helpers import make_arrays, make_record

FOLDER = Path(tempfile.mkdtemp(prefix="cfljax-fuzz-"))
FILE = FOLDER / "file"
(FOLDER / "leaf" / "train").mkdir(parents=True)
(FOLDER / "leaf" / "test").mkdir()
(FOLDER / "leaf" / "test" / "a.json").write_text('{"users": [], "user_data": {}}')
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def record(data: bytes) -> None:
    """Sealed, so that the bytes get past the sum."""
    body = data.removesuffix(b"\n}")
    records.check_record(
        records.decode(body + (records._TAIL % hashlib.sha256(body).hexdigest()).encode())
    )


def checkpoint(data: bytes) -> None:
    """As it lies on the disk, and sealed."""
    arrays.unpack(arrays.unseal(data))


def member(data: bytes) -> None:
    """The bytes as a member of an honest archive."""
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", data)
    arrays.unpack(out.getvalue())


def of_file(read, path=FILE, place=FILE):
    """A reader of the bytes in a file."""

    def act(data: bytes) -> None:
        path.write_bytes(data)
        read(place)

    return act


class Form:
    """Options as FileOptions has them, without its imports."""

    classes = None
    checksums = True


JSON_FILE = FOLDER / "leaf" / "train" / "a.json"
TARGETS = [
    (records.decode, arrays.Damaged),
    (record, (arrays.Damaged, ValueError)),
    (arrays.unpack, (arrays.Damaged, StoreError)),
    (member, (arrays.Damaged, StoreError)),
    (checkpoint, (arrays.Damaged, StoreError)),
    (of_file(lambda f: npz.load_arrays(f, ARRAYS)), DataError),
    (of_file(lambda f: npz.read("fuzz", f)), DataError),
    (of_file(idx.read_idx), DataError),
    (
        of_file(lambda folder: leaf.read("fuzz", folder, Form()), JSON_FILE, FOLDER / "leaf"),
        DataError,
    ),
    (lambda data: cifar._records(data, cifar.ARCHIVES[0], "fuzz"), DataError),
]


def one(data: bytes) -> None:
    """The first byte chooses the reader."""
    act, allowed = TARGETS[data[0] % len(TARGETS)] if data else TARGETS[0]
    try:
        act(data[1:])
    except allowed as error:
        assert "\n" not in str(error) and len(str(error)) < 2000, repr(error)


def seeds(folder: Path) -> None:
    """Good files, to start from."""
    folder.mkdir(parents=True, exist_ok=True)
    sealed = records.encode({"schema": 1, "id": "u"} | make_record())
    packed = arrays.pack({k: v[:2] for k, v in make_arrays().items()})
    out, one_array = io.BytesIO(), io.BytesIO()
    x, y = np.zeros((2, 2, 2), np.uint8), np.zeros(2, np.uint8)
    np.savez(out, x_train=x, y_train=y, x_test=x, y_test=y)
    np.save(one_array, x)
    people = {"users": ["a"], "user_data": {"a": {"x": [[0.5, 1.0]], "y": [1]}}}
    whole = [
        sealed,
        sealed[:-90],
        packed,
        one_array.getvalue(),
        arrays.seal(packed),
        out.getvalue(),
        out.getvalue(),
    ]
    whole += [
        b"\0\0\x08\x01" + bytes([0, 0, 0, 2, 7, 7]),
        b"a 1 2 3\nthe 0 0 1\n",
        json.dumps(people).encode(),
        bytes(3073),
    ]
    for number, content in enumerate(whole):
        (folder / f"good{number}").write_bytes(bytes([number]) + content)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        seeds(Path(sys.argv[1]))
    atheris.Setup([*sys.argv, "-max_len=8000", "-timeout=120", common.memory_limit(2000)], one)
    atheris.Fuzz()
