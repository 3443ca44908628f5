"""Tables of two files, row numbers, gaps and shapes: what a column is, is settled once, by its
name."""

import numpy as np
import pytest

from cfljax import data
from tests.importing.helpers import imported, refused, table

RNG = np.random.default_rng(1)


def frame(file, columns):
    text = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    file.write_text("\n".join(text))
    return file


def test_columns_of_a_test_table_go_by_their_names(home):
    a, b = np.arange(40), 100 + np.arange(40)
    frame(home / "train.csv", {"a": a, "b": b, "label": a % 2})
    frame(home / "other.csv", {"label": a[:10] % 2, "b": b[:10], "a": a[:10]})
    imported(home / "train.csv", "--test", home / "other.csv", "--name", "named")
    source = data.load("named")
    np.testing.assert_array_equal(source.x_test, source.x_train[:10])


def test_a_test_table_has_the_columns_of_the_training_table(home, capsys):
    train = table(home / "train.csv", 20)
    fewer, more = home / "fewer.csv", home / "more.csv"
    frame(fewer, {"a": [1, 2], "c": [3, 4], "label": ["no", "yes"]})
    frame(more, {"a": [1, 2], "b": [3, 4], "c": [3, 4], "label": ["no", "yes"]})
    assert "fewer.csv: has no column b" in refused(capsys, train, "--test", fewer)
    assert "more.csv: has a column c" in refused(capsys, train, "--test", more)
    imported(train, "--test", more, "--drop", "c")
    assert data.load("train").x_test.tolist() == [[1, 3], [2, 4]]


def test_one_hot_has_one_vocabulary_for_both_tables(home):
    frame(home / "train.csv", {"city": ["A", "B"] * 10, "label": [0, 1] * 10})
    frame(home / "test.csv", {"city": ["B", "C"], "label": [0, 1]})
    imported(home / "train.csv", "--test", home / "test.csv", "--one-hot", "city")
    source = data.load("train")
    assert source.x_train[:2].tolist() == [[1, 0, 0], [0, 1, 0]] and source.x_test.tolist() == [
        [0, 1, 0],
        [0, 0, 1],
    ]


@pytest.mark.parametrize("high, dtype", [(2, np.float32), (128, np.float32), (256, np.uint8)])
def test_only_numbers_that_look_like_pixels_become_bytes(home, high, dtype):
    x = RNG.integers(high, size=(40, 4))
    x[0] = high - 1
    frame(home / "t.csv", {**dict(zip("abcd", x.T, strict=True)), "label": np.arange(40) % 2})
    frame(
        home / "dark.csv", {**dict(zip("abcd", x[:4].T // 200, strict=True)), "label": [0, 1, 0, 1]}
    )
    imported(home / "t.csv", "--shape", "2x2", "--test", home / "dark.csv")
    source = data.load("t")
    assert source.x_train.dtype == source.x_test.dtype == dtype and source.x_train.shape[1:3] == (
        2,
        2,
    )
    np.testing.assert_array_equal(source.x_train.reshape(40, 4), x)


def test_arrays_of_zeros_and_ones_in_a_shape_stay_numbers(home):
    x = RNG.integers(2, size=(40, 4))
    np.savez(home / "bits.npz", x=x, y=np.arange(40) % 2)
    imported(home / "bits.npz", "--shape", "2x2")
    assert data.load("bits").x_train.dtype == np.float32 and data.load("bits").x_train.max() == 1


def test_owners_of_the_training_samples_alone_are_refused(home, capsys):
    frame(home / "train.csv", {"a": range(20), "label": [0, 1] * 10, "user": [0, 0, 1, 1] * 5})
    frame(home / "test.csv", {"a": range(4), "label": [0, 1] * 2})
    said = refused(capsys, home / "train.csv", "--test", home / "test.csv")
    assert "test.csv: has no column user" in said and "--drop user" in said
    imported(home / "train.csv", "--test", home / "test.csv", "--drop", "user")
    assert data.load("train").user_train is None
    x = np.ones((6, 2), np.float32)
    arrays = {"x_train": x, "y_train": np.arange(6) % 2, "x_test": x[:2], "y_test": [0, 1]}
    np.savez(home / "z.npz", **arrays, user_train=np.arange(6) // 3)
    assert "the training samples have users" in refused(capsys, home / "z.npz")
    (home / "folder").mkdir()
    for name, value in arrays.items():
        np.save(home / "folder" / f"{name}.npy", value)
    np.save(home / "folder" / "user_test.npy", np.zeros(2, int))
    assert "the test samples have users" in refused(capsys, home / "folder")


def test_row_numbers_that_pandas_writes_are_left_out_with_a_line(home, capsys):
    pandas = pytest.importorskip("pandas")
    made = pandas.DataFrame({"a": RNG.normal(size=20), "label": np.arange(20) % 2})
    made.to_csv(home / "t.csv")
    imported(home / "t.csv")
    assert data.load("t").x_train.shape == (16, 1)
    assert '"Unnamed: 0" holds row numbers and is left out' in capsys.readouterr().err
    imported(home / "t.csv", "--drop", "Unnamed: 0", "--replace")
    assert capsys.readouterr().err == ""
    made[made["label"] == 1].to_parquet(home / "half.parquet")
    made.iloc[RNG.permutation(20)].to_parquet(home / "p.parquet")
    imported(home / "p.parquet", "--test", home / "half.parquet")
    assert (
        data.load("p").x_train.shape == (20, 1) and "__index_level_0__" in capsys.readouterr().err
    )
    frame(home / "u.csv", {"": [0.5] * 4, "label": [0, 1] * 2})
    assert 'a column has no name; give it one in the header, or --drop "Unnamed: 0"' in refused(
        capsys, home / "u.csv"
    )


def test_a_class_may_be_called_na_and_what_is_missing_is_refused(home, capsys):
    frame(home / "t.csv", {"a": range(20), "label": ["NA", "EU"] * 10})
    imported(home / "t.csv")
    assert data.load("t").classes == 2
    numbers = frame(home / "n.csv", {"a": range(4), "label": [0, 1, "NA", 1]})
    assert "the label is missing in row 3" in refused(capsys, numbers)
    gap = frame(home / "g.csv", {"a": range(4), "city": ["x", "", "y", "x"], "label": [0, 1] * 2})
    assert "the value is missing in row 2 (column city)" in refused(
        capsys, gap, "--one-hot", "city"
    )
    word = frame(home / "w.csv", {"a": [1, 2, "NA", 4], "label": [0, 1] * 2})
    assert "column a is empty or not finite in row 3" in refused(capsys, word)


def test_a_column_that_is_dropped_is_neither_label_nor_owner(home, capsys):
    file = frame(
        home / "t.csv",
        {"a": range(20), "class": [0, 1] * 10, "label": range(20), "user": range(20)},
    )
    imported(file, "--drop", "label,user")
    assert data.load("t").classes == 2 and data.load("t").user_train is None
    assert "--drop who" in refused(capsys, file, "--drop", "who", "--name", "other")


@pytest.mark.parametrize("test, left", [("test", "validation"), ("validation", None)])
def test_parquet_files_by_their_parts(home, capsys, test, left):
    pandas = pytest.importorskip("pandas")
    (home / "p").mkdir()
    for part, n in {"train": 20, test: 6, left: 4}.items():
        if part:
            made = pandas.DataFrame({"a": np.arange(n), "label": np.arange(n) % 2})
            made.to_parquet(home / "p" / f"{part}-00000-of-00001.parquet")
    (home / "p" / "._train.parquet").write_bytes(b"what a file system keeps")
    imported(home / "p")
    source = data.load("p")
    assert (len(source.y_train), len(source.y_test)) == (20, 6)
    assert ("left out: validation-00000" in capsys.readouterr().err) == (left is not None)


def test_two_test_parts_are_one_too_many(home, capsys):
    np.savez(
        home / "z.npz",
        x_train=np.ones((4, 2)),
        y_train=[0, 1, 0, 1],
        x_test=np.ones((2, 2)),
        y_test=[0, 1],
    )
    (home / "f").mkdir()
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.save(home / "f" / f"{name}.npy", np.load(home / "z.npz")[name])
    assert "has a test part already" in refused(capsys, home / "f", "--test", home / "z.npz")


def test_an_owner_written_1_and_1_0_is_one_and_text_beside_numbers_is_refused(home, capsys):
    users = np.arange(20) % 2
    train = frame(home / "train.csv", {"a": np.arange(20), "user": users + 1, "label": users})
    frame(home / "test.csv", {"a": [1, 2], "user": ["1.0", "2.0"], "label": [0, 1]})
    imported(train, "--test", home / "test.csv")
    source = data.load("train")
    assert source.user_train[:2].tolist() == source.user_test.tolist()
    frame(home / "letters.csv", {"a": [1, 2], "user": ["01", "A2"], "label": [0, 1]})
    assert "column user holds strings, in" in refused(
        capsys, train, "--test", home / "letters.csv", "--replace"
    )
    frame(home / "words.csv", {"a": [1, 2], "user": [1, 2], "label": ["00", "x"]})
    assert "column label holds strings, in" in refused(
        capsys, train, "--test", home / "words.csv", "--replace"
    )


def test_headers_name_each_column_once_and_all_of_them(home, capsys):
    twice, short = home / "twice.csv", home / "short.csv"
    twice.write_text("a,label,label\n" + "1,0,0\n2,1,1\n" * 9)
    short.write_text("a,b,label\n" + "1,2,0,9\n2,3,1,8\n" * 9)
    assert "two columns are called label" in refused(capsys, twice)
    assert "short.csv: a row has more cells than the header" in refused(capsys, short)


def test_a_long_column_has_one_kind_of_names(home):
    (home / "long.csv").write_text("a,label\n" + "1,01\n2,02\n" * 100_000 + "1,x\n2,x\n")
    imported(home / "long.csv")
    assert data.load("long").classes == 3


def test_what_leaves_nothing_to_test_on_is_said(home, capsys):
    imported(frame(home / "one.csv", {"a": [1, 2], "label": [0, 1]}))
    assert "no test samples" in capsys.readouterr().err


def test_a_single_sample_is_refused(home, capsys):
    """It became a data set without test samples, and the exit code was 0."""
    said = refused(capsys, frame(home / "row.csv", {"a": [1], "label": [0]}))
    assert "has a single sample; there is nothing to train and to test on" in said
    assert "row" not in [path.name for path in home.rglob("*") if path.is_dir()]


def test_a_wrong_label_column_is_doubted_where_the_real_one_is_no_number(home, capsys):
    columns = {"a": np.arange(90) * 7, "b": range(90), "sick": ["yes", "no"] * 45}
    file = frame(home / "visits.csv", columns)
    said = refused(capsys, file, "--label", "a")
    assert "column sick holds 'yes'" in said
    assert said.endswith("column a has 90 different values in 90 rows: is it the label?")
    said = refused(capsys, frame(home / "few.csv", columns | {"a": [1, 2] * 45}), "--label", "a")
    assert "is it the label" not in said
