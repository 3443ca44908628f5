"""What data holds is part of a run's id: wherever it lies, however it is read, and never older than
what is trained on."""

import dataclasses
import hashlib
import os
import shutil
import time
import types

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.data import mapped, npz
from cfljax.errors import DataError, SpecError
from cfljax.registry import checksums
from cfljax.registry.options import option
from cfljax.report.configurations import collect
from cfljax.types import Parts
from tests.data.test_files import idx_folder

SMALL = {"model": "mclr", "train": {"rounds": 1, "lr": 0.5}, "method": "fedavg"}


@pytest.fixture(autouse=True)
def own(monkeypatch):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)


def write(file, seed=0):
    """An npz file of a data set, the same for the same seed."""
    rng = np.random.default_rng(seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        "x_train": rng.normal(size=(40, 3)),
        "y_train": np.arange(40) % 2,
        "x_test": rng.normal(size=(10, 3)),
    }
    np.savez(file, **arrays, y_test=np.arange(10) % 2)
    return file


def leaf(folder):
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        text = '{"users": ["a"], "user_data": {"a": {"x": [[0.5, 1]], "y": [1]}}}'
        (folder / part / "all.json").write_text(text)
    return folder


def cifar(folder):
    folder.mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(bytes(3074))
    return folder


def tfds(folder):
    (folder / "1.0.0").mkdir(parents=True)
    for name in ("dataset_info.json", "features.json", "toy-train.array_record-00000-of-00001"):
        (folder / "1.0.0" / name).write_bytes(b"{ }")
    return folder


def runs(name="mine", path=None, **options):
    place = {} if path is None else {"path": str(path)}
    return read_spec(
        SMALL | {"data": {"name": name, "partition": "iid", "clients": 2, **place, **options}}
    ).runs()


def id_of(*arguments, **options):
    (run,) = runs(*arguments, **options)
    return run.id


KINDS = {
    "mine": lambda folder: write(folder / "mine.npz").parent, "idx": lambda folder: idx_folder(folder / "idx") or folder,
    "leaf": lambda folder: leaf(folder / "leaf").parent, "cifar100": lambda folder: cifar(folder / "cifar100").parent,
    "imported": lambda folder: mapped.write(npz.read("a", write(folder / "a.npz")), folder / "imported", [], "a") or folder,
    "toy": lambda folder: tfds(folder / "toy").parent,
}  # fmt: skip
UNREAD = {"a.npz", "cfljax.json"}
"""What `imported` was made from, and its manifest."""


@pytest.mark.parametrize("name", KINDS)
def test_every_file_of_a_data_set_counts_and_its_place_does_not(name, tmp_path, monkeypatch):
    folder = KINDS[name](tmp_path / "here")
    first = id_of(name, folder)
    shutil.copytree(folder, tmp_path / "there")
    assert id_of(name, tmp_path / "there") == first
    monkeypatch.setenv("CFLJAX_DATA", str(folder))
    assert id_of(name) == first
    seen = {first}
    for file in sorted(f for f in folder.rglob("*") if f.is_file() and f.name not in UNREAD):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert id_of(name, folder) not in seen, file
        seen.add(id_of(name, folder))
        file.write_bytes(whole)
        assert id_of(name, folder) == first


def test_a_place_has_many_names_and_one_id(tmp_path, monkeypatch):
    file = write(tmp_path / "data" / "mine.npz")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    places = [
        file,
        file.parent,
        "~/data",
        "data",
        "./data/../data/mine.npz",
        "link",
        "~/link/mine.npz",
    ]
    assert len({id_of("mine", place) for place in places}) == 1
    table = {"name": "mine", "partition": "iid", "clients": 2, "path": list(map(str, places))}
    assert len(read_spec(SMALL | {"data": table}).units()) == 1


def test_two_files_with_the_same_data_are_one_run_and_others_are_not(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write(tmp_path / f"{name}.npz", seed)
    paths = [str(tmp_path / f"{name}.npz") for name in "abc"]
    spec = read_spec(SMALL | {"data": {"name": "mine", "clients": 2, "path": paths}})
    assert len(spec.runs()) == 3 and [run.data.path for run in spec.units()] == [paths[0], paths[2]]


def test_runs_that_draw_their_data_from_their_own_seed_read_files_too(tmp_path):
    file = write(tmp_path / "mine.npz")
    found = runs("mine", file, seed="run")
    assert found[0].contents == {"data": checksums.hash_files([("npz", file)])}
    assert found[0].id == id_of("mine", file, seed=0)


# --- a file that is replaced
# -------------------------------------------------------------------------------------------------


def test_a_sweep_on_a_file_that_was_replaced_computes_anew_and_mixes_nothing(tmp_path):
    file = write(tmp_path / "mine.npz")
    spec = SMALL | {"data": {"name": "mine", "path": str(file), "clients": 2}}
    old = cfljax.sweep(spec | {"seeds": [0, 1]}, tmp_path / "r", quiet=True)
    write(file, seed=1)
    new = cfljax.sweep(spec | {"seeds": [0, 1, 2]}, tmp_path / "r", quiet=True)
    assert len(new) == 3 and new.left_out == 2 and not set(old.records) & set(new.records)
    assert len({record["contents"]["data"] for record in new.records.values()}) == 1
    fresh = cfljax.sweep(spec | {"seeds": [0, 1, 2]}, tmp_path / "fresh", quiet=True)
    assert list(new.to_pandas()["loss_last"]) == list(fresh.to_pandas()["loss_last"])


def test_data_that_moves_while_a_sweep_grows_is_one_row_of_all_seeds(tmp_path):
    file = write(tmp_path / "mine.npz")
    spec = SMALL | {"data": {"name": "mine", "path": str(file), "clients": 2}}
    cfljax.sweep(spec | {"seeds": [0, 1]}, tmp_path / "r", quiet=True)
    moved = file.rename(tmp_path / "moved.npz")
    spec |= {"data": spec["data"] | {"path": str(moved)}}
    results = cfljax.sweep(
        spec | {"seeds": [0, 1, 2], "method": ["fedavg", "fedprox"]}, tmp_path / "r", quiet=True
    )
    assert len(results) == 6 and results.left_out == 0 and "data.path" not in results.to_pandas()
    rows = collect([tmp_path / "r"]).configurations
    assert [(row.label, len(row.units)) for row in rows] == [("fedavg", 3), ("fedprox", 3)]
    assert rows[0].block == rows[1].block


def test_a_file_that_is_replaced_within_one_process_is_read_again(tmp_path):
    file = tmp_path / "mine.npz"

    def loss():
        return cfljax.run(
            "fedavg", {"name": "mine", "path": str(file), "clients": 2}, "mclr", rounds=1
        ).summary["loss_last"]

    found = [loss() for seed in (0, 1, 0) if write(file, seed)]
    assert found[0] == found[2] != found[1]


# --- sums are made once
# ------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A large file that has not been touched for a while, and how often it has been summed."""
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "cache"))
    file, reads, real = tmp_path / "large", [], hashlib.file_digest
    file.write_bytes(bytes(checksums.MIN_CACHED_BYTES))
    later = types.SimpleNamespace(time=lambda: time.time() + 10)
    monkeypatch.setattr(checksums, "time", later)
    monkeypatch.setattr(hashlib, "file_digest", lambda *words: reads.append(1) or real(*words))
    return file, reads, later


def test_a_large_file_is_summed_once(large):
    file, reads, _ = large
    assert len({checksums.hash_file(file) for _ in range(3)}) == 1 == len(reads)


def test_a_change_that_keeps_size_and_time_of_a_large_file_is_seen(large):
    file, reads, _ = large
    first, stat = checksums.hash_file(file), file.stat()
    with file.open("r+b") as f:
        f.write(b"x")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_mtime_ns == stat.st_mtime_ns and checksums.hash_file(file) != first
    other = file.with_name("other")
    other.write_bytes(bytes(checksums.MIN_CACHED_BYTES - 1) + b"y")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(file)
    assert (
        checksums.hash_file(file)
        == hashlib.sha256(bytes(checksums.MIN_CACHED_BYTES - 1) + b"y").hexdigest()
    )


def test_the_sum_of_a_file_that_has_just_changed_is_not_kept(large):
    file, reads, later = large
    later.time = time.time
    assert checksums.hash_file(file) == checksums.hash_file(file) and len(reads) == 2


def test_a_kept_sum_that_is_damaged_is_made_again(large, tmp_path):
    file, reads, _ = large
    first = checksums.hash_file(file)
    (kept,) = (tmp_path / "cache" / "sums").iterdir()
    for text in ("", "{}", "[]", kept.read_text()[:-9], kept.read_text().replace(first, "short")):
        kept.write_text(text)
        assert checksums.hash_file(file) == first
    assert len(reads) == 6


def test_no_room_for_a_sum_costs_time_alone(large, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert checksums.hash_file(large[0]) == checksums.hash_file(large[0])


def test_a_file_that_is_being_written_is_refused(tmp_path, monkeypatch):
    file, real = tmp_path / "growing", hashlib.file_digest
    file.write_bytes(b"x")

    def grows(f, name):
        file.write_bytes(b"xy")
        return real(f, name)

    monkeypatch.setattr(hashlib, "file_digest", grows)
    with pytest.raises(
        DataError, match="growing: changes while it is read; start again when it is complete"
    ):
        checksums.hash_file(file)


# --- users' own
# --------------------------------------------------------------------------------------------------------------


def test_what_a_source_of_ones_own_returns_counts_whatever_it_reads(tmp_path):
    file = write(tmp_path / "hidden.npz")
    calls = []

    @cfljax.register_data("hidden")
    def hidden(options, rng):
        calls.append(1)
        return dict(np.load(file))

    first = id_of("hidden")
    result = cfljax.run("fedavg", {"name": "hidden", "clients": 2}, "mclr", rounds=1)
    assert len(calls) == 2, "what was summed is what is trained on"
    write(file, seed=1)
    assert id_of("hidden") != first
    again = cfljax.run("fedavg", {"name": "hidden", "clients": 2}, "mclr", rounds=1)
    assert again.run != result.run and again.summary["loss_last"] != result.summary["loss_last"]


def test_a_source_of_ones_own_that_changes_after_the_id_was_made_is_refused():
    @cfljax.register_data("moody")
    def moody(options, rng):
        x = np.full((9, 2), next(numbers), np.float32)
        return {"x_train": x, "y_train": np.arange(9) % 2, "x_test": x, "y_test": np.arange(9) % 2}

    numbers = iter(range(9))
    first, second = runs("moody")[0], runs("moody")[0]
    assert first.id != second.id
    assert second.data.load().x_train[0, 0] == 1
    with pytest.raises(DataError, match='data "moody": has changed'):
        first.data.load()


def test_who_holds_what_by_a_partition_of_ones_own_counts(tmp_path):
    file = tmp_path / "owners.txt"
    file.write_text("2")

    @cfljax.register_partition("listed")
    def listed(options, source, rng):
        rows = np.array_split(np.arange(len(source.y_train)), int(file.read_text()))
        test = np.arange(len(source.y_train), len(source.y_train) + 3)
        return Parts(list(rows), [test] * len(rows), np.full(len(rows), -1, np.int32))

    def made():
        return read_spec(
            SMALL | {"data": {"name": "blobs", "samples": 60, "partition": "listed"}}
        ).runs()[0]

    first = made()
    assert set(first.contents) == {"partition"} and first.id == made().id
    file.write_text("3")
    assert made().id != first.id and len(made().data.divide(made().data.load()).train) == 3
    with pytest.raises(DataError, match='data.partition = "listed": has changed'):
        first.data.divide(first.data.load())


def test_a_source_that_raises_is_a_failed_run_and_the_others_are_computed(tmp_path):
    @cfljax.register_data("broken")
    def broken(options, rng):
        raise ValueError("no disk in the drive")

    data = [{"name": "broken"}, {"name": "blobs", "samples": 60, "clients": 3}]
    frame = cfljax.sweep(SMALL | {"data": data}, tmp_path / "r", quiet=True).to_pandas()
    assert sorted(frame["status"]) == ["done", "failed"]


def test_a_file_that_an_option_names_counts_by_its_contents(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Options:
        weights: str | None = option(None, "a file of numbers", file=True)

    @cfljax.register_model("loaded", Options)
    def make(options, sample_shape, classes):
        """A linear model that starts from a file."""
        start = np.loadtxt(options.weights, dtype=np.float32)
        return lambda key: start, lambda params, x: x.reshape(len(x), -1) @ params

    def result():
        model = {"name": "loaded", "weights": str(file)}
        return cfljax.run(
            "fedavg", {"name": "blobs", "samples": 60, "clients": 3, "features": 2}, model, rounds=1
        )

    file = tmp_path / "weights.txt"
    np.savetxt(file, np.zeros((2, 4)))
    first = result()
    assert (
        first.record["contents"]["model.weights"] == hashlib.sha256(file.read_bytes()).hexdigest()
    )
    np.savetxt(file, np.ones((2, 4)) * np.arange(4))
    second = result()
    assert first.run != second.run and first.summary["loss_last"] != second.summary["loss_last"]
    file.rename(tmp_path / "moved.txt")
    with pytest.raises(DataError, match=r"weights\.txt: cannot be read"):
        result()


def test_runs_whose_partitions_read_different_files_are_different_runs(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Listed:
        owners: str = option("", "who holds what", file=True)

    @cfljax.register_partition("listed", Listed)
    def listed(options, source, rng):
        owner = np.loadtxt(options.owners, dtype=int)
        held = [np.flatnonzero(owner == c) for c in range(2)]
        return Parts(held, len(owner) + np.arange(len(source.y_test)), np.zeros(2, np.int32))

    owners = [tmp_path / "even.txt", tmp_path / "third.txt"]
    for file, each in zip(owners, (2, 3), strict=True):
        np.savetxt(file, np.arange(48) % each == 0, "%d")
    data = {"name": "blobs", "samples": 60, "partition": "listed", "owners": [*map(str, owners)]}
    spec = read_spec(SMALL | {"data": data})
    assert len({run.id for run in spec.runs()}) == 2 and not spec.warnings


def test_a_word_that_is_wrong_is_noticed_before_files_are_looked_for():
    with pytest.raises(SpecError, match="data.normalise"):
        runs("nowhere", normalise="pixels")
    assert runs("nowhere")
