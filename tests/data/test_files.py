"""IDX, CIFAR and LEAF files that the tests write, good and bad."""

import gzip
import io
import json
import struct
import tarfile

import numpy as np
import pytest

from cfljax import data
from cfljax.errors import DataError, SpecError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 28, 28), np.uint8)
LABELS = (np.arange(12) % 4).astype(np.uint8)


def idx(array, magic=None, shape=None):
    shape = array.shape if shape is None else shape
    head = bytes([0, 0, 8, len(shape)]) if magic is None else magic
    return head + struct.pack(f">{len(shape)}i", *shape) + array.tobytes()


def idx_folder(folder, prefix="", pack=True, images=IMAGES, labels=LABELS):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k" if not prefix else "test"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = gzip.compress(idx(array)) if pack else idx(array)
            (folder / f"{prefix}{part}-{kind}-ubyte{'.gz' if pack else ''}").write_bytes(content)


@pytest.mark.parametrize("pack", [True, False])
def test_idx_files_are_read_packed_and_plain(pack, tmp_path):
    idx_folder(tmp_path / "toy", pack=pack)
    s = data.load("toy", path=str(tmp_path))
    np.testing.assert_array_equal(s.x_train[..., 0], IMAGES)
    np.testing.assert_array_equal(s.y_test, LABELS)
    assert s.x_train.shape == (12, 28, 28, 1) and s.classes == 4


def test_emnist_is_turned_upright_and_letters_start_at_zero(tmp_path):
    idx_folder(tmp_path / "emnist", "emnist-letters-", labels=LABELS + 1)
    s = data.load("emnist/letters", path=str(tmp_path / "emnist"))
    np.testing.assert_array_equal(s.x_train[3, ..., 0], IMAGES[3].T)
    assert s.y_train.min() == 0


@pytest.mark.parametrize("name", ["emnist-upright", "emnistlike/letters"])
def test_a_set_that_is_not_emnist_stays_as_it_is(tmp_path, name):
    idx_folder(tmp_path / name, name.replace("/", "-") + "-")
    s = data.load(name, path=str(tmp_path / name))
    np.testing.assert_array_equal(s.x_train[3, ..., 0], IMAGES[3])
    assert np.array_equal(s.y_train, LABELS)


def test_a_file_named_as_mnists_that_is_not_mnists_is_noticed(tmp_path):
    idx_folder(tmp_path / "mnist")
    with pytest.raises(
        DataError,
        match="train-images-idx3-ubyte.gz: is not the published mnist file.*download it again",
    ):
        data.load("mnist", path=str(tmp_path))
    assert data.load("mnist", {"checksums": False}, path=str(tmp_path)).classes == 4


def test_bare_files_in_the_data_folder_count_as_mnist_alone(tmp_path, monkeypatch):
    idx_folder(tmp_path)
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    with pytest.raises(DataError, match="not found"):
        data.load("fashion_mnist")
    assert data.load("mnist", {"checksums": False}).classes == 4


BAD_IDX = {
    "truncated": (idx(IMAGES)[:-5], r"claims shape \[12, 28, 28\] and holds 9403 bytes"),
    "short header": (b"\0\0\x08", "begins with 000008"),
    "cut in its shape": (idx(IMAGES)[:9], "and holds 0 bytes"),
    "magic": (idx(IMAGES, magic=b"\x1f\x8b\x08\x03"), "begins with 1f8b0803"),
    "floats": (idx(IMAGES, magic=b"\0\0\x0d\x03"), "begins with 00000d03"),
    "negative": (idx(IMAGES, shape=(-12, 28, 28)), r"claims shape \[-12, 28, 28\]"),
    "two negatives": (idx(IMAGES, shape=(-12, -28, 28)), r"claims shape \[-12"),
    "huge": (idx(IMAGES, shape=(2**31 - 1, 2**31 - 1, 2**31 - 1)), r"claims shape \[2147483647"),
    "too long": (idx(IMAGES) + b"x", "and holds 9409 bytes"),
    "empty": (b"", "begins with nothing"),
}


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("what", BAD_IDX)
def test_a_bad_idx_file_is_one_line_that_names_it(what, pack, tmp_path):
    content, message = BAD_IDX[what]
    idx_folder(tmp_path / "toy", pack=pack)
    file = tmp_path / "toy" / f"train-images-idx3-ubyte{'.gz' if pack else ''}"
    file.write_bytes(gzip.compress(content) if pack else content)
    with pytest.raises(DataError, match=message) as e:
        data.load("toy", path=str(tmp_path))
    assert str(file) in str(e.value) and "\n" not in str(e.value)


def test_a_damaged_gzip_stream_and_a_missing_part_are_noticed(tmp_path):
    idx_folder(tmp_path / "toy")
    file = tmp_path / "toy" / "train-images-idx3-ubyte.gz"
    whole = bytearray(file.read_bytes())
    for position in (len(whole) - 7, len(whole) // 2, 0):
        broken = whole.copy()
        broken[position] ^= 255
        file.write_bytes(broken)
        with pytest.raises(DataError, match="train-images"):
            data.load("toy", path=str(tmp_path))
    file.write_bytes(whole)
    (tmp_path / "toy" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="has no t10k-labels-idx1-ubyte.gz"):
        data.load("toy", path=str(tmp_path))


def cifar_records(first, labels=1, n=4):
    x = RNG.integers(0, 256, (n, 3, 32, 32), np.uint8)
    y = np.stack([np.full(n, 3)] * (labels - 1) + [np.arange(n) + first], axis=1).astype(np.uint8)
    return x, y[:, -1], np.concatenate([y, x.reshape(n, -1)], axis=1).tobytes()


def cifar10_files():
    batches = [cifar_records(i) for i in range(6)]
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    return batches, dict(zip(names, (b[2] for b in batches), strict=True))


def test_cifar10_from_its_files_and_from_the_archive_are_the_same(tmp_path):
    batches, files = cifar10_files()
    (tmp_path / "cifar10").mkdir()
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            (tmp_path / "cifar10" / name).write_bytes(content)
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    a = data.load("cifar10", path=str(tmp_path))  # the folder; the archive lies beside it
    np.testing.assert_array_equal(a.x_train[4:8], batches[1][0].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(a.y_test, batches[5][1])
    assert a.classes == 10 and a.x_train.shape == (20, 32, 32, 3)
    for name in files:
        (tmp_path / "cifar10" / name).unlink()
    with pytest.raises(
        DataError, match="cifar-10-binary.tar.gz: is not the published cifar10 file"
    ):
        data.load("cifar10", path=str(tmp_path))
    b = data.load("cifar10", {"checksums": False}, path=str(tmp_path))
    np.testing.assert_array_equal(a.x_train, b.x_train)
    np.testing.assert_array_equal(a.y_train, b.y_train)


def test_cifar100_has_its_fine_labels(tmp_path):
    (tmp_path / "train.bin").write_bytes(cifar_records(90, labels=2)[2])
    (tmp_path / "test.bin").write_bytes(cifar_records(0, labels=2)[2])
    s = data.load("cifar100", path=str(tmp_path))
    assert s.classes == 100
    np.testing.assert_array_equal(s.y_train, [90, 91, 92, 93])
    assert set(np.flatnonzero(s.coarse == 3)) == {0, 1, 2, 3, 90, 91, 92, 93} and set(s.coarse) == {
        3,
        -1,
    }


def test_bad_cifar_files(tmp_path):
    _, files = cifar10_files()
    folder = tmp_path / "cifar10"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "data_batch_3.bin").write_bytes(files["data_batch_3.bin"][:-1])
    with pytest.raises(DataError, match="data_batch_3.bin: has 12291 bytes"):
        data.load("cifar10", path=str(tmp_path))
    (folder / "data_batch_3.bin").write_bytes(b"\x0a" + files["data_batch_3.bin"][1:])
    with pytest.raises(DataError, match="data_batch_3.bin has the label 10 in sample 0"):
        data.load("cifar10", path=str(tmp_path))
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match="has no data_batch_3.bin"):
        data.load("cifar10", path=str(tmp_path))


def test_bad_cifar_archives(tmp_path):
    file = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        link = tarfile.TarInfo("data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    off = {"checksums": False}
    with pytest.raises(DataError, match="holds no data_batch_1.bin"):
        data.load("cifar10", off, path=str(tmp_path))
    bomb = tarfile.TarInfo("data_batch_1.bin")
    bomb.size = 10**12
    file.write_bytes(gzip.compress(bomb.tobuf() + bytes(2000)))
    with pytest.raises(DataError, match="tar.gz: (cannot be read|does not fit into memory)"):
        data.load("cifar10", off, path=str(tmp_path))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError, match="cannot be read"):
        data.load("cifar10", off, path=str(tmp_path))


def leaf(folder, part, users, name="all.json"):
    (folder / part).mkdir(parents=True, exist_ok=True)
    content = {"users": list(users), "num_samples": [len(v[1]) for v in users.values()]}
    content["user_data"] = {u: {"x": x, "y": y} for u, (x, y) in users.items()}
    (folder / part / name).write_text(json.dumps(content))


def pixels(n, seed=0):
    return (np.random.default_rng(seed).integers(0, 256, (n, 784)) / 255).tolist()


def test_leaf_keeps_its_users_and_femnist_becomes_bytes(tmp_path):
    leaf(
        tmp_path / "femnist",
        "train",
        {"b": (pixels(2), [3, 1]), "a": (pixels(1, 1), [61])},
        "0.json",
    )
    leaf(tmp_path / "femnist", "train", {"c": (pixels(1, 2), [0])}, "1.json")
    leaf(tmp_path / "femnist", "test", {"a": (pixels(1, 3), [2]), "new": (pixels(2, 4), [2, 5])})
    (tmp_path / "femnist" / "train" / "._0.json").write_bytes(b"\0what a file system keeps")
    s = data.load("femnist", path=str(tmp_path))
    assert s.x_train.dtype == np.uint8 and s.x_train.shape == (4, 28, 28, 1) and s.classes == 62
    np.testing.assert_array_equal(s.x_train[0].ravel() / 255, pixels(2)[0])
    np.testing.assert_array_equal(s.user_train, [0, 0, 1, 2])
    np.testing.assert_array_equal(s.user_test, [1, 3, 3])


def test_leaf_numbers_that_are_not_bytes_stay_as_they_are(tmp_path):
    standardised = [[v - 0.3 for v in row] for row in pixels(2)]
    leaf(tmp_path / "nist", "train", {"a": (standardised, [0.0, "1"])})
    leaf(tmp_path / "nist", "test", {"a": (standardised[:1], [0])})
    s = data.load("nist", path=str(tmp_path))
    assert s.x_train.dtype == np.float32 and s.x_train.shape == (2, 784)
    np.testing.assert_allclose(s.x_train, standardised, atol=1e-7)


BAD_LEAF = {
    "duplicate": (
        {"users": ["a", "a"], "user_data": {"a": {"x": [[1]], "y": [0]}}},
        "user a occurs twice",
    ),
    "lengths": (
        {"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [0, 1]}}},
        "user a has 1 samples but 2 labels",
    ),
    "empty user": (
        {"users": ["a", "b"], "user_data": {"a": {"x": [[1]], "y": [0]}, "b": {"x": [], "y": []}}},
        "user b has no samples",
    ),
    "nobody": ({"users": [], "user_data": {}}, "x_train"),
    "no data": ({"users": ["a"], "user_data": {}}, "user a has no lists"),
    "ragged": (
        {"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [0, 1]}}},
        "lists of numbers of one length",
    ),
    "nan": (
        {"users": ["a"], "user_data": {"a": {"x": [[float("nan")]], "y": [0]}}},
        "x_train has values that are NaN",
    ),
    "label": ({"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [0.5]}}}, "has the label 0.5"),
    "word label": (
        {"users": ["a"], "user_data": {"a": {"x": [[1]], "y": ["cat"]}}},
        "labels must be integers",
    ),
    "negative": (
        {"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [-1]}}},
        "y_train has the label -1",
    ),
    "list": ([1, 2], "must be LEAF's"),
    "text": (
        {"users": ["a"], "user_data": {"a": {"x": [["hello"]], "y": [0]}}},
        "holds text; import it with",
    ),
}


@pytest.mark.parametrize("what", BAD_LEAF)
def test_a_bad_leaf_file_is_one_line(what, tmp_path):
    content, message = BAD_LEAF[what]
    folder = tmp_path / "toy" / "train"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message) as e:
        data.load("toy", path=str(tmp_path))
    assert "toy" in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("content", ["", '{"users": [', "[" * 100_000, "\xff\xfe"])
def test_broken_json_is_one_line(content, tmp_path):
    folder = tmp_path / "toy" / "train"
    folder.mkdir(parents=True)
    (folder / "a.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match="a.json: cannot be read as JSON"):
        data.load("toy", path=str(tmp_path))


def test_a_name_found_nowhere_says_what_was_tried_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "none"))
    with pytest.raises(
        DataError, match="CFLJAX_DATA is not set.*prepare nonesuch.*nonesuch.npz"
    ) as e:
        data.load("nonesuch")
    assert "\n" not in str(e.value)
    with pytest.raises(DataError, match=str(tmp_path)):
        data.load("nonesuch", path=str(tmp_path))
    with pytest.raises(DataError, match="no such file or folder"):
        data.load("nonesuch", path=str(tmp_path / "gone"))


@pytest.mark.parametrize("name", ["../mnist", "/etc/passwd", "a/../b", "", "a b", "a/"])
def test_a_name_cannot_leave_its_folder(name, tmp_path):
    with pytest.raises(SpecError, match="a name has letters"):
        data.load(name, path=str(tmp_path))
