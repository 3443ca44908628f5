"""Options that went: a spec that has one is told what to write, and what was computed before is read
as if the option had never been there."""

import json

import pytest

from cfljax.config import read_spec
from cfljax.config.train import Train
from cfljax.config.values import list_fields
from cfljax.data import SOURCES
from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS
from cfljax.registry.gone import OPTIONS, RENAMED_OF_METHODS, VALUES, without_gone
from cfljax.results.predict import read_run
from cfljax.store.rows import make_rows

DATA = {"name": "digits", "partition": "iid", "clients": 4}


def spec(**method):
    return {"data": DATA, "method": [{"name": "ifca", **method}]}


def test_no_option_of_the_list_is_there():
    """Whatever came back under the same name is not an option that went."""
    entries = {"method": [METHODS], "model": [MODELS], "data": [SOURCES, PARTITIONS]}
    there = {f"train.{name}" for name in list_fields(Train)} | {
        f"{table}.{option}"
        for table, registries in entries.items()
        for registry in registries
        for name in registry
        for option in list_fields(registry.entry(name).options)
    }
    assert not there & OPTIONS.keys()


@pytest.mark.parametrize("key", OPTIONS)
def test_a_spec_with_an_option_that_went_is_told_what_to_write(key):
    table, *inner, option = key.split(".")
    options = {inner[0]: {option: 1}} if inner else {option: 1}
    if table == "method":
        given = spec(**options)
    else:
        named = {"model": {"name": "mlp"}, "data": DATA, "train": {}}[table]
        given = spec() | {table: named | options}
    with pytest.raises(SpecError) as told:
        read_spec(given)
    line = str(told.value)
    assert f".{option} = 1: " in line and " went; " in line and "\n" not in line


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (spec(clusters="auto"), r'method.ifca.clusters = "auto": .*tune SPEC --set method.ifca.cl'),
        (spec(clusters=[4, "auto"]), 'method.ifca.clusters = "auto": .* went'),
        (spec(auto="eigengap") | {"method": {"name": ["ifca", "joint"], "most": 3}}, "auto. went"),
        (spec() | {"defaults": {"most": 3}}, 'defaults.most = 3: clusters = "auto" went'),
        (
            {"data": DATA, "method": {"name": "ocfl", "merge_to": "auto"}},
            "--set method.ocfl.merge_to=2",
        ),
        ({"data": DATA, "method": {"name": "ocfl", "noise": "drop"}}, 'noise = "isolate"'),
        (spec(clusters="many"), 'clusters = "many": must be an integer'),
    ],
)
def test_a_value_that_went_is_told_too(table, told):
    with pytest.raises(SpecError, match=told):
        read_spec(table)


def test_a_plug_in_may_have_an_option_of_the_same_name(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import dataclasses, cfljax\n"
        "from cfljax.extend import Clustered\n"
        "@cfljax.register_method('counting')\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Counting(Clustered):\n"
        '    "Counts."\n'
        "    merge_to: int | str = cfljax.option(2, 'to', choices=('auto',))\n"
        "    most: int = cfljax.option(4, 'the most')\n"
    )
    method = {"name": "counting", "merge_to": "auto", "most": 3}
    (run,) = read_spec({"data": DATA, "method": method, "plugins": [str(plugin)]}).runs()
    assert (run.options.merge_to, run.options.most) == ("auto", 3)


def record(run, **more):
    """The record of a run, with options in its method's table that there are no more."""
    config = json.loads(json.dumps(run.resolved()))
    config["method"] |= more
    return {"id": run.id, "method": run.method, "label": run.label, "seed": 0, "config": config}


ASYNCHRONOUS = {"clock": {"step_ms": 5}, "asynchronous": {"buffer": 2}}


def test_a_record_of_before_with_tables_is_the_run_of_today():
    (run,) = read_spec(spec() | {"train": ASYNCHRONOUS}).runs()
    old = record(run)
    old["config"]["train"]["asynchronous"]["staleness"] = "polynomial"
    assert read_run(old).id == run.id
    rows = make_rows({"a": old, "b": record(run) | {"seed": 1}}, None)
    assert [row["varies"] for row in rows] == [{}, {}]


def test_a_record_of_before_is_the_run_of_today():
    (run,) = read_spec(spec()).runs()
    old = record(run, auto="silhouette", most=8)
    assert read_run(old).id == run.id
    assert without_gone(old["config"]) == record(run)["config"]
    with pytest.raises(SpecError, match="went"):
        read_run(record(run, auto="eigengap", most=8))


def test_an_option_that_went_tells_no_runs_apart_but_where_it_did():
    one, two = (read_spec(spec(clusters=k)).runs()[0] for k in (3, 4))
    old, new = record(one, auto="silhouette", most=8), record(two)
    assert [row["varies"] for row in make_rows({"a": old, "b": new}, None)] == [
        {"method.clusters": 3},
        {"method.clusters": 4},
    ]
    other = record(one, auto="eigengap", most=8)
    assert [row["varies"] for row in make_rows({"a": old, "b": other}, None)] == [
        {"method.auto": "silhouette"},
        {"method.auto": "eigengap"},
    ]


def test_each_value_that_went_names_a_key_and_what_to_type():
    assert all(" went; " in told for told in VALUES.values())


def test_an_option_with_another_name_keeps_the_ids_of_its_runs():
    """The id is the one that the package had when the option was called `begin`."""
    options = {"data": DATA | {"clients": 8}, "train": {"rounds": 2}}
    options["data"].pop("partition")
    now = options | {"method": [{"name": "feddrift", "start": "each"}]}
    assert [run.id for run in read_spec(now).runs()] == ["a025050fa9b4d4c5"]
    with pytest.raises(SpecError, match='begin = "each".*; begin is called start now'):
        read_spec(options | {"method": [{"name": "feddrift", "begin": "each"}]})
    old = {"method": {"name": "feddrift", "begin": "each", "every": 5}}
    assert without_gone(old) == {"method": {"name": "feddrift", "start": "each", "every": 5}}
    said = {
        name: {each.meta["was"]: option}
        for name in METHODS
        for option, each in list_fields(METHODS.entry(name).options).items()
        if each.meta.get("was")
    }
    assert said == RENAMED_OF_METHODS
    unknown = {"method": {"name": "somebody_s", "begin": "each"}}
    assert without_gone(unknown) == unknown
