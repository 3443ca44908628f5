"""npz files, good and bad."""

import io
import zipfile

import numpy as np
import pytest

from cfljax import data
from cfljax.errors import DataError


def arrays(**change):
    rng = np.random.default_rng(0)
    made = {
        "x_train": rng.integers(0, 256, (20, 4, 4), np.uint8), "y_train": (np.arange(20) % 5).astype(np.uint8),
        "x_test": rng.integers(0, 256, (10, 4, 4), np.uint8), "y_test": (np.arange(10) % 5).astype(np.uint8),
    } | change  # fmt: skip
    return {k: v for k, v in made.items() if v is not None}


def write(folder, **change):
    np.savez(folder / "toy.npz", **arrays(**change))
    return data.load("toy", path=str(folder))


def npy(shape, payload, descr="|u1"):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return head.getvalue() + payload


def zipped(folder, member, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(folder / "toy.npz", "w", compression) as z:
        z.writestr("x_train.npy", member)
        for name in ("y_train", "x_test", "y_test"):
            z.writestr(f"{name}.npy", npy((0,), b""))


def test_grey_images_get_a_channel_and_labels_become_int32(tmp_path):
    s = write(tmp_path)
    assert (
        s.x_train.shape == (20, 4, 4, 1)
        and s.x_train.dtype == np.uint8
        and s.y_test.dtype == np.int32
        and s.classes == 5
    )
    np.testing.assert_array_equal(s.x_test[..., 0], arrays()["x_test"])
    assert s.user_train is None and s.population is None


def test_compressed_and_fortran_order_files_are_the_same(tmp_path):
    np.savez_compressed(
        tmp_path / "toy.npz", **{k: np.asfortranarray(v) for k, v in arrays().items()}
    )
    np.testing.assert_array_equal(
        data.load("toy", path=str(tmp_path)).x_train[..., 0], arrays()["x_train"]
    )


def test_the_folder_comes_from_the_environment_and_a_path_may_be_the_file(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    assert data.load("toy").classes == 5
    assert data.load("another", path=str(tmp_path / "toy.npz")).name == "another"


def test_users_are_renumbered_over_both_parts_and_populations_are_theirs(tmp_path):
    user = np.repeat([30, 7], 10)
    s = write(
        tmp_path,
        user_train=user,
        user_test=np.repeat([7, 99], 5),
        population_train=np.where(user == 7, 4, 0),
        population_test=np.repeat([4, 0], 5),
    )
    np.testing.assert_array_equal(
        np.unique(s.user_train, return_index=True)[1], [10, 0]
    )  # user 7 is 0, user 30 is 1
    np.testing.assert_array_equal(s.user_test, np.repeat([0, 2], 5))
    np.testing.assert_array_equal(s.population, [1, 0, 0])


def test_token_ids_come_with_their_table(tmp_path):
    table = np.ones((6, 3))
    s = write(tmp_path, x_train=np.full((20, 7), 5), x_test=np.zeros((10, 7), int), table=table)
    assert s.x_train.dtype == np.int32 and s.table.dtype == np.float32
    with pytest.raises(DataError, match="token id out of 0 … 5"):
        write(tmp_path, x_train=np.full((20, 7), 6), x_test=np.zeros((10, 7), int), table=table)


@pytest.mark.parametrize(
    "shape", [(8, 8, 3), (3, 3, 64), (1, 1, 512), (3, 4, 4), (1, 3, 40), (7, 7, 512), (3, 8)]
)
def test_numbers_with_channels_last_are_taken_as_they_are(tmp_path, shape):
    x = np.random.default_rng(0).normal(size=(20, *shape)).astype(np.float32)
    np.testing.assert_array_equal(write(tmp_path, x_train=x, x_test=x[:10]).x_train, x)


NAN = np.zeros((20, 4), np.float32)
NAN[3, 1] = np.nan
BAD = {
    "missing": ({"y_test": None}, "has no array y_test"),
    "lengths": ({"y_train": np.zeros(19, int)}, "x_train has 20 samples but y_train has 19"),
    "negative": ({"y_train": np.arange(20) - 1}, "y_train has the label -1 in sample 0"),
    "huge": ({"y_test": np.full(10, 10**9)}, "y_test has the label 1000000000"),
    "unsigned": (
        {"y_test": np.full(10, 2**63, np.uint64)},
        "y_test has the label 9223372036854775808",
    ),
    "over": ({"classes": np.array(3)}, r"label 3 in sample 3: labels are 0 … 2"),
    "classes": ({"classes": np.array([3, 4])}, "classes must be one integer"),
    "real labels": ({"y_train": np.zeros(20)}, "y_train is float64"),
    "nan": ({"x_train": NAN, "x_test": NAN[:10]}, "NaN or infinite, the first in sample 3"),
    "infinite as f32": (
        {"x_train": np.full((20, 4), 1e300), "x_test": NAN[:10]},
        "NaN or infinite, the first in sample 0",
    ),
    "wide labels": ({"y_train": np.zeros((20, 10), int)}, r"y_train has shape \[20, 10\]"),
    "integers": ({"x_train": np.zeros((20, 4), int)}, "x_train is int64"),
    "channels first": ({"x_train": np.zeros((20, 3, 8, 8), np.uint8)}, r"channels last"),
    "real and channels first": (
        {"x_train": np.zeros((20, 3, 8, 8), np.float32)},
        r"channels last; .*x.transpose\(0, 2, 3, 1",
    ),
    "real and grey first": ({"x_train": np.zeros((20, 1, 8, 8))}, r"channels last"),
    "shapes differ": (
        {"x_test": np.zeros((10, 5, 5), np.uint8)},
        "samples are uint8.* in x_train but",
    ),
    "empty": (
        {"x_train": np.zeros((0, 4, 4), np.uint8), "y_train": np.zeros(0, int)},
        "x_train has no samples",
    ),
    "flat": ({"x_train": np.zeros(20, np.uint8)}, r"x_train has shape \[20\]"),
    "objects": ({"x_train": np.array([{}] * 20, object)}, "x_train: cannot be read .Object arrays"),
    "words": (
        {"x_train": np.array(["a"] * 20)},
        "x_train: cannot be read .an array of <U1; only plain numbers",
    ),
    "complex": (
        {"x_train": np.zeros((20, 4), complex)},
        "x_train: cannot be read .an array of complex128",
    ),
    "users": ({"user_train": np.zeros(19, int)}, "user_train is int64.*must be 20 integers"),
    "negative users": ({"user_train": np.full(20, -3)}, "user_train has the number -3"),
    "test users alone": ({"user_test": np.zeros(10, int)}, "without user_train"),
    "two populations": (
        {"user_train": np.zeros(20, int), "population_train": np.arange(20)},
        "user 0 is in more than one",
    ),
    "parts differ": (
        {
            "user_train": np.zeros(20, int),
            "user_test": np.zeros(10, int),
            "population_train": np.zeros(20, int),
        },
        "must be given for the same parts",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_array_is_one_line_that_names_file_and_array(what, tmp_path):
    change, message = BAD[what]
    with pytest.raises(DataError, match=message) as e:
        write(tmp_path, **change)
    assert "toy.npz" in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("shape", [(10**12, 4, 4), (-1, 4, 4), (-2, -2, 4), (21, 4, 4), (0, 4)])
def test_a_header_that_lies_about_its_size_is_one_line(shape, tmp_path):
    zipped(tmp_path, npy(shape, bytes(320)))
    with pytest.raises(
        DataError, match="toy.npz: x_train: (cannot be read|does not fit into memory)"
    ) as e:
        data.load("toy", path=str(tmp_path))
    assert "\n" not in str(e.value)


def test_a_truncated_or_foreign_file_is_refused(tmp_path):
    whole = tmp_path / "toy.npz"
    write(tmp_path)
    content = whole.read_bytes()
    for broken in (
        content[: len(content) // 2],
        b"",
        b"not a zip",
        content[:100] + b"\0" * 50 + content[150:],
    ):
        whole.write_bytes(broken)
        with pytest.raises(DataError, match="toy.npz"):
            data.load("toy", path=str(tmp_path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_flipped_bit_changes_a_value_silently(save, tmp_path):
    file, rng = tmp_path / "toy.npz", np.random.default_rng(0)
    save(file, **arrays())
    content, whole = file.read_bytes(), data.load("toy", path=str(tmp_path))
    refused = 0
    for _ in range(150):
        broken = bytearray(content)
        broken[rng.integers(len(broken))] ^= 1 << rng.integers(8)
        file.write_bytes(broken)
        try:
            read = data.load("toy", path=str(tmp_path))
        except DataError as e:
            refused += "\n" not in str(e)
            continue
        for name in ("x_train", "y_train", "x_test", "y_test"):
            np.testing.assert_array_equal(getattr(read, name), getattr(whole, name))
    assert refused > 75


@pytest.mark.parametrize(
    ("shape", "high", "kind"),
    [
        ((40,), 2, "float32"),
        ((40,), 100, "float32"),
        ((40,), 256, "uint8"),
        ((5, 5, 1), 2, "float32"),
        ((5, 5, 1), 90, "uint8"),
    ],
)
def test_bytes_are_pixels_only_if_they_look_like_pixels(tmp_path, shape, high, kind):
    rng = np.random.default_rng(0)
    parts = {
        f"x_{part}": rng.integers(high, size=(n, *shape), dtype=np.uint8)
        for part, n in (("train", 200), ("test", 40))
    }
    labels = {f"y_{part}": np.arange(n) % 2 for part, n in (("train", 200), ("test", 40))}
    np.savez(tmp_path / "flags.npz", **parts, **labels)
    source = data.load("flags", path=str(tmp_path / "flags.npz"))
    assert source.x_train.dtype == source.x_test.dtype == kind
    assert np.array_equal(source.x_train, parts["x_train"])
