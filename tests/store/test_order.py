"""What is on disk when, who owns a unit, and whose files are left alone."""

import errno
import json
import os
import stat
import warnings
from pathlib import Path

import pytest

from cfljax.commands.cli import main
from cfljax.errors import StoreError
from cfljax.store import DamagedWarning, Store, atomic, locks, records
from tests.store.helpers import make_arrays, make_record


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


def full(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_synced_is_the_whole_file(tmp_path, monkeypatch):
    sizes, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda d: (sizes.append(os.fstat(d).st_size), real(d)))
    atomic.write_bytes(tmp_path / "x", b"data")
    assert sizes[0] == 4


def test_the_arrays_are_in_place_and_on_disk_before_the_record_gets_its_name(store, monkeypatch):
    seen, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(Path(b).name), replace(a, b)))
    monkeypatch.setattr(
        os,
        "fsync",
        lambda d: (
            seen.append("folder" if stat.S_ISDIR(os.fstat(d).st_mode) else "file"),
            fsync(d),
        ),
    )
    store.write("u", make_record(), make_arrays())
    assert seen == ["file", "file", "u.npz", "folder", "u.json", "folder"]


def test_who_looks_between_the_two_renames_moves_nothing(store, monkeypatch):
    store.write("u", make_record(), {})
    seen, replace = [], os.replace

    def between(a, b):
        replace(a, b)
        if Path(b).name == "u.npz":
            seen.append(Store(store.folder).done())

    monkeypatch.setattr(os, "replace", between)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedWarning)
        store.write("u", make_record(), make_arrays())
    assert seen == [set()] and store.check("u") is None and not (store.folder / "damaged").exists()


def test_a_unit_that_is_written_anew_before_it_is_set_aside_stays(store, monkeypatch):
    store.write("u", make_record(), make_arrays())
    (store.units / "u.npz").write_bytes(b"bad")
    other, real = Store(store.folder), store._writing

    def late(id, wait):
        other.write("u", make_record(), make_arrays(2.0))
        return real(id, wait)

    monkeypatch.setattr(store, "_writing", late)
    store.done()
    assert other.check("u") is None and other.ids() == ["u"]


def test_a_process_of_another_machine_is_not_dead_because_its_number_is_free_here(store):
    other = store.units / f".u.npz.elsewhere.999999999.abcd{atomic.TEMPORARY_SUFFIX}"
    other.write_bytes(b"x")
    Store(store.folder)
    assert other.exists()


def test_a_container_of_the_same_host_name_has_other_processes(store, monkeypatch):
    """Its process 999999999 may be alive although there is none of that number here."""
    here, dead = atomic.name_pid_space(), 999999999
    for place in (here, "container"):
        path = store.units / f".u.npz.{place}.{dead}.abcd{atomic.TEMPORARY_SUFFIX}"
        path.write_bytes(b"x")
        note = {"pid": dead, "host": atomic.host(), "place": place, "since": ""}
        (store.locks / f"{place}.lock").write_text(json.dumps(note))
    with atomic.stage(store.units / "u.npz", b"x") as staged:
        assert f".{here}.{os.getpid()}." in staged.temporary.name
    Store(store.folder)
    left = [path.name for path in store.units.glob(f".*{atomic.TEMPORARY_SUFFIX}")]
    assert left == [f".u.npz.container.{dead}.abcd{atomic.TEMPORARY_SUFFIX}"]
    assert list(store.claimed()) == ["container"]
    with store.claim("u"):
        assert store.claimed()["u"]["place"] == here


def test_claims_of_another_machine_are_shown_whatever_runs_here(store):
    (store.locks / "u.lock").write_text(
        json.dumps({"pid": 999999999, "host": "elsewhere", "since": ""})
    )
    assert store.claimed()["u"]["host"] == "elsewhere"


def test_a_link_in_place_of_a_lock_is_not_followed(store, tmp_path):
    (tmp_path / "mine").write_text("precious")
    (store.locks / "u.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError, match="cannot write"):
        store.claim("u")
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_checkpoint_stays_until_the_unit_is_written(store, monkeypatch):
    store.save_checkpoint("u", make_arrays(), {"round": 7})

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="cannot write"):
        patch.setattr(os, "fsync", full)
        store.write("u", make_record(), make_arrays())
    assert store.load_checkpoint("u")[1] == {"round": 7}


def test_what_was_finished_while_we_asked_for_the_lock_is_not_claimed(store, monkeypatch):
    other, real = Store(store.folder), locks.claim

    def late(path, wait=False):
        if path.name == "u.lock":
            other.write("u", make_record(), {})
        return real(path, wait)

    monkeypatch.setattr(locks, "claim", late)
    assert not store.claim("u")


def test_a_released_claim_does_not_remove_the_lock_of_the_next_owner(store, monkeypatch):
    first, next_, real = store.claim("u"), [], os.close

    def close(descriptor):
        real(descriptor)
        if not next_:
            next_.append(None)
            next_[0] = store.claim("u")

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        first.release()
    assert next_[0] and not store.claim("u")


@pytest.mark.parametrize("lacks", ["", "timings"])
def test_a_record_of_a_newer_release_in_whatever_form_is_refused_and_left_alone(store, lacks):
    store.write("u", make_record(), {})
    record = {k: v for k, v in store.record("u").items() if k not in ("sha256", lacks)} | {
        "schema": 2
    }
    (store.units / "u.json").write_bytes(records.encode(record))
    with pytest.raises(StoreError, match="newer cfljax"):
        store.done()
    assert (store.units / "u.json").exists()


def test_a_reader_moves_no_damaged_plan_and_no_damaged_checkpoint(store):
    store.save_checkpoint("u", make_arrays())
    store.write_plan({"units": ["u"]})
    for path in (store.checkpoints / "u.npz", store.folder / "plan.json"):
        path.write_bytes(b"bad")
    before, reader = sorted(store.folder.rglob("*")), Store(store.folder, read_only=True)
    for read in (reader.read_plan, lambda: reader.load_checkpoint("u")):
        with pytest.warns(DamagedWarning):
            assert read() is None
    assert sorted(store.folder.rglob("*")) == before


def test_a_spec_that_cannot_be_written_leaves_the_old_one(store, monkeypatch):
    store.write_spec("old")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="cannot write"):
        patch.setattr(os, "fsync", full)
        store.write_spec("new")
    assert store.read_spec() == "old"


def test_a_line_of_the_log_is_one_write(store, monkeypatch):
    written, real = [], os.write
    monkeypatch.setattr(os, "write", lambda d, data: (written.append(data), real(d, data))[1])
    store.log({"event": "x"})
    assert written == [b'{"event": "x"}\n']


def test_a_process_of_another_user_is_alive(monkeypatch):
    def foreign(pid, signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", foreign)
    assert atomic.is_alive(4242)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_no_file_stays_open(store):
    store.write("u", make_record(), make_arrays())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        store.write(f"u{number}", make_record(), make_arrays())
        store.read(f"u{number}")
        store.log({"event": "x"})
    assert len(list(Path("/proc/self/fd").iterdir())) == before


PAGE = Path(__file__).parents[2] / "docs" / "install.md"


def test_a_sweep_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "sweep",
                "--set",
                "method=fedavg",
                "--set",
                "seeds=0:1",
                "--set",
                "data.clients=4",
                "--quiet",
            ]
        )
        == 3
    )
    said = capsys.readouterr().err
    assert (
        said == "cfljax: results/quickstart/locks: this system has no file locks (flock); run on "
        "Linux, macOS or WSL\n"
    )
    assert said.replace("/", "\\") in PAGE.read_text()
    assert not list((tmp_path / "results").rglob("*.npz"))
