"""Runs that an earlier version computed with a fault are told of, and no others are."""

import warnings
from pathlib import Path

import pytest

import cfljax
from cfljax.commands import cli
from cfljax.config import read_spec
from cfljax.config.revisions import REVISIONS
from cfljax.store import Store
from cfljax.store.errata import ErrataWarning, Erratum, describe_errata, read_errata
from tests.config.test_ids import AS_BEFORE, MENDED, WHOLE

ROOT = Path(__file__).parents[2]
SPEC = {
    "data": {"name": "blobs", "samples": 60, "clients": 3, "normalise": ["pixel", "unit"]},
    "model": "mclr",
    "train": {"rounds": 1},
    "method": "fedavg",
}


def of_version(folder, version, errata=None):
    """Rewrite the records of a folder as those of a version of cfljax."""
    store = Store(folder)
    for run in store.ids():
        record, arrays = store.read(run)
        record["versions"]["cfljax"] = version
        record["errata"] = errata
        store.write(run, record, arrays)


def test_a_folder_with_runs_of_a_known_fault_gets_one_line(tmp_path, capsys):
    cfljax.sweep(SPEC, tmp_path / "r", quiet=True)
    report, load = (
        [command, str(tmp_path / "r"), *flags]
        for command, flags in (("report", ["--no-figures"]), ("load", []))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cfljax.load(tmp_path / "r")
    capsys.readouterr()
    assert cli.main(report) == cli.main(load) == 0 and capsys.readouterr().err == ""
    of_version(tmp_path / "r", "0.2.0")
    with pytest.warns(ErrataWarning, match=r"1 of 2 runs may be wrong.*pixel-views \(1\)") as said:
        cfljax.load(tmp_path / "r")
    assert len(said) == 1 and said[0].filename == __file__
    for command in (report, load):
        assert cli.main(command) == 0
        assert capsys.readouterr().err.count("pixel-views") == 1
    of_version(tmp_path / "r", "0.3.0")
    assert cli.main(load) == 0 and capsys.readouterr().err == ""


def test_a_record_counts_the_faults_that_were_mended():
    pixel = next(each for each in read_errata() if each.id == "pixel-views")
    record = {"config": {"data": {"normalise": "pixel"}}, "versions": {"cfljax": "0.2.0"}}
    assert pixel.concerns(record) and pixel.concerns(record | {"errata": pixel.number - 1})
    assert not pixel.concerns(record | {"errata": pixel.number})
    assert pixel.concerns(record | {"versions": {"cfljax": "not installed"}})
    assert pixel.concerns(record | {"versions": {"cfljax": "0.1.0"}})
    assert not pixel.concerns(record | {"versions": {"cfljax": "0.10.0"}})
    assert describe_errata("r", [record | {"config": {}}]) == ""


@pytest.mark.parametrize(
    "condition, fitting, other",
    [
        (
            ["rotated"],
            ["rotated", [{"name": "rotated"}, "x"], {"name": "rotated"}],
            ["x", [], None],
        ),
        (True, ["krum", {"name": "krum"}, 3, False], [None, [], "none"]),
        (False, [None, [], "none"], ["last", 0]),
        ({"above": 0}, [1, 0.1], [0, 0.0, None, "1", True]),
        ({"below": 1}, [0.5, 0.0], [1.0, 20, 0, None]),
        ({"not": ["head"]}, ["body", ["head", "body"]], ["head", ["head"], None, []]),
    ],
)
def test_conditions(condition, fitting, other):
    erratum = Erratum(1, "", "", "", "", "0.1.0", "", "", ({"a.b": condition},))
    assert [value for value in fitting if not erratum.fits({"a": {"b": value}})] == []
    assert [value for value in other if erratum.fits({"a": {"b": value}})] == []


def test_all_conditions_of_one_table_hold():
    tables = ({"a": [1], "b.c": [2]}, {"d": True})
    erratum = Erratum(1, "", "", "", "", "0.1.0", "", "", tables)
    assert erratum.fits({"a": 1, "b": {"c": 2}}) and erratum.fits({"d": 0})
    assert (
        not erratum.fits({"a": 1}) and not erratum.fits({"a": 1, "b": 2}) and not erratum.fits({})
    )


def test_runs_with_other_ids_than_before_are_those_of_the_errata():
    by_revision = {each.revision: each for each in read_errata() if each.revision}
    assert list(by_revision) == list(REVISIONS)

    def fitting(table):
        config = read_spec(WHOLE | table).runs()[0].resolved()
        return [name for name, erratum in by_revision.items() if erratum.fits(config)]

    for name, tables in MENDED.items():
        for table in tables:
            assert [found.split()[0] for found in fitting(table)] == [name], table
    assert [table for table in AS_BEFORE if fitting(table)] == []


def test_each_erratum_has_a_section_and_a_place_in_the_navigation():
    errata = read_errata()
    assert len({each.id for each in errata}) == len(errata)
    page = (ROOT / "docs" / "errata.md").read_text().splitlines()
    assert [line for line in page if line.startswith("## ")] == [
        f"## {each.id}" for each in reversed(errata)
    ]
    assert "errata.md" in (ROOT / "mkdocs.yml").read_text()
