"""The options of a data set and of a partition have names of their own. Four options of `synthetic`
had those of partitions until 0.2.0: old spellings are a line, and old ids and records stay."""

import dataclasses
from pathlib import Path

import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.config.data import DataOptions
from cfljax.data import SOURCES
from cfljax.data.sources import FileOptions
from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.registry.gone import _PARTITIONS_WITH_OPTION, RENAMED, without_gone
from cfljax.results.predict import read_run
from cfljax.store import Store

RECORDS = Path(__file__).parents[2] / "experiments" / "records"


def read(sets=(), **data):
    return read_spec({"data": {"name": "synthetic", **data}, "method": "fedavg"}, sets).runs()


def fields(options):
    return {field.name for field in dataclasses.fields(options)}


def own(registry):
    """The names of the package's own entries, without those of plug-ins that other tests loaded."""
    return [
        name for name in registry if registry.entry(name).options.__module__.startswith("cfljax.")
    ]


def test_no_data_set_shares_an_option_with_a_partition():
    sources = fields(FileOptions).union(
        *(fields(SOURCES.entry(name).options) for name in own(SOURCES))
    )
    for name in own(PARTITIONS):
        assert sources.isdisjoint(fields(PARTITIONS.entry(name).options)), name
    assert sources.isdisjoint(fields(DataOptions))


def test_the_partitions_that_had_the_old_names_are_listed():
    for old in RENAMED["synthetic"]:
        owners = {name for name in own(PARTITIONS) if old in fields(PARTITIONS.entry(name).options)}
        assert owners == set(_PARTITIONS_WITH_OPTION.get(old, own(PARTITIONS)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"alpha": 2.0}, "data.alpha = 2.0: .*; alpha of data set synthetic is model_spread now"),
        ({"total": 900}, "data.total = 900: .*; total of data set synthetic is size now"),
        ({"clients": 7}, 'data.clients = 7: is for partition "user" alone; .* its users, too'),
        ({"partition": "dirichlet", "alpha": 0.3}, "data.alpha = 0.3: .* its model_spread, too"),
        (
            {"source": {"clients": 7}},
            "data.source = .*; write what is in it beside .*clients of .* users",
        ),
        ({"parts": {"clients": 7}}, "data.parts = .* any more; write what is in it beside"),
    ],
)
def test_an_old_spelling_is_a_line_with_the_new_one(data, words):
    with pytest.raises(SpecError, match=words) as raised:
        read(**data)
    assert "\n" not in str(raised.value)
    sets = [f"data.{key}={value}" for key, value in data.items() if not isinstance(value, dict)]
    for flag in sets[-1:]:
        with pytest.raises(SpecError, match=words):
            read([flag], **({"partition": data["partition"]} if "partition" in data else {}))


def test_ids_of_before_stay_where_only_the_data_set_had_the_name():
    (run,) = read(model_spread=2.0, size=75349, users=100)
    assert run.data.identity.startswith(
        '{"alpha":2,"name":"synthetic","partition":"user","total":75349}'
    )


def test_no_new_run_has_the_id_of_an_old_one_whose_option_was_meant_for_both():
    (run,) = read(partition="iid", clients=7, users=100)
    assert '"clients":7' in run.data.identity and '"users":100' in run.data.identity
    found = read(partition="dirichlet", alpha=[0.3, 1.0], model_spread=[0.3, 1.0])
    assert len({run.id for run in found}) == 4


def test_a_plug_in_that_shares_an_option_with_a_partition_is_a_line():
    @dataclasses.dataclass(frozen=True)
    class Options:
        clients: int = cfljax.option(3, low=1)

    cfljax.register_data("sharing", Options)(lambda options, rng: {})
    words = '"sharing" and partition "iid" both have this option; rename it'
    with pytest.raises(SpecError, match=f"data.clients: data set {words}"):
        read(name="sharing")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"partition": "user", "alpha": 2.0, "source": {"clients": 9}, "total": None},
            {"partition": "user", "model_spread": 2.0, "users": 9, "size": None},
        ),
        (
            {"partition": "iid", "clients": 7, "beta": 1.0},
            {"partition": "iid", "clients": 7, "users": 7, "feature_spread": 1.0},
        ),
        (
            {"partition": "dirichlet", "source": {"alpha": 1.0}, "parts": {"alpha": 0.3}},
            {"partition": "dirichlet", "model_spread": 1.0, "alpha": 0.3},
        ),
        (
            {"partition": "iid", "clients": 7, "users": 9},
            {"partition": "iid", "clients": 7, "users": 9},
        ),
    ],
)
def test_the_table_of_an_old_record_has_todays_names(old, new):
    names = {"name": "synthetic"}
    assert without_gone({"data": names | old}) == {"data": names | new}


def test_runs_of_old_records_are_rebuilt_with_their_ids():
    store = Store(RECORDS / "fedgroup_table3_synthetic", read_only=True)
    names = store.ids()
    assert len(names) == 30 and [read_run(store.record(name)).id for name in names] == names
