"""A published number of ours is run again."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import cfljax
from cfljax.results.result import Result
from cfljax.store import Store
from experiments import check
from experiments.replication.published import read_published

SPEC = {
    "name": "Digits", "seeds": [0, 1], "data": {"name": "digits", "partition": "rotated", "clients": 8}, "model": {"name": "mclr"},
    "train": {"rounds": 4, "lr": 0.1, "eval_every": 2},
    "method": [{"name": "ifca", "clusters": 2}, {"name": "fedprox", "mu": [0.1, 1.0]}],
}  # fmt: skip
PUBLISHED = """
paper = "A paper (2020)"
title = "Table 3, digits"
sweep = "Digits"
cells = [
    { name = "IFCA", where = { label = "ifca" }, published = 50.0 },
    { name = "FedProx, mu 1", where = { label = "fedprox", "method.mu" = 1.0 } },
    { name = "IFCA, rounds", where = { label = "ifca" }, take = { history = "accuracy", reaches = 0.05 } },
    { name = "never run", where = { label = "fedavg" } },
]

[[claim]]
text = "IFCA beats FedProx"
difference = ["IFCA", "FedProx, mu 1"]
published = 3.0
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    cfljax.sweep(SPEC, out=place / "records" / "digits", quiet=True)
    (place / "published").mkdir()
    (place / "published" / "digits.toml").write_text(PUBLISHED)
    return place


def run(place, *words):
    return check.main(list(words), place / "records", place / "published")


def rows(said):
    return {line[:12].strip(): line[13:] for line in said.splitlines() if line[:12].strip()}


def test_one_screen_has_published_ours_this_run_the_difference_and_the_verdict(place, capsys):
    assert run(place, "table 3, ifca", "--rounds", "1", "--seed", "1") == 0
    said = capsys.readouterr().out
    assert said.startswith("A paper Table 3, digits: IFCA\n") and "the first of 2 that fit" in said
    found = rows(said)
    assert found["published"] == "50.0" and found["ours"].endswith("seeds: 2)")
    assert re.match(
        r"IFCA, seed 1, 2 of 4 rounds in \d+ s: accuracy in round 2 ", found["this run"]
    )
    assert found["difference"] == "none: the same bits in all 18 curves"
    assert found["verdict"] == "not decided: IFCA beats FedProx"


def said_in_json(place, capsys, *words):
    code = run(place, *words, "--json")
    said = json.loads(capsys.readouterr().out)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(said, check.SCHEMA)
    return code, said


def test_json_has_what_the_screen_has(place, capsys, monkeypatch):
    _, old, new = changed(place, 0.25)
    monkeypatch.setattr(check, "again", lambda run, rounds: new)
    code, said = said_in_json(place, capsys, "table 3, ifca")
    assert code == 1 and not said["agrees"] and said["fitting"] == 2
    assert (
        said["published"] == "50.0"
        and said["seeds"] == "2"
        and said["run"]["id"] == old.record["id"]
    )
    assert said["run"]["now"] - said["run"]["record"] == pytest.approx(25.0, abs=0.01)
    assert said["verdicts"] == [{"word": "not decided", "claim": "IFCA beats FedProx"}]
    code, said = said_in_json(place, capsys, "--list", "beats")
    assert code == 0 and [claim["code"] for claim in said["claims"]] == ["digits 1"]
    code, said = said_in_json(place, capsys, "never run")
    assert code == 2 and said["error"]["exit_code"] == 2
    assert check.main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == check.SCHEMA


def test_a_claim_is_called_by_its_file_and_its_place(place, capsys):
    assert run(place, "--list", "beats") == 0
    assert (
        " ".join(capsys.readouterr().out.split())
        == "digits 1 A paper Table 3, digits: IFCA beats FedProx"
    )
    assert run(place, "digits", "1", "--rounds", "2") == 0
    found = rows(capsys.readouterr().out)
    assert found["published"] == "+3, within 1" and "IFCA: " in found["ours"]


def test_a_number_of_the_whole_run_is_told_where_all_of_it_is_run(place, capsys):
    assert run(place, "ifca, rounds", "--rounds", "4") == 0
    assert "4 of 4 rounds" in (said := rows(capsys.readouterr().out)["this run"])
    assert re.search(r"the number (\d\.\d\d), in the record \1$", said)


def changed(place, by):
    """The run of IFCA, and the same with its last accuracy so much larger."""
    (of,) = read_published([place / "published"])[1]
    table = check.read_section(of, place / "records")
    unit = table.runs["IFCA"][0]
    old, new = (Result(*unit.store.read(unit.id)) for _ in range(2))
    accuracy = np.array(new.history["accuracy"])
    accuracy[-1] += by
    new.arrays["history/accuracy"] = accuracy
    new.record["summary"]["accuracy_max"] += by
    return of, old, new


@pytest.mark.parametrize(("by", "agrees"), [(0.25, False), (0.0011, False), (0.0002, True)])
def test_a_digit_that_pages_show_and_that_differs_is_told_and_is_an_error(
    place, capsys, monkeypatch, by, agrees
):
    _, _, new = changed(place, by)
    monkeypatch.setattr(check, "again", lambda run, rounds: new)
    assert run(place, "A paper Table 3, digits: IFCA") == (0 if agrees else 1)
    said = rows(capsys.readouterr().out)["difference"]
    assert "where the pages show 0.1; the largest is " in said and "of accuracy in round 4" in said


def test_bits_are_the_same_only_with_the_versions_and_the_machine_of_the_record(
    place, capsys, monkeypatch
):
    record = changed(place, 0.0)[1].record
    assert check.same_kind(record) == ""
    versions = record["versions"] | {"jax": "0.1"}
    assert check.same_kind(record | {"versions": versions}).startswith(
        "made with JAX 0.1, here is "
    )
    assert check.same_kind(record | {"device": "tpu v9, 1"}) == "made on tpu v9, here is cpu"
    monkeypatch.setattr(check, "same_kind", lambda record: "made elsewhere")
    assert run(place, "digits", "1", "--rounds", "1") == 0
    assert rows(capsys.readouterr().out)["difference"] == "none in 18 curves (made elsewhere)"


def test_a_run_is_made_by_the_plan_of_its_record_and_on_as_many_threads(place, monkeypatch):
    old = changed(place, 0.0)[1]
    old.record["plan"] = (
        '{ lanes = 1, gram = 0, keep = false, stream = 0, devices = 1, pool = "copied" }, '
        "1 run at a time, 1 thread"
    )
    tables, kept = [], []
    monkeypatch.setattr("cfljax.api.one_run", tables.append)
    monkeypatch.setattr(check.cores, "keep_to", lambda processors: kept.append(list(processors)))
    monkeypatch.setattr(check.cores, "list_cores", lambda: [3, 5, 7])
    check.again(old, 1)
    assert tables[0]["train"]["plan"] == {
        "lanes": 1, "gram": 0, "keep": False, "stream": 0, "devices": 1, "pool": "copied", "quick": False,
    }  # fmt: skip
    assert tables[0]["train"]["rounds"] == 2
    assert len(kept[0]) == 1 and kept[1] == [3, 5, 7]


@pytest.mark.parametrize(("words", "said"), [
    (["Tabel 3, digits"], "the nearest tables: A paper Table 3, digits"), (["never run"], "never run was not run"),
    (["digits", "1", "--seed", "7"], "--seed 7: has 0, 1"), ([], "--list has them"),
])  # fmt: skip
def test_a_wrong_name_is_answered_in_one_line(place, capsys, words, said):
    assert run(place, *words) == 2
    assert said in (line := capsys.readouterr().err) and line.count("\n") == 1


def test_a_data_set_that_is_not_there_is_answered_in_one_line(place, capsys, monkeypatch):
    def missing(run, rounds):
        raise check.CfljaxError("data.name = mnist: not found\nin /nowhere")

    monkeypatch.setattr(check, "again", missing)
    assert run(place, "digits", "1") == 2
    assert capsys.readouterr().err == "check: data.name = mnist: not found in /nowhere\n"


RECORDS = Path(__file__).parents[1] / "records"
FOLDERS = sorted(path for path in RECORDS.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_committed_records_are_what_was_written(folder):
    store = Store(folder, read_only=True)
    assert store.read_plan() is not None or store.read_spec() is None
    assert {name: store.check(name) for name in store.ids()} == dict.fromkeys(store.ids())
