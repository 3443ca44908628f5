"""Names of users and classes: two are one only if they are the same integer or the same text."""

import numpy as np
import pytest

from cfljax import data
from cfljax.data.names import number_names, parse_integer
from tests.importing.helpers import imported, refused, saved

LONG = [str(1_234_567_890_123_456_700 + n) for n in range(40)]
HUGE = [str(17_345_678_901_234_567_890 + n) for n in range(20)]


def written(file, names, column="user", repeats=4):
    """A CSV file of samples whose only feature is the position of their name in `names`."""
    other = "label" if column == "user" else "user"
    rows = [
        f"{at},{name},{(at + again) % 2}"
        for again in range(repeats)
        for at, name in enumerate(names)
    ]
    file.write_text("\n".join([f"x,{column},{other}", *rows]))
    return file


def groups(source, numbers):
    """The positions that each number was given to."""
    return {n: set(source.x_train[numbers == n, 0].astype(int)) for n in np.unique(numbers)}


@pytest.mark.parametrize(
    "names",
    [
        LONG,
        HUGE,
        [*LONG, *HUGE],
        ["3.1", "3.2", "3.10", "3.20", "3.100"],
        ["1e400", "2e400", "3e999"],
        ["1", "1.5", "1.50"],
        [str(2**63 - 1), str(2**63), "-1"],
    ],
)
def test_users_of_a_table_stay_apart(home, names):
    imported(written(home / "t.csv", names))
    source = data.load("t")
    assert sorted(groups(source, source.user_train).values(), key=min) == [
        {at} for at in range(len(names))
    ]


@pytest.mark.parametrize("names", [LONG[:5], HUGE[:5], ["7", *HUGE[:5], "-2"]])
def test_classes_of_a_table_stay_apart_and_keep_their_names(home, names):
    imported(written(home / "t.csv", names, "label"))
    source = data.load("t")
    assert len(groups(source, source.y_train)) == source.classes == len(names)
    assert data.mapped.read_names(home / "home/t") == sorted(names, key=int)


def test_one_integer_may_be_written_in_several_ways(home):
    imported(written(home / "t.csv", ["1", "1.0", "2.000e+00", "2", "1e1"]))
    source = data.load("t")
    assert groups(source, source.user_train) == {0: {0, 1}, 1: {2, 3}, 2: {4}}


def test_fractions_of_one_table_go_with_the_integers_of_another(home):
    train = written(home / "train.csv", ["3.1", "3.10", "4.0", "5"])
    imported(train, "--test", written(home / "test.csv", ["5", "4"]))
    source = data.load("train")
    assert groups(source, source.user_train) == {0: {0}, 1: {1}, 2: {2}, 3: {3}}
    assert source.user_test.tolist() == [3, 2] * 4


def test_fractions_are_no_classes(home, capsys):
    file = written(home / "t.csv", ["1", "1.00000000000000000001", "2"], "label")
    assert "the label in row 2 is 1.0000000" in refused(capsys, file)


@pytest.mark.parametrize("column", ["user", "label"])
def test_integers_of_64_bits_of_parquet_stay_apart(home, column):
    pandas = pytest.importorskip("pandas")
    names = np.array([7, 2**63 + 5, 2**63 + 6, 2**63 + 7], np.uint64)
    frame = {"x": np.tile(np.arange(4.0), 5), column: np.tile(names, 5)}
    other = {"label": np.arange(20) // 4 % 2} if column == "user" else {}
    pandas.DataFrame(frame | other).to_parquet(home / "t.parquet")
    small = pandas.DataFrame(frame | other).iloc[::4].astype({column: np.int64})
    small.to_parquet(home / "small.parquet")
    imported(home / "t.parquet", "--test", home / "small.parquet")
    source = data.load("t")
    numbers = source.user_train if column == "user" else source.y_train
    assert groups(source, numbers) == {0: {0}, 1: {1}, 2: {2}, 3: {3}}
    assert set(source.user_test if column == "user" else source.y_test) == {0}


def test_floats_that_cannot_tell_names_apart_are_refused(home, capsys):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [0.0, 1] * 4, "label": [0, 1] * 4, "user": [1.0, 2.0**60] * 4})
    frame.to_parquet(home / "t.parquet")
    assert "float64" in refused(capsys, home / "t.parquet")
    frame.astype({"user": np.float32}).assign(user=np.float32(2**25)).to_parquet(
        home / "narrow.parquet"
    )
    assert "float32" in refused(capsys, home / "narrow.parquet")


def test_columns_of_saved_sets_stay_apart(home):
    datasets = pytest.importorskip("datasets")
    names = np.array([7, 2**63 + 5, 2**63 + 6, 2**63 + 7], np.uint64)
    columns = {
        "x": np.arange(20.0).reshape(20, 1) % 4,
        "label": np.arange(20) // 4 % 2,
        "user": np.tile(names, 5),
    }
    datasets.Dataset.from_dict(columns).save_to_disk(home / "hf")
    imported(home / "hf")
    source = data.load("hf")
    assert groups(source, source.user_train) == {0: {0}, 1: {1}, 2: {2}, 3: {3}}


def test_folders_of_clients_with_long_numbers_stay_apart_and_equal_ones_are_refused(home, capsys):
    for at, client in enumerate([7, 2**63 + 5, 2**63 + 6]):
        saved(home / "c" / f"client_{client}", {"x": [[float(at)]] * 4, "label": [0, 1] * 2})
    imported(home / "c")
    source = data.load("c")
    assert groups(source, source.user_train) == {0: {0}, 1: {1}, 2: {2}}
    saved(home / "c" / "client_07", {"x": [[3.0]] * 4, "label": [0, 1] * 2})
    assert "client_07 and client_7" in refused(capsys, home / "c", "--replace")


@pytest.mark.parametrize("key", ["user", "y"])
def test_arrays_with_and_without_a_sign_stay_apart(home, key):
    ids = np.array([2**53, 2**53 + 1, 2**53 + 2])
    x, y = np.arange(12.0)[:, None] % 3, np.arange(12) % 2
    named = {"x_train": x, "x_test": x, "y_train": y, "y_test": y}
    named |= {f"{key}_train": np.tile(ids, 4), f"{key}_test": np.tile(ids, 4).astype(np.uint64)}
    (home / "f").mkdir()
    for name, values in named.items():
        np.save(home / "f" / f"{name}.npy", values)
    imported(home / "f")
    source = data.load("f")
    numbers = source.user_train if key == "user" else source.y_train
    assert groups(source, numbers) == {0: {0}, 1: {1}, 2: {2}}
    if key == "user":  # the same without an import
        np.savez(home / "z.npz", **named)
        read = data.npz.read("z", home / "z.npz")
        assert len(np.unique(read.user_train)) == 3 and (read.user_test == read.user_train).all()


def test_text_beside_integers_is_refused_in_tables_of_texts_too(home, capsys):
    (home / "train.csv").write_text("text,label,user\n" + "ab,0,1\nba,1,2\n" * 4)
    (home / "test.csv").write_text("text,label,user\nab,0,01\n")
    said = refused(capsys, home / "train.csv", "--text", "text", "--test", home / "test.csv")
    assert "column user holds strings" in said


@pytest.mark.parametrize(
    "text, integer",
    [
        ("12", 12),
        ("-3.0", -3),
        ("1.5e1", 15),
        ("012", None),
        ("1.5", None),
        ("\uff11", None),
        ("1e999999999", None),
        ("1e-999999999", None),
        ("1_0", None),
        ("9" * 5000, None),
    ],
)
def test_only_integers_as_people_write_them_are_integers(text, integer):
    assert parse_integer(text) == integer


def test_names_of_one_part_may_be_floats_and_of_the_other_text():
    names, (first, second) = number_names("t", [np.array([1.0, 2.5]), np.array(["1", "2.50"])])
    assert names == ["1", "2.5", "2.50"]
    assert first.tolist() == [0, 1] and second.tolist() == [0, 2]
