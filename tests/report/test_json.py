"""`--json`: what commands print is what their schemas say, errors included."""

import json

import pytest

from cfljax.commands import cli
from cfljax.commands.as_json import SCHEMAS
from cfljax.methods import METHODS
from cfljax.report.results import Results
from tests.report import synthetic

jsonschema = pytest.importorskip("jsonschema")


def said(capsys, command, *words):
    """Run a command with --json, and return (exit code, what it has printed)."""
    code = cli.main([command, *map(str, words), "--json"])
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMAS[command])
    return code, printed


def test_methods_are_described(capsys):
    code, printed = said(capsys, "methods")
    assert code == 0 and [each["name"] for each in printed["methods"]] == list(METHODS)
    (ifca,) = said(capsys, "methods", "ifca")[1]["methods"]
    assert ifca["family"] == "clustered" and "2020" in ifca["published"]
    clusters = next(each for each in ifca["options"] if each["name"] == "clusters")
    assert not clusters["required"] and isinstance(clusters["default"], int)


def test_a_report_has_the_rows_of_its_table(tmp_path, capsys):
    synthetic.everything(tmp_path)
    code, printed = said(capsys, "report", tmp_path, "--no-figures")
    table = Results(tmp_path).table()
    assert code == 0 and printed["page"] == str(tmp_path / "report" / "index.html")
    assert [row["method"] for row in printed["rows"]] == list(table["method"])
    for row, mean in zip(printed["rows"], table["accuracy_last_mean"], strict=True):
        assert (row["accuracy_last_mean"] is None and mean != mean) or row[
            "accuracy_last_mean"
        ] == pytest.approx(mean)
    printed = said(capsys, "report", tmp_path, "--figures", "accuracy")[1]
    assert printed["page"] is None and printed["figures"][0].endswith("accuracy.png")


def test_what_each_client_holds_is_counted(capsys):
    words = ["describe", "digits", "--set", "data.partition=rotated", "--set", "data.clients=8"]
    assert cli.main(["data", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMAS["describe"])
    clients = printed["clients"]
    assert len(clients) == 8 and printed["classes"] == 10 and printed["shape"] == [8, 8, 1]
    assert [each["training"] for each in clients] == [sum(each["classes"]) for each in clients]
    assert len({each["group"] for each in clients}) > 1
    assert cli.main(["data", "describe", "digitz", "--json"]) == 2
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMAS["describe"])


def test_a_sweep_says_what_would_run(capsys):
    sets = ["method=fedavg,ifca", "seeds=0:3", "data.clients=8", "train.rounds=2"]
    words = [word for each in sets for word in ("--set", each)]
    code, printed = said(capsys, "sweep", "--dry-run", *words)
    assert code == 0 and printed["runs"] == 6 == sum(row["runs"] for row in printed["rows"])
    assert [row["method"] for row in printed["rows"]] == ["fedavg", "ifca"]
    assert all(row["memory"] > 0 and row["down"] >= row["up"] > 0 for row in printed["rows"])
    code, printed = said(capsys, "sweep", "--dry-run", "--set", "train.roundz=2")
    assert code == 2 and "roundz" in printed["error"]["message"]
    code, printed = said(capsys, "sweep")
    assert code == 2 and "--json: is for --dry-run" in printed["error"]["message"]


@pytest.mark.parametrize(
    ("command", "words", "code"),
    [("methods", ["ifcaa"], 2), ("report", [], 2), ("report", ["nowhere"], 3)],
)
def test_an_error_is_json_too(command, words, code, capsys):
    assert cli.main([command, *words, "--json"]) == code
    found = capsys.readouterr()
    printed = json.loads(found.out)
    jsonschema.validate(printed, SCHEMAS[command])
    assert printed["error"]["exit_code"] == code
    assert found.err == f"cfljax: {printed['error']['message']}\n"


def test_the_schemas_are_printed(capsys):
    for command, schema in SCHEMAS.items():
        assert cli.main(["schema", "--of", command]) == 0
        assert json.loads(capsys.readouterr().out) == schema
