import contextlib
import errno
import json
import math
import os
import warnings

import numpy as np
import pytest

from cfljax.errors import StoreError
from cfljax.store import DamagedWarning, Store, atomic, counts, status, verify
from cfljax.store import arrays as npz
from cfljax.store.compact import compact
from tests.store.helpers import make_arrays, make_record, same, temporaries


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


def test_a_unit_comes_back_as_it_was_written(store):
    record = make_record(
        config={"lr": math.inf, "hidden": [200], "in": {"z": 1, "a": None}},
        note=np.float32(0.5),
        at=np.int64(3),
    )
    store.write("u1", record, make_arrays())
    unit = store.read("u1")
    assert same(unit.arrays, make_arrays())
    assert unit.record["config"] == record["config"] and list(unit.record["config"]) == list(
        record["config"]
    )
    assert (unit.record["note"], unit.record["at"], unit.record["schema"], unit.record["id"]) == (
        0.5,
        3,
        1,
        "u1",
    )
    assert store.done() == store.done(verify=True) == {"u1"} and temporaries(store.folder) == []
    unit.arrays["models"][0, 0] = 5  # what is read can be written to


def test_array_files_are_ordinary_npz_files_with_the_same_bytes_for_the_same_arrays(store):
    store.write("a", make_record(), make_arrays())
    store.write("b", make_record(), make_arrays())
    first, second = (store.units / f"{name}.npz" for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    with np.load(first, allow_pickle=False) as loaded:
        assert same(dict(loaded), make_arrays())


def test_arrays_in_any_order_of_memory_come_back(store):
    arrays = {
        "diag/ifca/fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "diag/ifca/strided": np.arange(10)[::3],
    }
    store.write("u", make_record(), arrays)
    found = store.read("u").arrays
    assert same(found, arrays)
    store.write("none", make_record(status="failed", error="boom"), {})
    assert store.read("none").arrays == {}


def test_only_the_arrays_asked_for_are_unfolded(store):
    store.write("u", make_record(), make_arrays())
    assert set(store.read("u", ("history/",)).arrays) == {"history/round", "history/accuracy"}


def test_labels_and_small_arrays_are_compressed_and_large_floats_are_not(store):
    short, long = np.zeros(2000, np.float32), np.zeros(npz.MAX_SMALL_BYTES // 4 + 1, np.float32)
    store.write("short", make_record(), {"history/ari": short})
    store.write("long", make_record(), {"models": long})
    assert (
        (store.units / "short.npz").stat().st_size
        < 1000
        < long.nbytes
        < (store.units / "long.npz").stat().st_size
    )
    assert np.array_equal(store.read("short").arrays["history/ari"], short)
    store.write("labels", make_record(), {"labels": np.zeros(100_000, np.int16)})
    assert (store.units / "labels.npz").stat().st_size < 2000


@pytest.mark.parametrize("id", ["../u", "a/b", "", ".hidden", "a..b", "x" * 200, "a\n", "ü"])
def test_a_unit_id_that_is_no_safe_file_name_is_refused(store, id):
    for act in (
        lambda: store.write(id, make_record(), {}),
        lambda: store.read(id),
        lambda: store.claim(id),
    ):
        with pytest.raises(StoreError, match="unit id"):
            act()


def test_objects_and_text_are_no_arrays(store):
    for bad in (np.array([{}], object), np.array(["text"])):
        with pytest.raises(TypeError, match="array x"):
            store.write("u", make_record(), {"x": bad})
    assert store.ids() == []


@pytest.mark.parametrize(
    "changes",
    [{"status": "fine"}, {"summary": None}, {"summary": {"loss_last": "low"}}, {"seed": "0"}],
)
def test_a_record_that_readers_could_not_use_is_refused(store, changes):
    with pytest.raises(ValueError, match="record of u"):
        store.write("u", make_record(**changes), {})


def test_failed_units_can_be_done_again(store):
    store.write("good", make_record(), {})
    store.write("bad", make_record(status="failed"), make_arrays())
    assert store.done() == {"good", "bad"} and store.done(redo=("failed",)) == {"good"}
    assert not store.claim("bad")
    store.forget_failed(["good", "bad"])
    assert not store.claim("good")
    with store.claim("bad") as mine:
        assert mine
        store.write("bad", make_record(), make_arrays(2.0))
    assert same(store.read("bad").arrays, make_arrays(2.0))


def test_a_checkpoint_holds_the_last_state_and_goes_with_the_unit(store):
    assert store.load_checkpoint("u") is None
    store.save_checkpoint("u", {"state/0": np.arange(3)}, {"round": 1})
    store.save_checkpoint("u", {"state/0": np.arange(4)}, {"round": 2})
    arrays, meta = store.load_checkpoint("u")
    assert meta == {"round": 2} and same(arrays, {"state/0": np.arange(4)})
    with np.load(store.checkpoints / "u.npz") as loaded:
        assert "state/0" in loaded
    store.write("u", make_record(), {})
    assert store.load_checkpoint("u") is None and list(store.checkpoints.iterdir()) == []


def test_a_plan_of_many_runs_is_read_again(store):
    ids = [f"{number:016x}" for number in range(100_000)]
    plan = {"units": ids, "batches": [{"runs": [name], "width": 1} for name in ids]}
    store.write_plan(plan)
    assert store.read_plan() == plan


def test_failed_units_are_forgotten_and_no_others(store):
    for name, how in (("a", "failed"), ("b", "done"), ("c", "failed"), ("d", "diverged")):
        store.write(name, make_record(status=how), make_arrays())
    store.forget_failed(["a", "b", "d", "never"])
    assert store.ids() == ["b", "c", "d"] and not (store.units / "a.npz").exists()


def test_spec_plan_and_log(store):
    assert store.read_plan() is None and store.read_spec() is None
    store.write_spec('name = "ö"\n')
    store.write_plan({"units": ["b", "a"], "lanes": 2})
    store.log({"event": "start"})
    store.log({"event": "end"})
    again = Store(store.folder, read_only=True)
    assert again.read_spec() == 'name = "ö"\n' and again.read_plan() == {
        "units": ["b", "a"],
        "lanes": 2,
    }
    assert [
        json.loads(line)["event"] for line in (store.folder / "log.jsonl").read_text().splitlines()
    ] == ["start", "end"]


def test_status_counts_what_there_is(store):
    store.write_plan({"units": list("abcdef")})
    for name, how in zip("abc", ("done", "diverged", "failed"), strict=True):
        store.write(name, make_record(status=how), {})
    store.write("old", make_record(), {})
    with store.claim("d"):
        assert (
            status(store.folder)
            == "3 of 6 runs: 1 done, 1 diverged, 1 failed; 1 claimed, 3 left; 1 of an earlier spec"
        )
    (store.units / "a.json").write_bytes(b"")
    found = counts(store.folder)
    assert (found["done"], found["claimed"], found["left"], found["damaged"]) == (0, 0, 4, 1)


def test_verify_lists_the_damaged_and_moves_nothing(store):
    for name in "abc":
        store.write(name, make_record(), make_arrays())
    data = bytearray((store.units / "b.npz").read_bytes())
    data[60] ^= 1
    (store.units / "b.npz").write_bytes(data)
    (store.units / "c.npz").unlink()
    before = sorted(store.folder.rglob("*"))
    assert verify(store.folder) == {
        "b": "b.npz: its SHA-256 is not that of its record",
        "c": "c.npz is missing",
    }
    assert sorted(store.folder.rglob("*")) == before


def test_looking_makes_no_folder(store, tmp_path):
    store.write("u", make_record(), make_arrays())
    for empty in (store.checkpoints, store.locks):
        empty.rmdir()
    verify(store.folder), status(store.folder), compact(store.folder, tmp_path / "copy")
    assert [path.name for path in store.folder.iterdir()] == ["units"]


def test_a_folder_that_is_no_results_folder_is_an_error_of_one_line(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError) as caught:
            Store(folder, read_only=True)
        assert (
            str(folder) in str(caught.value)
            and "\n" not in str(caught.value)
            and caught.value.exit_code == 3
        )


def test_a_place_that_cannot_be_written_is_an_error_of_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write: Not a directory"):
        Store(tmp_path / "file" / "out")


def test_temporary_files_of_yesterday_go(store):
    old, new = (
        store.units / f".{name}.npz.elsewhere.1.abcd{atomic.TEMPORARY_SUFFIX}"
        for name in ("old", "new")
    )
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    Store(store.folder)
    assert [p.exists() for p in (old, new)] == [False, True]


def test_an_interrupted_write_leaves_no_temporary_file_and_the_old_unit_whole(store, monkeypatch):
    store.write("u", make_record(), make_arrays())
    calls = []

    def interrupted(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:  # while the record is written, the arrays being safe already
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write("u", make_record(), make_arrays(3.0))
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedWarning)
        assert same(store.read("u").arrays, make_arrays()) and temporaries(store.folder) == []


def test_files_have_ordinary_rights(store):
    store.write("u", make_record(), make_arrays())
    store.log({"event": "x"})
    rights = {
        path.name: path.stat().st_mode & 0o777 for path in store.folder.rglob("*") if path.is_file()
    }
    assert {"u.npz", "u.json", "log.jsonl"} <= set(rights)
    assert all(mode & 0o600 == 0o600 and mode & 0o111 == 0 for mode in rights.values())


def test_a_write_that_fails_at_any_point_is_one_line_and_leaves_a_whole_unit(store, monkeypatch):
    """The disk is full at the n-th call to the system, for every n; only the second rename, which
    needs no space, is spared."""
    store.write("u", make_record(), make_arrays())
    real = {name: getattr(os, name) for name in ("open", "fsync")}
    failures = 0
    for n in range(1, 20):
        calls = []

        def failing(name, n=n, calls=calls):
            def call(*arguments, **named):
                calls.append(name)
                if len(calls) == n:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real[name](*arguments, **named)

            return call

        for name in real:
            monkeypatch.setattr(os, name, failing(name))
        try:
            store.write("u", make_record(), make_arrays(n + 1.0))
        except StoreError as error:
            failures += 1
            assert "No space left on device; free some space" in str(error) and "\n" not in str(
                error
            )
        monkeypatch.undo()
        assert temporaries(store.folder) == [] and store.check("u") is None
        if len(calls) < n:
            break
    assert failures >= 6


@pytest.mark.parametrize(
    ("code", "fatal"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)]
)
def test_a_file_system_that_knows_no_sync_of_folders_is_no_obstacle(
    tmp_path, monkeypatch, code, fatal
):
    def failing(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic.os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output") if fatal else contextlib.nullcontext():
        atomic.sync_folder(tmp_path)


def test_a_folder_that_cannot_be_listed_is_one_line_in_the_systems_words(store, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StoreError, match=r"units: cannot read: Permission denied$"):
        store.ids()
