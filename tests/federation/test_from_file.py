"""`partition = "file"`, the files of other programs, and `cfljax data deal`."""

import csv
import dataclasses
import json
import pickle
import shlex
import subprocess
import sys
import tomllib
import warnings

import numpy as np
import pytest

import cfljax
from cfljax.commands import data as command
from cfljax.config import read_spec
from cfljax.errors import DataError, DataWarning, SpecError
from cfljax.experiment.federations import host_federation
from cfljax.federation.common import class_counts
from cfljax.federation.row_files import read_rows, write_rows
from cfljax.registry.options import show
from tests.federation.helpers import fake, parts

SPEC = {"method": ["fedavg"], "model": "mclr", "train": {"rounds": 2, "lr": 0.1}}
# The fake source has 1,200 training rows, then 300 test rows
FEW = {"a": [5, 0, 7], "b": {"train": [9, 3], "test": [1203]}, "c": {"test": [1200, 1201]}}


def written(path, value):
    path.write_text(json.dumps(value) if not isinstance(value, str) else value)
    return str(path)


def run_of(data, train=()):
    return read_spec(SPEC | {"data": data, "train": SPEC["train"] | dict(train)}).runs()[0]


def in_order(made):
    return [rows.tolist() for rows in made.train], [rows.tolist() for rows in made.test]


def test_json_csv_and_npz_say_the_same(tmp_path):
    as_json = written(tmp_path / "a.json", FEW)
    lines = [
        (name, row, part)
        for name, held in FEW.items()
        for part, rows in (held.items() if isinstance(held, dict) else [("train", held)])
        for row in rows
    ]
    as_csv = tmp_path / "a.csv"
    with as_csv.open("w") as stream:
        csv.writer(stream).writerows([("client", "row", "part"), *lines])
    as_npz = tmp_path / "a.npz"
    np.savez(
        as_npz,
        **{"a": np.array([5, 0, 7]), "b/train": np.array([9, 3]), "b/test": np.array([1203])},
        **{"c/test": np.array([1200, 1201])},
    )
    for file in (as_json, str(as_csv), str(as_npz)):
        made = parts("file", fake(), file=file)
        assert in_order(made) == ([[5, 0, 7], [9, 3], []], [[], [1203], [1200, 1201]]), file
        assert made.group.tolist() == [-1, -1, -1]


def test_clients_with_numbers_are_ordered_by_them(tmp_path):
    file = written(tmp_path / "a.json", {"10": [1], "9": [2], "2": [3]})
    assert in_order(parts("file", fake(), file=file))[0] == [[3], [2], [1]]


def test_without_test_rows_clients_are_tested_on_their_mix_of_classes(tmp_path):
    source = fake()
    mixes = {"0": [0, 1], "1": [2, 3, 4]}
    held = {name: np.flatnonzero(np.isin(source.y_train, m)).tolist() for name, m in mixes.items()}
    made = parts("file", source, file=written(tmp_path / "a.json", held))
    for own, rows in zip(mixes.values(), made.test, strict=True):
        assert (rows >= 1200).all() and set(source.y_test[rows - 1200]) == set(own)
    whole = parts("file", source, file=written(tmp_path / "a.json", held), test="global")
    assert whole.test.tolist() == list(range(1200, 1500))


def test_rows_are_held_out_after_dealing_as_pfllib_does(tmp_path):
    held = {"0": list(range(10)), "1": list(range(1190, 1301))}
    made = parts("file", fake(), file=written(tmp_path / "a.json", held), holdout=0.25)
    # PFLlib trains on 0.75 n samples, rounded down
    assert [len(rows) for rows in made.train] == [7, 83]
    for rows, train, test in zip(held.values(), made.train, made.test, strict=True):
        assert sorted([*train, *test]) == rows


# Some of these clients have nothing
EMPTY = {"partition": "dirichlet", "clients": 40, "alpha": 0.01, "min_samples": 0}
SPLITS = {
    "iid": {"partition": "iid", "clients": 6},
    "global": {"partition": "iid", "clients": 6, "holdout": 0.2, "test": "global"},
    "dirichlet": {"partition": "dirichlet", "clients": 6, "alpha": 0.4},
    "copies": {"partition": "rotated", "groups": 2, "clients": 6, "test_clients": 2},
    "shifted": {"partition": "feature_shift", "clients": 6, "normalise": "pixel"},
    "crossed": {
        "partition": "classes",
        "groups": 2,
        "clients": 12,
        "views": ["label_swap", {"name": "rotated", "groups": 3, "angles": [0.0, 15.0, 90.0]}],
        "arrive": {"clients": 2, "round": 1},
        "validation": 0.1,
    },
    "empty": EMPTY,
    "by label": {
        "clients": 6,
        "views": [{"name": "rotated", "groups": 2, "labels": [1, 2]}],
        "views_draw": "random",
        "normalise": "pixel_all",
    },
    "merged": {
        "partition": "dirichlet",
        "balance": "capped",
        "clients": 6,
        "merged": True,
        "holdout": 0.25,
    },
    "drifting": {
        "views": [{"name": "rotated", "groups": 2}],
        "clients": 6,
        "drift": {"at": [1]},
        "seed": 3,
    },
}


def deal(tmp_path, data, suffix, capsys):
    """The `data` table that `cfljax data deal` says after it has dealt these data."""
    spec = tmp_path / "spec.toml"
    tables = SPEC | {"data": {"name": "digits"} | data}
    spec.write_text("".join(f"{key} = {show(value)}\n" for key, value in tables.items()))
    out = tmp_path / f"split{suffix}"
    flags = command.parser().parse_args(["deal", str(spec), "--out", str(out)])
    assert command.run(flags) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    return tomllib.loads(said.removeprefix("use it with: "))["data"]


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("name", list(SPLITS))
def test_what_was_dealt_is_the_same_federation(name, suffix, tmp_path, capsys):
    data = deal(tmp_path, SPLITS[name], suffix, capsys)
    assert data["partition"] == "file"
    dealt = host_federation(run_of({"name": "digits"} | SPLITS[name]))
    assert_same(dealt, host_federation(run_of(data)))


def assert_same(one, other):
    assert type(one) is type(other)
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert np.array_equal(one, other)


def test_runs_on_what_was_dealt_have_the_same_numbers(tmp_path, capsys):
    data = {"partition": "rotated", "groups": 2, "clients": 6}
    dealt = deal(tmp_path, data, ".json", capsys)
    method = {"name": "ifca", "clusters": 2}
    first, second = (
        cfljax.run(method=method, model="mclr", data=each, rounds=3, seed=1)
        for each in ({"name": "digits"} | data, dealt)
    )
    for curve in ("accuracy", "loss", "ari"):
        assert np.array_equal(first.history[curve], second.history[curve], equal_nan=True), curve


def test_csv_has_rows_and_groups_alone(tmp_path, capsys):
    data = {"partition": "dirichlet", "clients": 5}
    again = deal(tmp_path, data, ".csv", capsys)
    assert_same(host_federation(run_of({"name": "digits"} | data)), host_federation(run_of(again)))
    refusals = (
        ({"partition": "rotated", "clients": 8}, "views"),
        ({"clients": 8, "test": "global"}, "test part"),
        (EMPTY, "clients without rows"),
    )
    for refused, what in refusals:
        with pytest.raises(SpecError, match=f"CSV has no place for .*{what}.*json or .npz"):
            deal(tmp_path, refused, ".csv", capsys)


def test_new_samples_are_no_rows(tmp_path, capsys):
    with pytest.raises(SpecError, match="new samples.*data.views"):
        deal(tmp_path, {"partition": "corrupted", "clients": 8}, ".json", capsys)
    with pytest.raises(SpecError, match="--out .*: must end in"):
        deal(tmp_path, {}, ".txt", capsys)
    with pytest.raises(SpecError, match="has 2 ways to divide data; choose one"):
        deal(tmp_path, {"clients": [4, 5]}, ".json", capsys)


def test_the_id_is_of_what_the_file_says_and_not_of_its_path(tmp_path):
    one = written(tmp_path / "one.json", {"0": [0, 1], "1": [2]})
    other = written(tmp_path / "other.json", {"0": [0, 1], "1": [2]})
    runs = [run_of({"name": "digits", "partition": "file", "file": file}) for file in (one, other)]
    assert runs[0].id == runs[1].id
    written(tmp_path / "other.json", {"0": [0, 1], "1": [3]})
    changed = run_of({"name": "digits", "partition": "file", "file": other})
    assert changed.id != runs[0].id
    # What was planned is not what is there any more
    written(tmp_path / "other.json", {"0": [0, 1], "1": [4]})
    with pytest.raises(DataError, match="has changed since the runs were planned"):
        host_federation(changed)


WRONG = {
    "range": ({"0": [0, 1500]}, r'client "0" holds row 1500, and fake has rows 0 to 1499'),
    "below": ({"0": [0, -1]}, 'client "0" holds row -1'),
    "two clients": ({"0": [0, 4], "1": [4]}, 'row 4 is held by clients "0" and "1"; remove it'),
    "one client": ({"0": [4, 4]}, 'row 4 is held by client "0" twice'),
    "tested": (
        {"0": {"train": [1, 2], "test": [2]}},
        "row 2 is for training and for testing; rows of test samples are numbered from 1200 on",
    ),
    "empty": ({"0": [1], "1": []}, 'client "1" has no rows; give it some, or remove it'),
    "no clients": ({}, "has no clients"),
    "no training": ({"0": {"test": [1200]}}, "no client has training rows"),
    "words": ({"0": ["a"]}, 'client "0": must be a list of row numbers'),
    "fractions": ({"0": [0.5]}, "must be a list of row numbers"),
    "nested": ({"0": [[1], [2, 3]]}, "must be a list of row numbers"),
    "keys": ({"0": {"trian": [1]}}, 'trian is unknown; did you mean "train"'),
    "list": ([[0, 1]], 'must be {"CLIENT": [rows], …}'),
    "twice": ('{"0": [1], "0": [2]}', 'cannot be read as JSON ("0" is there twice)'),
    "damaged": ('{"0": [1', "cannot be read as JSON"),
    "other data": (
        {"samples": [60000, 10000], "clients": {"0": [1]}},
        "was made for 60000 training and 10000 test samples, and fake has 1200 and 300",
    ),
    "test for all": (
        {"test": [1500], "clients": {"0": [1]}},
        "the test part holds row 1500",
    ),
    "view": ({"clients": {"0": {"train": [1], "view": 1}}}, "names a view that is not there"),
    "table": (
        {"views": {"labels": [[0, 1]]}, "clients": {"0": {"train": [1], "view": 0}}},
        "the view table labels does not fit fake",
    ),
    "group": ({"0": {"train": [1], "group": -3}}, "group: must be a whole number from 0 on"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_is_wrong_with_a_file_is_one_line(name, tmp_path):
    value, says = WRONG[name]
    with pytest.raises(DataError) as error:
        parts("file", fake(), file=written(tmp_path / "a.json", value))
    assert says.replace("\\", "") in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "a.json")) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client,rows\n", "its first line must be client,row"),
        ("client,row\n0,1,2\n", "line 2: has 3 columns"),
        ("client,row\n0,x\n", 'line 2: row = "x": must be a whole number'),
        ("client,row,part\n0,1,valid\n", 'line 2: part = "valid": must be train or test'),
        ("client,row,group\n0,1,0\n0,2,1\n", 'line 3: client "0" has two groups'),
        ("", "its first line must be client,row"),
    ],
)
def test_a_wrong_line_of_csv_is_named(text, says, tmp_path):
    with pytest.raises(DataError, match=says):
        parts("file", fake(), file=written(tmp_path / "a.csv", text))


def test_rows_may_be_shared_if_it_is_meant(tmp_path):
    file = written(tmp_path / "a.json", {"0": [0, 4], "1": [4, 1]})
    assert in_order(parts("file", fake(), file=file, shared=True))[0] == [[0, 4], [4, 1]]


def test_options_that_do_not_fit_the_file_are_refused(tmp_path):
    file = written(tmp_path / "a.json", {"0": {"train": [0], "test": [1200]}, "1": [1201]})
    wrong = [
        ({"clients": 3}, "data.clients = 3: .* has 2 clients; give 2"),
        ({"holdout": 0.1}, "data.holdout = 0.1: .* has test rows; leave holdout out"),
        ({"test": "global"}, "clients train on test samples .*; give each client test rows"),
        ({"names": file}, 'data.names = .*: belongs to format = "fedgwc"'),
        ({"format": "pflib", "shared": True}, "data.shared = true: rows of .* are drawn"),
        ({"format": "pfllib"}, 'data.format = "pfllib": unknown; did you mean "pflib"'),
    ]
    for options, says in wrong:
        with pytest.raises(SpecError, match=says):
            parts("file", fake(), file=file, **options)
    missing = {"name": "digits", "partition": "file", "file": str(tmp_path / "no.json")}
    with pytest.raises(SpecError, match="data.file = .*: there is no such file"):
        run_of(missing)
    with pytest.raises(DataError, match="must be a .json, .csv or .npz file"):
        parts("file", fake(), file=written(tmp_path / "a.txt", "1"))


class Trap:
    """Unpickling it would end the test."""

    def __reduce__(self):
        return exec, ("raise SystemExit",)


def test_nothing_is_unpickled(tmp_path):
    trap = pickle.dumps(Trap())
    for name, form in (("partition.pkl", "rows"), ("partition.pkl", "fl-bench")):
        (tmp_path / name).write_bytes(trap)
        with pytest.raises(DataError, match="python -c .*'partition.json'"):
            parts("file", fake(), file=str(tmp_path / name), format=form)
    np.savez(tmp_path / "0.npz", data=np.array({"x": Trap()}, dtype=object))
    with pytest.raises(DataError, match="cannot be read"):
        parts("file", fake(), file=str(tmp_path / "0.npz"))
    with pytest.raises(DataError, match="pickled samples.*config.json"):
        parts("file", fake(), file=str(tmp_path / "0.npz"), format="pflib")


def test_fl_benchs_partition_is_converted_by_the_command_of_the_message(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    held = np.split(rng.permutation(1500), [300, 900])
    indices = [{"train": h[30:], "val": h[20:30], "test": h[:20]} for h in held]
    partition = {"separation": {"train": [0, 1, 2]}, "data_indices": indices}
    (tmp_path / "partition.pkl").write_bytes(pickle.dumps(partition))
    with pytest.raises(DataError) as error:
        parts("file", fake(), file=str(tmp_path / "partition.pkl"), format="fl-bench")
    command = shlex.split(str(error.value).rpartition("with: ")[2])
    subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True)
    with pytest.warns(DataWarning, match="30 rows for validation are left out"):
        made = parts("file", fake(), file=str(tmp_path / "partition.json"), format="fl-bench")
    assert in_order(made) == (
        [each["train"].tolist() for each in indices],
        [each["test"].tolist() for each in indices],
    )
    with pytest.raises(DataError, match="has no list data_indices"):
        parts("file", fake(), file=written(tmp_path / "b.json", {}), format="fl-bench")


def plain_pfllib(labels, clients, alpha, rng):
    """Counts as PFLlib's config.json has them: [label, number] of each class that a client has."""
    shares = rng.dirichlet(np.full(clients, alpha), labels.max() + 1)
    counts = np.stack([rng.multinomial((labels == m).sum(), p) for m, p in enumerate(shares)], 1)
    return counts, [[[m, int(n)] for m, n in enumerate(own) if n] for own in counts]


def test_pfllibs_config_says_how_many_of_each_class(tmp_path):
    source = fake()
    labels = np.concatenate([source.y_train, source.y_test])
    counts, statistic = plain_pfllib(labels, 6, 1.0, np.random.default_rng(1))
    config = {"num_clients": 6, "Size of samples for labels in clients": statistic}
    file = written(tmp_path / "config.json", config)
    made = parts("file", source, file=file, format="pflib")
    found = class_counts(made.train, source) + class_counts(made.test, source)
    assert np.array_equal(found, counts)
    sizes = counts.sum(1)
    assert [len(rows) for rows in made.train] == [int(0.75 * n) for n in sizes]
    rows = np.concatenate([*made.train, *made.test])
    assert len(np.unique(rows)) == len(rows) == counts.sum()
    other = parts("file", source, seed=1, file=file, format="pflib")
    assert not np.array_equal(made.train[0], other.train[0])
    smaller = fake(600, 300)
    with pytest.raises(DataError, match="asks for .* samples of class .*, and fake has"):
        parts("file", smaller, file=file, format="pflib")
    with pytest.raises(DataError, match='has no list "Size of samples'):
        parts("file", source, file=written(tmp_path / "b.json", {}), format="pflib")


def blueprint(path, train, test, central):
    """A blueprint as OCFL's archive has it."""
    classes = len(central)
    lines = ["client_id,partition,total_samples," + ",".join(map(str, range(classes)))]
    named = [("orchestrator", "central_test_set", central)]
    for client, own in enumerate(zip(train, test, strict=True)):
        named += [
            (client, f"{part}_set", n) for part, n in zip(("train", "test"), own, strict=True)
        ]
    lines += [f"{client},{part},{sum(n)}," + ",".join(map(str, n)) for client, part, n in named]
    return written(path, "\n".join(lines) + "\n")


@pytest.mark.parametrize(("each", "overlaps"), [(20, False), (50, True)])
def test_a_blueprint_of_ocfls_archive_says_how_many_of_each_class(each, overlaps, tmp_path):
    source = fake(classes=4)  # 300 training samples of each class
    train = [[each, each, 0, 0]] * 4 + [[0, each, 2 * each, each]] * 4
    test = [[each // 2, 5, 0, 0]] * 4 + [[0, 0, 0, each // 2]] * 4
    central = np.bincount(source.y_test, minlength=4).tolist()
    file = blueprint(tmp_path / "MNIST_8.csv", train, test, central)
    made = parts("file", source, file=file, format="ocfl-archive")
    assert class_counts(made.train, source).tolist() == train
    assert class_counts(made.test, source).tolist() == test
    for own in zip(made.train, made.test, strict=True):
        rows = np.concatenate(own)
        assert len(np.unique(rows)) == len(rows) and rows.max() < 1200
    # A class is dealt around again only if there are not enough samples of it
    rows = np.concatenate([*made.train, *made.test])
    assert (len(np.unique(rows)) < len(rows)) == overlaps
    wrong = blueprint(tmp_path / "b.csv", train, test, [1, 2, 3, 4])
    with pytest.raises(DataError, match="made for 10 test samples with other labels"):
        parts("file", source, file=wrong, format="ocfl-archive")
    with pytest.raises(DataError, match="label 3 is beyond the 3 classes"):
        parts("file", fake(classes=3), file=file, format="ocfl-archive")
    with pytest.raises(DataError, match="is no blueprint"):
        parts("file", source, file=written(tmp_path / "c.csv", "a,b\n"), format="ocfl-archive")


def test_fedgwc_names_images(tmp_path):
    source = fake()
    y = {"train": source.y_train, "test": source.y_test}
    names = {part: [f"{part}_{row:04}.png" for row in range(len(y[part]))] for part in y}
    listed = written(tmp_path / "names.json", names)
    rng = np.random.default_rng(2)
    held = {part: np.split(rng.permutation(len(y[part])), [100, 150])[:2] for part in y}

    def table(client, part):
        rows = held[part][client]
        return {"x": [names[part][row] for row in rows], "y": y[part][rows].tolist()}

    clients = {str(c): {part: table(c, part) for part in y} for c in range(2)}
    file = written(tmp_path / "dataset_alpha_0.50.json", clients | {"server_imgs": {}})
    made = parts("file", source, file=file, format="fedgwc", names=listed)
    assert in_order(made) == (
        [rows.tolist() for rows in held["train"]],
        [(1200 + rows).tolist() for rows in held["test"]],
    )
    with pytest.raises(DataError, match="data.names.*python -c"):
        parts("file", source, file=file, format="fedgwc")
    clients["0"]["train"]["y"][0] += 1
    wrong = written(tmp_path / "b.json", clients)
    with pytest.raises(DataError, match='client "0", train: .* has label .*; give the data set'):
        parts("file", source, file=wrong, format="fedgwc", names=listed)
    short = written(tmp_path / "short.json", {part: each[1:] for part, each in names.items()})
    with pytest.raises(DataError, match="train must be a list of 1200 names"):
        parts("file", source, file=file, format="fedgwc", names=short)


def test_what_is_written_is_read_again(tmp_path):
    source = fake()
    made = parts("rotated", source, clients=8, groups=2, test_clients=2)
    for name in ("a.json", "a.npz"):
        write_rows(tmp_path / name, made, source)
        dealt = read_rows(tmp_path / name)
        assert dealt.samples == (1200, 300)
        assert np.array_equal(dealt.view, made.view)
        assert np.array_equal(dealt.tables["pixels"], made.pixels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_order(parts("file", source, file=str(tmp_path / "a.npz"))) == in_order(made)
