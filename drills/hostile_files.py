"""Figure 6: files that mean harm, in a results folder and in the data folder, under a limit on memory that the system enforces."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "hostile_files",
    "6",
    "hostile files: object arrays, pickles, zip bombs, ../ names, symlinks, headers that lie about sizes",
    "no code runs, under a second, bounded memory, one-line error",
    1,
)
SECONDS = 1.0
MEMORY = 512 << 20
"""Bytes that a reader may take beyond what the process has when it starts."""


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def _npz(folder: Path, **members: bytes) -> None:
    plain = io.BytesIO()
    np.save(plain, np.zeros(2, np.uint8))
    with zipfile.ZipFile(folder / "toy.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", members.get(name, plain.getvalue()))


def _object_array(folder: Path) -> None:
    np.savez(folder / "toy.npz", x_train=np.array([Canary(folder / "ran")], object), y_train=[0], x_test=[0], y_test=[0])


def _bomb(folder: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (1 << 30,)})
    with zipfile.ZipFile(folder / "toy.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x_train.npy", "w") as file:
        file.write(head.getvalue())
        for _ in range(1024):
            file.write(bytes(1 << 20))


def _lie(shape: tuple[int, ...]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
        _npz(folder, x_train=head.getvalue() + bytes(64))

    return make


def _idx(content: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "toy").mkdir()
        for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
            with gzip.open(folder / "toy" / f"{name}-ubyte.gz", "wb") as file:
                file.write(content)

    return make


def _tar(*members: tuple[tarfile.TarInfo, int]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        with gzip.open(folder / "cifar-10-binary.tar.gz", "wb", 1) as file:
            for info, size in members:
                file.write(info.tobuf(tarfile.GNU_FORMAT))
                for _ in range(size >> 20):
                    file.write(bytes(1 << 20))
            file.write(bytes(1024))

    return make


def _member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


def _leaf(text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "toy" / "train").mkdir(parents=True)
        (folder / "toy" / "train" / "a.json").write_text(text)

    return make


def _link(folder: Path) -> None:
    (folder / "toy.npz").symlink_to("/dev/zero")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "toy.npz")


DATA: dict[str, Callable[[Path], None]] = {
    "npz: object array": _object_array,
    "npz: a pickle as a member": lambda folder: _npz(folder, x_train=pickle.dumps(Canary(folder / "ran"))),
    "npz: a bare pickle": lambda folder: (folder / "toy.npz").write_bytes(pickle.dumps(Canary(folder / "ran"))) and None,
    "npz: a gigabyte of zeros": _bomb,
    "npz: a shape of 4 EB": _lie((1 << 60,)),
    "npz: a negative shape": _lie((-4, -4)),
    "npz: a shape that overflows": _lie((1 << 32, 1 << 32)),
    "npz: code as the header": lambda folder: _npz(
        folder, x_train=b"\x93NUMPY\x01\x00" + struct.pack("<H", 60) + f"__import__('os').mkdir('{folder}/ran')".encode().ljust(60)
    ),
    "a link to /dev/zero": _link,
    "a pipe": _pipe,
    "IDX: 2 GB claimed": _idx(b"\0\0\x08\x03" + struct.pack(">3i", 2**31 - 1, 1, 1)),
    "IDX: 8 EB claimed": _idx(b"\0\0\x08\x03" + struct.pack(">3i", 2**31 - 1, 2**31 - 1, 2)),
    "IDX: negative": _idx(b"\0\0\x08\x03" + struct.pack(">3i", -1, -28, 28)),
    "CIFAR: a tar of 1 TB": _tar((_member("data_batch_1.bin", size=10**12), 0)),
    "CIFAR: a name of 1 GB": _tar((_member("././@LongLink", tarfile.GNUTYPE_LONGNAME, 1 << 30), 1 << 30)),
    "CIFAR: a link out of the tar": _tar((_member("data_batch_1.bin", tarfile.SYMTYPE, link="/etc/passwd"), 0)),
    "CIFAR: ../ in a name": _tar((_member("../../data_batch_1.bin"), 0)),
    "LEAF: 100,000 brackets": _leaf("[" * 100_000),
    "LEAF: a pickle": _leaf(pickle.dumps(Canary(Path("ran")), 0).decode()),
    "LEAF: an integer of 1,000 digits": _leaf('{"users": ["a"], "user_data": {"a": {"x": [[' + "9" * 1000 + ']], "y": [0]}}}'),
    "LEAF: a number that is infinite": _leaf('{"users": ["a"], "user_data": {"a": {"x": [[1e999]], "y": [0]}}}'),
    "LEAF: samples 80 deep": _leaf('{"users": ["a"], "user_data": {"a": {"x": [' + "[" * 80 + "]" * 80 + '], "y": [0]}}}'),
}


def drill(tally: Tally, count: int, seed: int) -> None:  # noqa: ARG001 (nothing is random here)
    """Every kind, in a process of its own that the system keeps to its memory."""
    from cfljax import data, store  # noqa: F401 (before the forks)
    from tests.hostile.test_array_files import HOSTILE

    for _ in tally.trials(count):
        for kind in DATA:
            with tempfile.TemporaryDirectory(prefix="cfljax-drill-") as name:
                folder = Path(name)
                DATA[kind](folder)
                _judge(tally, kind, folder, [name, "cifar10" if kind.startswith("CIFAR") else "toy"])
        with tempfile.TemporaryDirectory(prefix="cfljax-drill-") as name:
            _store_with(Path(name), HOSTILE)
            _judge_store(tally, Path(name), len(HOSTILE))


def _judge(tally: Tally, kind: str, folder: Path, arguments: list[str]) -> None:
    done = _child("data", *arguments)
    problems = [] if done.returncode == 4 else [f"code {done.returncode}"]
    problems += common.complaint(done.stderr)
    problems += ["code ran"] if (folder / "ran").exists() else []
    problems += _bounds(tally, done)
    tally.check([f"{kind}: {p}; {done.stderr.strip()[-200:]}" for p in problems])


def _store_with(folder: Path, kinds: dict) -> None:
    """A results folder whose array files are hostile and whose records vouch for them."""
    import hashlib

    from cfljax.store import Store, records
    from tests.store.helpers import make_arrays, make_record

    store = Store(folder)
    store.write("good", make_record(), make_arrays())
    for number, make in enumerate(kinds.values()):
        data, name = make(), f"u{number}"
        facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "names": ["x"]}
        (store.units / f"{name}.npz").write_bytes(data)
        (store.units / f"{name}.json").write_bytes(records.encode(make_record() | {"schema": 1, "id": name, "arrays": facts}))


def _judge_store(tally: Tally, folder: Path, kinds: int) -> None:
    for number in range(kinds):
        done = _child("store", str(folder), f"u{number}")
        problems = [] if done.returncode == 3 else [f"code {done.returncode}"]
        problems += ["no one-line error"] if "damaged" not in done.stderr or "Traceback" in done.stderr else []
        tally.check([f"unit {number}: {p}; {done.stderr.strip()[-200:]}" for p in problems + _bounds(tally, done)])
    done = _child("store", str(folder), "good")
    tally.check(None if done.returncode == 0 else f"the good unit is hidden: {done.stderr[-200:]}")


def _bounds(tally: Tally, done: subprocess.CompletedProcess) -> list[str]:
    try:
        spent, grown = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return ["the reader died"]
    tally.most("seconds of processor time", spent)
    tally.most("megabytes taken", grown / 2**20)
    return [f"{spent:.2f} s"] if spent > SECONDS else []


def _child(*arguments: str) -> subprocess.CompletedProcess:
    """The reader in a process that is forked off this one."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                os.environ["CFLJAX_CACHE"] = arguments[1] + "/cache"
                code = child(*arguments)
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                code = 1
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0), errors.seek(0)
        return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), out.read(), errors.read())


def child(what: str, place: str, name: str) -> int:
    """Read it under the limit; the error goes to standard error, seconds and bytes to standard output."""
    import resource

    from cfljax import data
    from cfljax.errors import CfljaxError
    from cfljax.store import Store

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    begin, code = time.process_time(), 0
    try:
        if what == "data":
            data.load(name, {"checksums": False}, path=place)
        else:
            Store(place, read_only=True).read(name)
    except CfljaxError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    print(json.dumps([time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before]))
    return code


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
