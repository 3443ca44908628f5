"""People's own data: what `python -m cfljax.data import` makes of it, and what it says where it
cannot."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import cfljax
from cfljax import data
from cfljax.data import mapped
from cfljax.data.prepare import prepare
from cfljax.errors import DataError
from tests.importing.helpers import RNG, imported, main, pictures, refused, table


def test_images_in_folders_by_class(home):
    pictures(home / "pets")
    imported(home / "pets")
    source = data.load("pets")
    assert (
        source.x_train.dtype == np.uint8
        and source.x_train.shape == (10, 5, 4, 3)
        and source.x_test.shape[0] == 2
    )
    assert source.classes == 2 and json.loads((home / "home/pets/cfljax.json").read_text())[
        "class_names"
    ] == ["cat", "dog"]
    assert isinstance(source.x_train, np.memmap) and not source.x_train.flags.writeable


def test_images_with_a_test_folder_owners_and_another_size(home):
    for owner in ("ann", "bob"):
        pictures(home / "w" / "train", prefix=owner, mode="L")
        pictures(home / "w" / "test", prefix=owner, mode="L", n=2)
    imported(home / "w", "--by-user", "--shape", "8x8", "--name", "writers")
    source = data.load("writers")
    assert source.x_train.shape == (24, 8, 8, 1) and source.x_test.shape == (8, 8, 8, 1)
    assert list(np.bincount(source.user_train)) == [12, 12] and list(
        np.bincount(source.user_test)
    ) == [4, 4]


def test_a_table_with_owners_becomes_a_federation_that_trains(home):
    n = 80
    table(
        home / "visits.csv",
        n,
        user=np.array(["north", "south", "east", "west"])[RNG.integers(4, size=n)],
        city=["x"] * n,
    )
    imported(home / "visits.csv", "--one-hot", "city")
    source = data.load("visits")
    assert source.x_train.shape[1:] == (3,) and source.classes == 2
    assert set(source.user_train) == set(source.user_test) == {0, 1, 2, 3}
    result = cfljax.run(
        "fedavg", data={"name": "visits", "partition": "user"}, model="mclr", rounds=1
    )
    assert result.status == "done" and len(result.labels) == 4


def test_numbers_in_a_shape_become_images(home):
    pixels = {f"p{i}": RNG.integers(256, size=20) for i in range(12)}
    table(home / "t.csv", 20, **pixels)
    imported(home / "t.csv", "--drop", "a,b", "--shape", "3x4")
    assert (
        data.load("t").x_train.shape == (16, 3, 4, 1) and data.load("t").x_train.dtype == np.uint8
    )


def test_parquet_with_lists_and_a_test_file(home):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def save(file, n):
        vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(RNG.normal(size=n * 5)), 5)
        columns = {
            "v": vectors,
            "y": arrow.array(np.arange(n) % 3),
            "client": arrow.array([f"c{i % 4}" for i in range(n)]),
        }
        parquet.write_table(arrow.table(columns), file)

    save(home / "p.parquet", 24)
    save(home / "q.parquet", 12)
    imported(home / "p.parquet", "--test", home / "q.parquet")
    source = data.load("p")
    assert source.x_train.shape == (24, 5) and len(source.y_test) == 12 and source.classes == 3
    assert len(np.unique(source.user_train)) == 4


def test_a_saved_hugging_face_data_set(home):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features({
        "image": datasets.Array2D((4, 4), "uint8"), "note": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["neg", "pos"]), "speaker": datasets.Value("int64"),
    })  # fmt: skip

    def split(n):
        image = RNG.integers(256, size=(n, 4, 4), dtype=np.uint8)
        columns = {
            "image": image.tolist(),
            "note": ["x"] * n,
            "label": np.arange(n) % 2,
            "speaker": np.arange(n) % 5,
        }
        return datasets.Dataset.from_dict(columns, features=features)

    datasets.DatasetDict({"train": split(20), "test": split(10)}).save_to_disk(home / "hf")
    imported(home / "hf", "--user", "speaker", "--drop", "note")
    source = data.load("hf")
    assert (
        source.x_train.shape == (20, 4, 4, 1)
        and len(source.y_test) == 10
        and len(np.unique(source.user_train)) == 5
    )
    assert json.loads((home / "home/hf/cfljax.json").read_text())["class_names"] == ["neg", "pos"]


def test_leaf_and_numpy(home):
    for part, n in (("train", 3), ("test", 1)):
        (home / "leaf" / part).mkdir(parents=True)
        users = {
            u: {"x": RNG.normal(size=(n, 4)).tolist(), "y": [0, 1, 1][:n]} for u in ("u1", "u2")
        }
        (home / "leaf" / part / "a.json").write_text(
            json.dumps({"users": list(users), "user_data": users})
        )
    imported(home / "leaf")
    assert data.load("leaf").user_train is not None
    (home / "arrays").mkdir()
    for name, value in {
        "x": RNG.normal(size=(30, 4)),
        "y": np.arange(30) % 3,
        "user": np.arange(30) % 5,
    }.items():
        np.save(home / "arrays" / f"{name}.npy", value)
    imported(home / "arrays")
    source = data.load("arrays")
    assert (
        source.x_train.dtype == np.float32 and len(source.y_train) == 25 and len(source.y_test) == 5
    )
    np.savez(home / "z.npz", x_train=np.ones((4, 2), np.float32), y_train=np.arange(4) % 2, x_test=np.ones((2, 2), np.float32),
             y_test=[0, 1])  # fmt: skip
    imported(home / "z.npz")
    assert len(data.load("z").y_train) == 4


@pytest.mark.parametrize("change", ["bit", "shape", "dtype", "gone", "manifest", "pickle"])
def test_what_is_not_as_it_was_written_is_refused(home, change):
    source = data.load("blobs", {"samples": 100})
    folder = home / "kept"
    mapped.write(source, folder, ["a", "b"], "here")
    file, manifest = folder / "x_train.npy", folder / mapped.MANIFEST
    if change == "bit":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    elif change == "gone":
        file.unlink()
    elif change == "manifest":
        manifest.write_text("[")
    elif change == "pickle":
        np.save(file, np.array([{}], object), allow_pickle=True)
        entry = json.loads(manifest.read_text())
        entry["arrays"]["x_train"]["bytes"] = file.stat().st_size
        manifest.write_text(json.dumps(entry))
    else:
        entry = json.loads(manifest.read_text())
        entry["arrays"]["x_train"][change] = [1, 2] if change == "shape" else "<f8"
        manifest.write_text(json.dumps(entry))
    with pytest.raises(cfljax.DataError, match="import the data again"):
        mapped.read("kept", folder, checksums=change != "pickle")


def test_mistakes_are_one_line_that_names_the_column(home, capsys):
    file = table(home / "t.csv", 20, city=["a"] * 20, hole=[1.0] * 19 + [""])
    assert "column city" in refused(capsys, file, "--drop", "hole")
    assert "column hole" in refused(capsys, file, "--drop", "city") and "row 20" in refused(
        capsys, file, "--drop", "city"
    )
    assert 'did you mean "label"' in refused(capsys, file, "--label", "lable")
    assert "--user who" in refused(capsys, file, "--user", "who")
    assert "labels are classes" in refused(
        capsys, file, "--label", "a", "--drop", "city,hole,label"
    )
    assert "2 numbers" in refused(capsys, file, "--drop", "city,hole", "--shape", "2x3")
    assert "--shape 2y3" in refused(capsys, file, "--shape", "2y3")
    assert "--shape 9999" in refused(capsys, file, "--shape", "9" * 5000 + "x2")
    assert "no such file" in refused(capsys, home / "nothing")
    assert "has no rows" in refused(capsys, table(home / "e.csv", 0))
    imported(file, "--drop", "city,hole")
    assert "--replace" in refused(capsys, file, "--drop", "city,hole")
    imported(file, "--drop", "city,hole", "--replace")
    assert [p.name for p in (home / "home").iterdir()] == ["t"]


def test_images_that_do_not_fit_or_are_none(home, capsys):
    pictures(home / "p", n=2)
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(home / "p/dog/z.png")
    assert "dog/z.png" in refused(capsys, home / "p")
    imported(home / "p", "--shape", "4x4")
    (home / "p/dog/z.png").write_bytes(b"no image")
    assert "dog/z.png" in refused(capsys, home / "p", "--shape", "4x4", "--name", "other")
    (home / "empty" / "cat").mkdir(parents=True)
    assert "no images" in refused(capsys, home / "empty")


def test_the_command_says_how_to_use_it(home):
    table(home / "t.csv", 40, user=np.arange(40) % 4)
    environment = os.environ | {"CFLJAX_DATA": str(home / "home")}
    flags = [sys.executable, "-m", "cfljax.data", "import", str(home / "t.csv")]
    done = subprocess.run(flags, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stderr == ""
    assert 'data = { name = "t", partition = "user", normalise = "pixel" }' in done.stdout


def test_an_npz_file_without_a_test_part_is_split_like_a_folder_of_arrays(home):
    x, y = RNG.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    np.savez(home / "bare.npz", x=x, y=y, user=np.arange(40) // 10)
    np.savez(home / "sided.npz", x_train=x, y_train=y)
    for name in ("bare", "sided"):
        imported(home / f"{name}.npz")
        made = data.load(name)
        assert (len(made.y_train), len(made.y_test)) == (32, 8)
        assert (made.user_train is not None) == (name == "bare")


def test_a_built_in_name_never_stands_for_other_data(home, capsys):
    np.savez(home / "a.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    assert "choose another" in refused(capsys, home / "a.npz", "--name", "blobs")
    with pytest.raises(DataError, match="built in and reads no files"):
        data.load("digits", path=str(home / "a.npz"))
    (home / "home").mkdir(exist_ok=True)
    (home / "a.npz").rename(home / "home" / "digits.npz")
    assert main(["list"]) == 0
    assert "digits.npz (hidden" in capsys.readouterr().out


def test_a_file_of_that_name_never_stands_for_what_is_imported(home, capsys):
    (home / "home").mkdir()
    x = np.ones((6, 2), np.float32)
    old = home / "home" / "mine.npz"
    np.savez(old, x_train=x, y_train=np.arange(6) % 2, x_test=x, y_test=np.arange(6) % 2)
    file = table(home / "mine.csv")
    said = refused(capsys, file)
    assert "mine.npz: would be read instead of" in said and "choose another --name" in said
    imported(file, "--name", "other")
    other = home / "home" / "other.npz"
    old.rename(other)
    with pytest.raises(DataError, match="a file other.npz and imported data other/; rename one"):
        data.load("other")
    assert main(["list"]) == 0 and "other" in capsys.readouterr().out
    other.unlink()
    assert len(data.load("other").y_train) == 48


@pytest.mark.parametrize("name", ["kmnist", "svhn_cropped"])
def test_a_file_of_that_name_never_stands_for_what_is_prepared(home, name):
    (home / "home").mkdir()
    (home / "home" / f"{name}.npz").write_bytes(b"")
    with pytest.raises(DataError, match=f"{name}.npz: would be read instead of"):
        prepare(name)


def test_grey_pictures_have_one_channel(home):
    for kind, colour in {"dark": (10, 10, 10), "red": (255, 0, 0)}.items():
        (home / "pets" / kind).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (3, 2), colour).save(home / "pets" / kind / f"{i}.png")
    imported(home / "pets", "--grey", "--test-fraction", "0.5")
    source = data.load("pets")
    assert source.x_train.shape == (4, 2, 3, 1) and source.x_test.shape == (4, 2, 3, 1)
    values = {
        int(v): int(k)
        for k, v in zip(source.y_train, np.asarray(source.x_train)[:, 0, 0, 0], strict=True)
    }
    assert values == {10: 0, 76: 1}  # ITU-R 601: 0.299 of the red


def test_x_names_the_columns_of_the_samples(home):
    lines = ["a,b,c,label", *(f"{i},{10 * i},{100 * i},{i % 2}" for i in range(1, 11))]
    (home / "numbers.csv").write_text("\n".join(lines))
    imported(home / "numbers.csv", "--x", "c,a", "--test-fraction", "0.4")
    source = data.load("numbers")
    assert source.x_train.shape == (6, 2) and source.x_test.shape == (4, 2)
    rows = np.sort(np.concatenate([source.x_train, source.x_test]), axis=0)
    np.testing.assert_array_equal(rows, [[100 * i, i] for i in range(1, 11)])
