"""Tables tell data apart by its contents, and not by where it lay."""

import pytest

from cfljax.report.configurations import collect
from cfljax.results.result import Results
from cfljax.store import Store
from cfljax.store.rows import unify_paths
from tests.store.helpers import make_arrays, make_record

A, B = "a" * 64, "b" * 64


def record(contents, path=None, name="mine", **more):
    data = {"name": name, "partition": "iid"} | ({} if path is None else {"path": path})
    found = {"contents": {"data": contents}} if contents else {}
    return make_record(config={"data": data, "train": {"lr": 0.1}}, **found, **more)


def paths(*records):
    (shown,) = unify_paths({str(i): each for i, each in enumerate(records)})
    return [each["config"]["data"].get("path") for each in shown.values()]


@pytest.mark.parametrize(
    "records, shown",
    [
        ([record(A, "~/x"), record(A, "/elsewhere/x")], ["~/x", "~/x"]),
        ([record(A), record(A, "/x")], [None, None]),
        ([record(A, "/x"), record(A)], ["/x", "/x"]),
        ([record(A, "/x"), record(B, "/y")], ["/x", "/y"]),
        ([record(A, "/x"), record(B, "/x")], ["/x [aaaaaaaa]", "/x [bbbbbbbb]"]),
        ([record(A), record(B)], ["[aaaaaaaa]", "[bbbbbbbb]"]),
        (
            [record(A, "/x"), record(B, "/x"), record(B, "/y")],
            ["/x [aaaaaaaa]", "/x [bbbbbbbb]", "/x [bbbbbbbb]"],
        ),
        ([record(A, "/x"), record(A, "/y", name="other")], ["/x", "/y"]),
        ([record("", "~/x"), record("", "/elsewhere/x")], ["~/x", "/elsewhere/x"]),
        ([make_record(config={}, contents={"data": A}), record(A, "/x")][1:], ["/x"]),
    ],
)
def test_a_file_has_one_place_and_a_place_one_file(records, shown):
    assert paths(*records) == shown


def test_odd_records_are_left_alone():
    for config in ({}, {"data": 3}, {"data": {}, "model": "x"}):
        each = make_record(config=config, contents={"data": A, "model.weights": B, "partition": A})
        assert unify_paths({"a": each})[0]["a"]["config"].keys() == config.keys()


def test_files_that_options_name_have_one_place_too():
    each = [
        make_record(config={"model": {"name": "m", "weights": p}}, contents={"model.weights": A})
        for p in ("/x", "/y")
    ]
    (shown,) = unify_paths(dict(zip("ab", each, strict=True)))
    assert [r["config"]["model"]["weights"] for r in shown.values()] == ["/x", "/x"]
    assert each[1]["config"]["model"]["weights"] == "/y", "the records themselves stay"


@pytest.mark.parametrize("contents", [[], {"data": 1}, "data", None])
def test_a_record_whose_contents_are_no_table_of_sums_is_refused(tmp_path, contents):
    with pytest.raises(ValueError, match="contents is not a table of checksums"):
        Store(tmp_path / "r").write("a", make_record(contents=contents), make_arrays())


def blocks(*folders):
    return len({configuration.block for configuration in collect(folders).configurations})


def test_a_folder_that_was_computed_while_its_data_moved_is_one_block(tmp_path):
    store = Store(tmp_path / "r")
    store.write("a", record(A, "~/x"), make_arrays())
    store.write("b", record(A, "/elsewhere/x", method="fedavg"), make_arrays())
    assert blocks(store.folder) == 1
    assert [each.config["data"]["path"] for each in Results(store.folder)] == [
        "~/x",
        "/elsewhere/x",
    ]
    store.write("c", record(B, "/elsewhere/x", method="fedprox"), make_arrays())
    assert blocks(store.folder) == 2


def test_folders_whose_data_lay_in_one_place_and_differ_are_not_compared(tmp_path):
    for name, contents in (("one", A), ("two", B), ("three", A)):
        Store(tmp_path / name).write("a", record(contents, "/x"), make_arrays())
    assert blocks(tmp_path / "one", tmp_path / "two") == 2
    assert blocks(tmp_path / "one", tmp_path / "three") == 1
