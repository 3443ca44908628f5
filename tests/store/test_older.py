"""Results that an older version computed differently: read, shown, named in one line, and not mixed with today's."""

import warnings
from pathlib import Path

import pytest

import cfljax
from cfljax.commands import report
from cfljax.config import changes as versions
from cfljax.config import read_spec
from cfljax.config.changes import Change
from cfljax.data import SOURCES, reads_files
from cfljax.models import MODELS
from cfljax.report.page import page
from cfljax.report.report_data import read
from cfljax.results.result import Results
from cfljax.store import OlderWarning, Store, older
from tests.store.helpers import make_arrays, make_record

STORE = Path(__file__).parents[2] / "drills" / "stores" / "0.1.0"
FAST = Change("fast", lambda config: config["train"]["lr"] > 0.15, "fast runs rounded down, now up")
SPEC = {
    "data": {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3},
    "model": "mclr",
    "train": {"rounds": 1, "lr": [0.1, 0.2]},
    "method": "fedavg",
}


@pytest.fixture
def changed(monkeypatch):
    """Say which changes today's version has."""

    def say(*changes):
        monkeypatch.setattr(versions, "CHANGES", changes)

    say()
    return say


@pytest.fixture
def folder(tmp_path, changed):
    """Two finished runs of the version before the change."""
    cfljax.sweep(SPEC, tmp_path / "r", quiet=True)
    return tmp_path / "r"


def said(call):
    """(what the call returns, the lines that it says about older versions)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, [str(w.message) for w in caught if issubclass(w.category, OlderWarning)]


def test_a_folder_of_this_version_says_nothing(folder, changed):
    assert said(lambda: cfljax.load(folder))[1] == []
    changed(Change("other", lambda config: config["train"]["lr"] > 1, "nothing that is here"))
    assert said(lambda: cfljax.load(folder))[1] == []


def test_older_runs_are_shown_as_they_are_and_named_in_one_line(folder, changed):
    before = cfljax.load(folder).to_pandas()
    changed(FAST)
    results, (line,) = said(lambda: cfljax.load(folder))
    assert results.to_pandas().equals(before)
    assert f"{folder}: 1 of 2 runs was computed by an older version (fast runs rounded down, now up)" in line
    assert line.endswith(f"compute it again with: the same sweep, started again on {folder}") and "\n" not in line


def test_starting_again_computes_them_anew_and_leaves_the_older_ones_alone(folder, changed):
    old = {name: cfljax.load(folder)[name].record for name in cfljax.load(folder).records}
    changed(FAST)
    results, lines = said(lambda: cfljax.sweep(SPEC, folder, quiet=True))
    assert lines == [
        f"{folder}: 1 run there was computed by an older version (fast runs rounded down, now up); it stays there and is not "
        "mixed in, and what the spec asks for is computed anew"
    ]
    new = {record["config"]["train"]["lr"]: record for record in results.records.values()}
    assert new[0.1]["id"] in old and new[0.2]["id"] not in old and new[0.2]["changes"] == ["fast"]
    assert results.left_out == 1 and len(said(lambda: Results(folder, everything=True))[0]) == 3
    assert {name: Store(folder).read(name).record for name in old} == old
    assert said(lambda: cfljax.load(folder))[1] == said(lambda: cfljax.sweep(SPEC, folder, quiet=True))[1] == []


def test_older_runs_of_a_folder_without_a_plan_are_named_too(folder, changed):
    (folder / "plan.json").unlink()
    changed(FAST)
    _, lines = said(lambda: cfljax.sweep(SPEC, folder, quiet=True))
    assert len(lines) == 1 and "1 run there was computed by an older version" in lines[0]


def test_the_report_says_it_on_standard_error_and_on_the_page(folder, changed, capsys):
    changed(FAST)
    flags = report.parser().parse_args([str(folder), "--no-figures"])
    assert report.run(flags) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"cfljax: {folder}: 1 of 2 runs was computed by an older version") and err.count("\n") == 1
    assert "1 of 2 runs was computed by an older version" in page(read([folder]))


def test_the_command_to_compute_them_again_has_the_flags_of_the_start(tmp_path, changed):
    store = Store(tmp_path / "my results")
    store.write_spec('# --set train.lr=0.1, 0.2\n# --plugin mine.py\n# --set train.lr=0.1, 0.2\n# a comment\nmethod = "fedavg"\n')
    assert older.again(store) == (
        f"python -m cfljax.sweep '{tmp_path}/my results/spec.toml' --set 'train.lr=0.1, 0.2' --plugin mine.py "
        f"--out '{tmp_path}/my results'"
    )


def test_many_changes_are_counted(tmp_path, changed):
    store = Store(tmp_path / "r")
    store.write("a", make_record(changes=["1"]), make_arrays())
    store.write("b", make_record(seed=1), make_arrays())
    changed(*(Change(str(i), lambda config: True, f"what {i}") for i in range(6)))
    _, (line,) = said(lambda: Results(store.folder))
    assert "2 of 2 runs were computed by an older version (what 0; what 1; what 2; and 3 more changes); compute them" in line


def test_a_record_that_lacks_what_a_change_asks_about_is_not_concerned(tmp_path, changed):
    store = Store(tmp_path / "r")
    for number, config in enumerate(({}, {"train": 3}, {"train": {"lr": "fast"}})):
        store.write(str(number), make_record(config=config), make_arrays())
    changed(FAST)
    assert said(lambda: Results(store.folder))[1] == []


@pytest.mark.parametrize("changes", ["fast", [1], {"fast": True}, None])
def test_a_record_whose_changes_are_no_list_of_names_is_refused(tmp_path, changes):
    with pytest.raises(ValueError, match="changes is no list of names"):
        Store(tmp_path / "r").write("a", make_record(changes=changes), make_arrays())


# --- real changes, and records as older versions wrote them -------------------------------------------------------------------


def test_a_folder_of_0_1_0_is_read_and_its_runs_are_found(tmp_path):
    """Nothing that has changed since concerns its runs: their ids are those of today."""
    results, lines = said(lambda: Results(STORE))
    assert len(results) == 4 and lines == []
    assert sorted(run.id for run in read_spec(STORE / "spec.toml").units()) == sorted(results.records)


def test_records_on_files_whose_contents_are_not_known_are_older(tmp_path):
    store = Store(tmp_path / "r")
    config = {"data": {"name": "mnist", "partition": "iid"}, "model": {"name": "mlp"}, "method": {"name": "ifca"}, "train": {}}
    store.write("a", make_record(config=config), make_arrays())
    store.write("b", make_record(config=config, changes=["contents of data"], contents={"data": "0" * 64}), make_arrays())
    digits = config | {"data": {"name": "digits", "partition": "iid"}}
    store.write("c", make_record(config=digits), make_arrays())
    _, (line,) = said(lambda: Results(store.folder))
    assert "1 of 3 runs was computed by an older version (which contents their data files had was not on record)" in line


@pytest.mark.parametrize(
    "older, config",
    [
        (True, {"plugins": ["my_lab.methods"], "method": {"name": "mine"}}),
        (True, {"method": {"name": "from_a_notebook"}}),
        (True, {"model": {"name": "from_a_notebook"}}),
        (True, {"train": {"metrics": ["from_a_notebook"]}}),
        (False, {"plugins": ["/elsewhere/mine.py"], "method": {"name": "mine"}}),
        (False, {}),
    ],
)
def test_records_of_ones_own_methods_are_older_where_their_sum_says_more_now(older, config):
    plain = {"data": {"name": "digits", "partition": "iid"}, "model": {"name": "mlp"}, "method": {"name": "ifca"}, "train": {}}
    assert ("sources of one's own" in [change.name for change in versions.missing(plain | config, [])]) is older


def test_the_names_that_identities_know_are_those_of_the_registries():
    assert [name for name in SOURCES if not SOURCES.origin(name) and not reads_files(name)] == list(versions._COMPUTED)
    assert [name for name in MODELS if MODELS.ours(name)] == list(versions._MODELS)
