"""`cfljax schema`: the JSON Schema accepts what the program accepts, and rejects wrong keys and
values."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from cfljax.commands.cli import main
from cfljax.commands.schema import make_schema
from cfljax.config import plugins
from tests import blocks

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[2]


def specs():
    """(where, spec) of the repository's files and of the pages' blocks."""
    files = [
        *(ROOT / "experiments").rglob("*.toml"),
        *(ROOT / "docs").rglob("*.toml"),
        *(ROOT / "cfljax/config").glob("*.toml"),
    ]
    # Those of records are as they were run, some with names of options that went since
    files = [file for file in files if "records" not in file.parts]
    texts = [(file.relative_to(ROOT), file.read_text(), file.parent) for file in files]
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        texts += [
            (f"{page.name}:{b.line}", b.text, ROOT) for b in blocks.blocks(page) if b.lang == "toml"
        ]
    for where, text, folder in texts:
        table = tomllib.loads(text)
        found = all(
            (folder / name).is_file() for name in table.get("plugins", []) if name.endswith(".py")
        )
        if (
            found and "method" in table and "data" in table
        ):  # the plug-ins of a page are written beside its specs
            yield where, table, folder


def make_validator():
    schema = json.loads(json.dumps(make_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_spec_of_the_repository_is_accepted():
    found = list(specs())
    for _, table, folder in found:
        plugins.load(table.get("plugins", []), folder)
    validator = make_validator()
    refused = {
        str(where): error.message[:300]
        for where, table, _ in found
        for error in validator.iter_errors(table)
    }
    assert not refused and len(found) > 80


ACCEPTED = """
{seeds: [9, "5:-1:-1"], train: {rounds: "1:12:10"}}
{seeds: "0:10", samples: 5, train: {lr: {low: 0.01, high: 1.0, log: true}}}
{seeds: [0, "5:8"], train: {lr: "log(0.01, 0.1, 3)", rounds: [10, 20], batch: ["full", 10], freeze: [["head"], "body"]}}
{train: {privacy: {clip: [1.0, 2.0], noise: 0.5, choice: {epsilon: 1.0}}, server: {name: "adam", lr: 0.1, b1: 0.8}}}
{train: {attack: ["none", {name: "sign_flip", share: 0.1}], robust: "median", epochs: 1}}
{train: {compress: ["none", "sign", {name: "topk", keep: [0.1, 0.2]}], plan: "auto", parts: {body: "all"}, optimizer: "adam"}}
{data: {name: "digits", partition: ["rotated", "iid"], groups: 4, clients: [10, 20]}}
{data: {name: "mine", views: ["label_swap", {name: "rotated", groups: 4}], arrive: {rate: 0.1, from: 1, until: 3}}}
{data: {name: "digits", partition: "dirichlet", balance: "capped", views: [{name: "rotated", labels: [1, 2]}], views_draw: "random"}}
{data: {name: "digits", partition: "file", file: "split.json", format: "pflib", holdout: 0.2}}
{method: ["fedavg", {name: ["ifca", "fedgroup"], clusters: [2, 3]}, {name: "fedprox", label: "p", mu: [0.1, 1]}]}
{model: [{name: "mlp", hidden: [[200], [64, 64]]}, "mclr"], search: {seeds: "100:103"}}
{include: [{method: {fedavg: {train: {lr: 0.1}}}, "train.rounds": 3}], size: {small: {train: {rounds: 1}}}}
{exclude: [{method: "fedavg", "train.lr": 0.5}], defaults: {clusters: 3}, data: {name: "mine", partition: "fedrc", alpha: 0.5}}
"""
REJECTED = """
{sedes: [0]}
{seeds: 3}
{seeds: "0-3"}
{seeds: "0:0"}
{seeds: [1, "3:3:2"]}
{seeds: "0:9:0"}
{seeds: "-1:3"}
{train: {rounds: "4:4"}}
{train: {roundz: 3}}
{train: {rounds: 0}}
{train: {rounds: []}}
{train: {lr: "fast"}}
{train: {lr: [0.1, -1]}}
{train: {precision: "low"}}
{train: {privacy: {noise: 0.5}}}
{train: {compress: "zip"}}
{train: {attack: "sign_flip"}}
{train: {epochs: 1, steps: 3}}
{train: {stop: {patience: 3, metrik: "val_loss"}}}
{train: {optimizer: "adaam"}}
{data: {name: "digits", partition: "rotated", pairs: 2}}
{data: {name: "digits", partition: "rotatd"}}
{data: {name: "digits", views: [{name: "label_swap", labels: [1, 2]}]}}
{data: {name: "digits", partition: "file", file: "split.pkl", format: "pickle"}}
{data: {partition: "iid"}}
{model: {name: "mlp", hidden: 200}}
{method: "ifka"}
{method: {name: "fedavg", clusters: 3}}
{method: [{name: "ifca", clusters: "many"}]}
{size: {small: {trian: {}}}}
{include: {seed: 3}}
{exclude: {lr: 0.5}}
{search: {reduce: 1}}
"""


def test_it_accepts_and_rejects_as_the_program_does(tmp_path, capsys):
    plugin = (
        "import cfljax\n\n\n@cfljax.register_partition('halves_of_mine')\ndef halves(options, "
        "source, rng):\n    pass\n"
    )
    (tmp_path / "mine.py").write_text(plugin)
    assert main(["schema", "--plugin", str(tmp_path / "mine.py")]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert "communication rounds" in {each.get("description") for each in schema["$defs"].values()}
    accepts, small = (
        jsonschema.Draft202012Validator(schema).is_valid,
        {"data": "digits", "method": "fedavg"},
    )
    assert accepts(small | {"data": {"name": "digits", "partition": "halves_of_mine"}})
    assert not any(accepts({key: value}) for key, value in small.items())
    cases = (
        (lines.split("\n")[1:-1], wanted) for lines, wanted in ((ACCEPTED, True), (REJECTED, False))
    )
    specs = [
        (json.loads(re.sub(r"([{ ])([\w]+):", r'\1"\2":', line)), wanted)
        for lines, wanted in cases
        for line in lines
    ]
    assert (
        len(specs) == 47
        and [spec for spec, wanted in specs if accepts(small | spec) != wanted] == []
    )
