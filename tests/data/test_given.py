"""Data as a program holds them: arrays, frames and Hugging Face's data sets, given as `data=`."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest

import cfljax
from cfljax import api
from cfljax.config import read_spec
from cfljax.data import SOURCES, given, importing, load, npz
from cfljax.data.parts import Wanted
from cfljax.errors import DataError, SpecError

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=120)
X = RNG.normal(size=(120, 5)) + Y[:, None]
USER = np.array(list("NSEW"))[RNG.integers(4, size=120)]
FRAME = pd.DataFrame(X, columns=list("abcde")).assign(
    sick=np.array(["maybe", "no", "yes"])[Y], hospital=USER
)
DRAWN = {"partition": "dirichlet", "clients": 9, "normalise": "pixel"}


class Saved:
    """What cfljax uses of a `datasets.Dataset`: features, columns, and its rows as Arrow."""

    def __init__(self, frame, names):
        self.table = arrow.Table.from_pandas(frame, preserve_index=False)
        self.features = dict.fromkeys(frame) | {"sick": SimpleNamespace(names=names)}
        self.column_names = list(frame)

    def __len__(self):
        return len(self.table)

    def with_format(self, kind):
        assert kind == "arrow"
        return self.table


class SavedDict(dict):
    """What tells a `datasets.DatasetDict` from other dicts."""

    column_names = property(lambda self: {name: part.column_names for name, part in self.items()})
    with_format = None


def source(data, **columns):
    return load(given.register(data, **columns)["name"])


def same(one, other):
    for (name, a), b in zip(one._asdict().items(), other[0:], strict=True):
        if name != "name":
            assert np.array_equal(np.asarray(a), np.asarray(b)), name
    return True


def run_id(data, **columns):
    table = given.register(data, **columns)
    spec = {"data": table, "model": "mclr", "method": "fedavg", "train": {"rounds": 1}}
    (run,) = read_spec(spec).runs()
    return run.id


@pytest.mark.long
def test_a_run_on_arrays_names_them_by_their_contents():
    result = cfljax.run("fedavg", (X, Y, USER), "mclr", rounds=1)
    assert result.status == "done" and result.client_accuracy.shape == (4,)
    assert result.config["data"]["partition"] == "user"
    assert result.run == run_id((X.copy(), Y.copy(), USER.copy()))
    assert len(result.samples(0)[0])


def test_label_and_user_of_a_frame_are_columns_and_other_options_stay(monkeypatch):
    monkeypatch.setattr(api, "one_run", lambda table, **_: table)
    table = cfljax.run("ifca", FRAME, "mclr", label="sick", user="hospital", rounds=1, clusters=2)
    assert table["data"] == given.register(FRAME, label="sick", user="hospital")
    assert table["method"] == [{"name": "ifca", "clusters": 2}] and table["train"] == {"rounds": 1}
    table = cfljax.run("ifca", (X, Y), "mclr", label="mine")
    assert table["method"] == [{"name": "ifca", "label": "mine"}]


def test_one_changed_number_is_another_run():
    changed = X.copy()
    changed[7, 2] += 1e-3
    ids = [run_id((x, y)) for x, y in ((X, Y), (changed, Y), (X, np.roll(Y, 1)))]
    assert len(set(ids)) == 3 and run_id((X, Y)) == ids[0]
    named = [run_id({"name": "mine", "x": x, "y": Y}) for x in (X, changed, X)]
    assert named[0] == named[2] != named[1]


def test_another_process_gives_the_same_arrays_the_same_id():
    code = (
        "import numpy as np; from cfljax.config import read_spec; from cfljax.data import given\n"
        "table = given.register((np.arange(40.0).reshape(20, 2), np.arange(20) % 2))\n"
        "print(read_spec({'data': table, 'method': 'fedavg'}).runs()[0].id)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    table = given.register((np.arange(40.0).reshape(20, 2), np.arange(20) % 2))
    (run,) = read_spec({"data": table, "method": "fedavg"}).runs()
    assert found.stdout.strip() == run.id


def test_what_the_program_does_with_its_arrays_later_changes_nothing():
    x, y = X.copy(), Y.copy()
    held = {"x_train": x[:100], "y_train": y[:100], "x_test": x[100:], "y_test": y[100:]}
    table = given.register(held)
    before = load(table["name"]).x_train.copy()
    x[:] = 0
    assert np.array_equal(load(table["name"]).x_train, before)


def test_arrays_are_read_as_the_file_that_holds_them(tmp_path):
    named = {"x_train": X[:90].astype(np.float32), "y_train": Y[:90], "user_train": USER[:90]}
    named |= {"x_test": X[90:].astype(np.float32), "y_test": Y[90:], "user_test": USER[90:]}
    np.savez(tmp_path / "whole.npz", **named)
    assert same(source(named), npz.read("whole", tmp_path / "whole.npz"))
    pairs = ((X[:90], Y[:90], USER[:90]), (X[90:], Y[90:], USER[90:]))
    assert same(source(pairs), npz.read("whole", tmp_path / "whole.npz"))
    np.savez(tmp_path / "parts.npz", x=X.astype(np.float32), y=Y, user=USER)
    read, _ = importing.read("parts", tmp_path / "parts.npz", "numpy", Wanted())
    assert same(source((X, Y, USER)), read)
    assert same(source({"x": X.tolist(), "y": Y.tolist(), "user": pd.Series(USER)}), read)


def test_frames_are_read_as_the_table_that_holds_them(tmp_path):
    FRAME.to_parquet(tmp_path / "visits.parquet")
    wanted = Wanted(label="sick", user="hospital")
    read, _ = importing.read("visits", tmp_path / "visits.parquet", "parquet", wanted)
    coded = FRAME.astype({"sick": "category", "hospital": "category"})
    for frame in (FRAME, coded, arrow.Table.from_pandas(FRAME)):
        assert same(source(frame, label="sick", user="hospital"), read)
    assert given.register(FRAME, label="sick", user="hospital")["partition"] == "user"


def test_a_hugging_face_data_set_keeps_the_names_of_its_classes():
    frame = FRAME.assign(sick=Y)
    both = Saved(frame, ["maybe", "no", "yes"])
    assert same(source(both, user="hospital"), source(FRAME, label="sick", user="hospital"))
    split = {
        "train": Saved(frame[:90], ["maybe", "no", "yes"]),
        "test": Saved(frame[90:], ["maybe", "no", "yes"]),
    }
    found = source(split | {"user": "hospital"})
    assert (len(found.y_train), len(found.y_test), found.classes) == (90, 30, 3)
    assert same(source(SavedDict(split), user="hospital"), found)
    with pytest.raises(DataError, match="is a stream"):
        streamed = SimpleNamespace(column_names=[], features={}, with_format=None)
        given.register(streamed)


def test_options_beside_arrays_are_those_of_a_spec():
    assert given.register((X, Y)) == DRAWN | {"name": given.register((X, Y))["name"]}
    table = given.register({"x": X, "y": Y, "partition": "iid", "clients": 4, "name": "mine"})
    assert table == {"name": "mine", "partition": "iid", "clients": 4, "normalise": "pixel"}
    images = RNG.integers(256, size=(40, 6, 6), dtype=np.uint8)
    flat = {"x": images.reshape(40, 36), "y": Y[:40], "shape": (6, 6), "test_fraction": 0.5}
    assert source(flat).x_train.shape == (21, 6, 6, 1) and "shape" not in given.register(flat)


@pytest.mark.long
def test_a_sweep_takes_data_of_several_forms(tmp_path):
    held = {"frame": FRAME, "label": "sick", "user": "hospital", "name": "visits"}
    spec = {"data": [held, (X, Y)], "model": "mclr", "method": "fedavg", "train": {"rounds": 1}}
    frame = cfljax.sweep(spec, tmp_path, quiet=True).to_pandas()
    assert list(frame["status"]) == ["done", "done"] and frame["data.name"][0] == "visits"
    assert frame["data.name"][1].startswith("arrays-")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((X,), "not a tuple of 1"),
        (X, "must be a name, a table, arrays (x, y) or (x, y, user)"),
        ((X, Y[:5]), "x has shape [120, 5] and y [5]: one y per sample"),
        ((X, Y, USER[:4]), "user [4]: one user per sample"),
        ({"x": X}, "has no y; it has x"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "has no y_test"),
        ({"x": X, "y": Y, "users": USER}, 'users is no array of a data set; did you mean "user"'),
        ((X, Y + 0.5), "labels are classes, and must be integers or names"),
        ((X, [None] * 120), "y holds None in sample 0; must be integers or texts"),
        (([[1], [2, 3]], [0, 1]), "x cannot be converted to a numpy array"),
        ((X.astype(int), Y), "x_train is int64: save images as uint8 and other numbers as float32"),
        ({"x": X, "y": Y, "drop": "a"}, "drop is not used here; leave it out"),
        ({"x": X, "y": Y, "test_fraction": 2}, "test_fraction = 2: must be between 0 and 1"),
        ({"x": X, "y": Y, "name": "digits"}, 'name = "digits": a built-in data set has this name'),
        (FRAME, 'which column is the label? give label="COLUMN"'),
        ({"frame": FRAME, "label": "sik"}, 'label="sik": data has no such column; did you mean'),
        ({"frame": FRAME, "label": "sick"}, 'drop="hospital", one_hot="hospital"'),
        ({"dev": FRAME}, "data: has no split train; it has dev"),
        ({"frame": FRAME.assign(a=[object()] * 120), "label": "sick"}, "cannot be read as a table"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(data, words):
    with pytest.raises((DataError, SpecError)) as error:
        cfljax.run("fedavg", data, rounds=1)
    assert (
        words in str(error.value) and "\n" not in str(error.value) and "--" not in str(error.value)
    )


def test_another_process_is_told_where_the_arrays_were():
    name = given.register((X, Y))["name"]
    assert name in SOURCES
    with pytest.raises(DataError, match="were given in Python: give the same"):
        cfljax.run("fedavg", "arrays-00000000", rounds=1)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "data"))
    FRAME.to_csv("visits.csv", index=False)
    return tmp_path


def test_samples_and_files_are_imported_alike(home):
    columns = {"label": "sick", "user": "hospital"}
    tables = [
        cfljax.import_data("visits.csv", **columns),
        cfljax.import_data(FRAME, "frame", **columns),
        cfljax.import_data({"x": X, "y": FRAME["sick"], "user": USER, "name": "arrays"}),
    ]
    assert [table["name"] for table in tables] == ["visits", "frame", "arrays"]
    first, *others = (load(table["name"]) for table in tables)
    assert all(same(first, other) for other in others)
    elsewhere = cfljax.import_data((X, Y), "pair", folder="out", shape=(5, 1))
    assert elsewhere["path"] == "out/pair" and elsewhere["partition"] == "dirichlet"
    assert load("pair", path="out/pair").x_train.shape[1:] == (5, 1)
    assert cfljax.import_data((X, Y), "pair", folder="out", replace=True)["name"] == "pair"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"source": "nowhere.csv"}, "nowhere.csv: there is no such file or folder"),
        ({"source": (X, Y)}, 'give the data a name, as in name="visits"'),
        ({"source": (X, Y), "name": "digits"}, 'name="digits": a built-in data set has this name'),
        ({"source": (X, Y), "name": "old"}, "choose another name=, or give replace=True"),
        ({"source": "visits.csv"}, 'give label="COLUMN"'),
        (
            {"source": "visits.csv", "lable": "sick"},
            "lable is not used here; leave it out; did you",
        ),
        ({"source": "visits.csv", "grey": True}, "grey=True: has no effect on an import of csv"),
        ({"source": 3, "name": "three"}, "data: must be a name, a table, arrays"),
    ],
)
def test_an_import_that_cannot_be_is_refused_in_the_words_of_python(home, given, words):
    (home / "data" / "old").mkdir(parents=True)
    with pytest.raises((DataError, SpecError)) as error:
        cfljax.import_data(**given)
    assert words in str(error.value) and "--" not in str(error.value)


def test_a_spec_on_ones_own_data_is_written_from_python(home, monkeypatch, capsys):
    monkeypatch.setattr("cfljax.commands.init._time", lambda _: "")
    files = [
        cfljax.init("visits.csv", label="sick", user="hospital"),
        cfljax.init(FRAME, "frame", label="sick", user="hospital"),
        cfljax.init((X, Y), "pair", folder="out"),
        cfljax.init("digits", "again"),
    ]
    assert [str(file) for file in files] == ["visits.toml", "frame.toml", "pair.toml", "again.toml"]
    assert all(len(read_spec(file).runs()) == 85 for file in files)
    assert "users                4" in capsys.readouterr().out
    with pytest.raises(SpecError, match="visits.toml: exists already"):
        cfljax.init("visits.csv", label="sick")
    with pytest.raises(SpecError, match="give the data a name"):
        cfljax.init((X, Y))
    with pytest.raises(SpecError, match="nowhere.csv: there is no such file or folder"):
        cfljax.init("nowhere.csv")
    with pytest.raises(SpecError, match="label: is for an import, and digits is a data set"):
        cfljax.init("digits", label="sick")
    assert cfljax.init().name == "digits.toml" and (home / "my_method.py").exists()
