"""What imports once did without a word."""

import numpy as np
import pytest
from PIL import Image

from cfljax import data
from tests.importing.helpers import imported, main, pictures, refused, saved


def csv(file, text):
    file.write_text(text)
    return file


def test_of_several_class_labels_the_one_called_label_is_the_label(home, capsys):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    kinds = {name: datasets.ClassLabel(names=["a", "b", "c"]) for name in ("sex", "label", "topic")}
    features = datasets.Features({"x": datasets.Sequence(datasets.Value("float32")), **kinds})
    columns = {
        "x": [[float(i)] for i in range(30)],
        "sex": [i % 2 for i in range(30)],
        "topic": [0] * 30,
    }
    columns["label"] = [i % 3 for i in range(30)]
    whole = datasets.Dataset.from_dict(columns, features=features)
    whole.save_to_disk(home / "three")
    imported(home / "three", "--drop", "sex,topic")
    assert data.load("three").y_train.tolist() == [
        i % 3 for i in data.load("three").x_train[:, 0].astype(int)
    ]
    whole.remove_columns("label").save_to_disk(home / "two")
    assert "columns sex and topic could both be meant; give --label" in refused(
        capsys, home / "two"
    )


def test_a_selection_of_a_data_set_is_that_selection(home):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_dict(
        {"x": [[float(i)] for i in range(20)], "label": [i % 2 for i in range(20)]}
    )
    whole.select(range(0, 20, 2)).save_to_disk(home / "even")
    imported(home / "even")
    assert (data.load("even").x_train % 2 == 0).all()


@pytest.mark.parametrize(
    ("head", "flag"), [("label,class", "--label"), ("label,user,client_id", "--user")]
)
def test_a_second_column_of_labels_or_owners_is_no_feature(home, capsys, head, flag):
    rows = "".join(
        ",".join([str(i), *[str(i % 2)] * (head.count(",") + 1)]) + "\n" for i in range(20)
    )
    file = csv(home / "t.csv", f"a,{head}\n{rows}")
    assert f"could both be meant; give {flag} COLUMN" in refused(capsys, file)


def test_photographs_are_turned_as_their_exif_says(home):
    for kind in ("cat", "dog"):
        (home / "p" / kind).mkdir(parents=True)
        for i in range(4):
            tall = Image.fromarray(np.zeros((6, 4), np.uint8))
            exif = Image.Exif()
            if i % 2:
                tall, exif[0x0112] = tall.rotate(90, expand=True), 6
            tall.save(home / "p" / kind / f"{i}.jpg", exif=exif)
    imported(home / "p")
    assert data.load("p").x_train.shape[1:3] == (6, 4)


def test_names_in_two_forms_of_unicode_are_one_class_and_01_is_no_1(home):
    pictures(home / "p", ("caf\u00e9", "bar"), prefix="train")
    pictures(home / "p", ("cafe\u0301", "bar"), prefix="test")
    imported(home / "p")
    assert data.load("p").classes == 2
    rows = "".join(
        f"{i},{'cat ' if i % 4 else 'cat'},{('001', '1')[i % 2]}\n" if i % 3 else f"{i},dog,2\n"
        for i in range(30)
    )
    imported(csv(home / "t.csv", f"a,label,user\n{rows}"))
    source = data.load("t")
    assert source.classes == 2 and source.user_train.max() == 2


def test_files_that_are_no_images_and_empty_classes_are_told(home, capsys):
    pictures(home / "p")
    (home / "p" / "cat" / "film.mp4").write_bytes(b"")
    (home / "p" / "empty").mkdir()
    imported(home / "p")
    said = capsys.readouterr().err
    assert (
        "1 files of other kinds are left out, such as film.mp4" in said
        and "has no samples in empty" in said
    )


def test_numbers_that_float32_does_not_hold_are_told(home, capsys):
    rows = "".join(f"{1_700_000_000_000 + i},{i % 2}\n" for i in range(20))
    imported(csv(home / "t.csv", f"time,label\n{rows}"))
    assert "column time has integers above 2^24" in capsys.readouterr().err


def test_the_word_test_ends_where_a_letter_follows(home):
    import pyarrow as arrow
    from pyarrow import parquet

    (home / "cities").mkdir()
    for name in ("madrid", "testament", "valencia"):
        parquet.write_table(
            arrow.table({"a": np.arange(10.0), "label": np.arange(10) % 2}),
            home / "cities" / f"{name}.parquet",
        )
    imported(home / "cities")
    source = data.load("cities")
    assert len(source.y_train) + len(source.y_test) == 30 and len(source.y_train) == 24


def test_lists_of_bytes_are_numbers_unless_they_have_a_shape(home):
    import pyarrow as arrow
    from pyarrow import parquet

    bits = arrow.array([[i % 2, 1] for i in range(20)], arrow.list_(arrow.uint8()))
    parquet.write_table(arrow.table({"a": bits, "label": np.arange(20) % 2}), home / "bits.parquet")
    imported(home / "bits.parquet")
    assert data.load("bits").x_train.dtype == np.float32 and data.load("bits").x_train.max() == 1


def test_saved_sets_without_the_package_say_what_to_install(home, capsys, monkeypatch):
    import sys

    saved(home / "hf", {"x": [[1.0]] * 4, "label": [0, 1] * 2})
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert 'pip install ".[import]"' in refused(capsys, home / "hf")


def test_arrays_of_different_lengths_are_told(home, capsys):
    np.savez(home / "short.npz", x=np.zeros((10, 3)), y=np.zeros(9, int))
    np.savez(home / "owners.npz", x=np.zeros((10, 3)), y=np.zeros(10, int), user=np.zeros(7, int))
    assert "x has shape [10, 3] and y [9]: one y per sample" in refused(capsys, home / "short.npz")
    assert "user [7]: one user per sample" in refused(capsys, home / "owners.npz")


def test_owners_of_arrays_may_have_names_and_columns_semicolons(home, capsys):
    many = np.arange(40) % 4
    np.savez(
        home / "named.npz",
        x=np.random.default_rng(0).normal(size=(40, 3)),
        y=many % 2,
        user=np.array(list("abcd"))[many],
    )
    assert main(["import", str(home / "named.npz")]) == 0
    said = capsys.readouterr().out
    assert "4 users" in said and 'normalise = "pixel"' in said
    (home / "semi.csv").write_text("a;b;label\n" + "1;2;0\n3;4;1\n" * 4)
    assert main(["import", str(home / "semi.csv")]) == 0
    said = capsys.readouterr().out
    assert "shape [2]" in said and "clients = 2" in said
    (home / "latin.csv").write_bytes("a,label\n1,schön\n".encode("latin-1"))
    assert "iconv" in refused(capsys, home / "latin.csv")
