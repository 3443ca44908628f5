"""Several processes, some of them killed, on one folder."""

import collections
import errno
import json
import os
import random
import signal
import threading
import time
import warnings

import pytest

from cfljax.errors import StoreError
from cfljax.store import DamagedWarning, Store, locks
from tests.patience import PATIENCE
from tests.store.helpers import make_arrays, make_record, python, same, temporaries, wait_until

WRITER = """
import sys
from cfljax.store import Store
from tests.store.helpers import make_arrays, make_record
store = Store(sys.argv[1])
print("ready", flush=True)
n = int(sys.argv[2])
while True:
    store.save_checkpoint("running", make_arrays(n), {"round": n})
    store.write(f"u{n}", make_record(seed=n), make_arrays(n))
    store.write("again", make_record(seed=n, status="failed"), make_arrays(n))
    n += 1
"""


def test_a_killed_writer_leaves_only_whole_units_and_the_last_checkpoint(tmp_path):
    draw = random.Random(0)
    for start in range(0, 6000, 1000):
        with python(WRITER, tmp_path, start) as process:
            assert process.stdout.readline() == "ready\n"
            if start:
                wait_until((tmp_path / "units" / f"u{start}.json").exists)
            time.sleep(draw.uniform(0.0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        with warnings.catch_warnings():
            # "again" is written anew all the time: only that one may be caught between its two
            # renames
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*units/again: damaged", DamagedWarning)
            store = Store(tmp_path)
            done = store.done(verify=True)
            for name in done:
                unit = store.read(name)
                assert same(unit.arrays, make_arrays(unit.record["seed"]))
            checkpoint = store.load_checkpoint("running")
            assert checkpoint is None or same(checkpoint[0], make_arrays(checkpoint[1]["round"]))
            assert temporaries(tmp_path) == []
    assert len(done) >= 5 and checkpoint is not None


FULL = """
import os, resource, sys
from cfljax.errors import StoreError
from cfljax.store import Store
from tests.store.helpers import make_arrays, make_record, same, temporaries
import numpy as np
store = Store(sys.argv[1])
store.write("u", make_record(), make_arrays())
store.save_checkpoint("v", make_arrays(), {"round": 1})
big, long = {"models": np.ones((100, 1000), np.float32)}, make_record(note="x" * 100_000)
acts = [
    lambda: store.write("u", make_record(), big),
    lambda: store.write("u", long, make_arrays()),
    lambda: store.write("new", long, make_arrays()),
    lambda: store.save_checkpoint("v", big, {"round": 2}),
    lambda: store.write_plan({"units": ["x" * 100_000]}),
]
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for act in acts:
    try:
        act()
    except StoreError as error:
        print(error.exit_code, "\\n" in str(error), error)
assert store.done(verify=True) == {"u"} and same(store.read("u").arrays, make_arrays())
assert store.load_checkpoint("v")[1] == {"round": 1} and temporaries(sys.argv[1]) == [] and store.read_plan() is None
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
for act in acts:
    act()
assert store.done(verify=True) == {"u", "new"}
print("the rest went well")
"""


def test_a_full_disk_is_one_line_and_leaves_the_old_data_whole(tmp_path):
    with python(FULL, tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)
    *lines, last = out.splitlines()
    assert err == "" and last == "the rest went well" and len(lines) == 5
    assert all(
        line.startswith("3 False") and "cannot write: File too large; free some space" in line
        for line in lines
    )


def test_a_lock_that_vanishes_while_it_is_opened_is_opened_again(tmp_path, monkeypatch):
    """As on NFS, where another machine removes the file in between."""
    store, real, left = Store(tmp_path), os.open, [errno.ENOENT, errno.ESTALE]

    def vanishing(path, *flags, **more):
        if str(path).endswith(".lock") and left:
            raise OSError(left.pop(), "gone")
        return real(path, *flags, **more)

    monkeypatch.setattr(locks.os, "open", vanishing)
    assert store.claim("u") and left == []
    left[:] = [errno.EACCES]
    with pytest.raises(StoreError, match="cannot write: gone"):
        store.claim("v")


def test_a_lock_in_a_folder_that_has_gone_is_an_error(tmp_path):
    store = Store(tmp_path / "r")
    store.locks.rmdir()
    with pytest.raises(StoreError, match="locks.*cannot write: No such file"):
        store.claim("u")


HOLDER = """
import sys, time
from cfljax.store import Store
claim = Store(sys.argv[1]).claim("u")
print(bool(claim), flush=True)
time.sleep(60)
"""


def test_a_claim_ends_with_its_owner_however_that_dies(tmp_path):
    store = Store(tmp_path)
    with python(HOLDER, tmp_path) as process:
        assert process.stdout.readline() == "True\n"
        assert not store.claim("u") and store.claimed()["u"]["pid"] == process.pid
        process.kill()
        process.communicate()
    assert store.claimed() == {}
    with store.claim("u") as mine:
        assert mine
        assert not store.claim("u"), "a second claim of the same process"
    assert list(store.locks.iterdir()) == []
    with store.claim("u") as mine:
        assert mine


def test_a_lock_file_that_its_last_owner_removed_meanwhile_is_no_claim(tmp_path, monkeypatch):
    store, real, calls = Store(tmp_path), locks.fcntl.flock, []

    def slow(descriptor, how):
        if not calls:  # the owner before us lets go between our open and our lock
            (store.locks / "u.lock").unlink()
        calls.append(how)
        real(descriptor, how)

    monkeypatch.setattr(locks.fcntl, "flock", slow)
    with store.claim("u") as mine:
        assert mine and len(calls) == 2 and not store.claim("u")


def test_the_owner_of_a_lock_is_told_by_the_first_4096_bytes_of_its_file(tmp_path):
    store = Store(tmp_path)
    with store.claim("u"):
        path = store.locks / "u.lock"
        note = path.read_bytes()
        path.write_bytes(note.ljust(4096) + b"something else")
        assert store.claimed() == {"u": json.loads(note)}
        path.write_bytes(note.ljust(4095) + b"something else")
        assert store.claimed() == {}


def test_waiting_for_a_claim_ends_when_it_is_free(tmp_path):
    store = Store(tmp_path)
    first = store.claim("plan")
    threading.Timer(0.05, first.release).start()
    with store.claim("plan", wait=True) as second:
        assert second and not first


def test_what_is_on_record_is_not_claimed(tmp_path):
    store = Store(tmp_path)
    store.write("u", make_record(), {})
    assert not store.claim("u") and list(store.locks.iterdir()) == []


WORKER = """
import os, sys, time
from cfljax.store import Store
from tests.store.helpers import make_arrays, make_record
store = Store(sys.argv[1])
names = [f"u{n}" for n in range(int(sys.argv[2]))]
print("ready", flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.001)
while len(store.done()) < len(names):
    for name in names:
        with store.claim(name) as mine:
            if mine:
                store.log({"unit": name, "pid": os.getpid()})
                time.sleep(0.004)
                store.write(name, make_record(), make_arrays())
"""


def test_several_processes_do_each_unit_once_though_one_is_killed(tmp_path):
    folder, go, units = tmp_path / "out", tmp_path / "go", 40
    workers = [python(WORKER, folder, units, go) for _ in range(3)]
    for worker in workers:
        worker.stdout.readline()
    go.touch()
    store = Store(folder, read_only=True)
    wait_until(lambda: len(store.ids()) >= 5)
    workers[0].kill()
    errors = [worker.communicate(timeout=PATIENCE)[1] for worker in workers]
    assert errors == ["", "", ""] and [worker.returncode for worker in workers] == [
        -signal.SIGKILL,
        0,
        0,
    ]
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    by_the_living = collections.Counter(e["unit"] for e in events if e["pid"] != workers[0].pid)
    by_the_dead = collections.Counter(e["unit"] for e in events if e["pid"] == workers[0].pid)
    assert len(store.done(verify=True)) == units and max(by_the_living.values()) == 1
    assert len(set(by_the_living) & set(by_the_dead)) <= 1, (
        "only what the dead one was at is done again"
    )
