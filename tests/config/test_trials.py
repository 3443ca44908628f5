"""What `cfljax tune` tries where a spec has no ranges: declared ranges, as many settings for every
method, and the spec wins."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from cfljax.commands.init import add_ranges, write_search
from cfljax.config import read_spec
from cfljax.config.train import Train
from cfljax.config.trials import (
    ADAPTIVE_LR,
    DEFAULT_TRIALS,
    _limit,
    deal_values,
    list_searched,
)
from cfljax.config.values import expand_entry, list_fields
from cfljax.launch.search_plan import plan_search
from cfljax.methods import METHODS
from cfljax.registry.entries import _describe_fields
from cfljax.registry.options import check_value, is_range, option

BASE = {
    "data": {"name": "blobs", "samples": 120, "partition": "iid", "clients": 6, "validation": 0.2},
    "model": "mclr",
    "train": {"rounds": 20, "lr": 0.05},
    "method": ["fedavg", "fedprox", "ifca"],
}


def runs_of(table, method=None):
    runs = read_spec(table, tuned=True).runs()
    return [run for run in runs if method in (None, run.method)]


def test_every_method_tries_as_many_settings_of_its_own():
    plan = plan_search(read_spec(BASE | {"seeds": [0, 1]}, tuned=True))
    assert [len(group.settings) for group in plan.groups] == [DEFAULT_TRIALS] * 3
    names = {group.label: set(group.settings[0].varies) for group in plan.groups}
    assert names == {
        "fedavg": {"train.lr"},
        "fedprox": {"train.lr", "method.mu"},
        "ifca": {"train.lr", "method.clusters"},
    }
    assert any("no ranges" in line for line in plan.warnings)


def test_a_range_is_covered_from_end_to_end_and_choices_alike():
    rates = sorted(run.train.lr for run in runs_of(BASE, "fedprox"))
    low, high, _ = list_fields(Train)["lr"].meta["search"]
    assert (rates[0], rates[-1]) == (low, high) and len(set(rates)) == DEFAULT_TRIALS
    assert np.diff(np.log(rates)) == pytest.approx([np.log(high / low) / 8] * 8, rel=0.02)
    tried = Counter(run.options.mu for run in runs_of(BASE, "fedprox"))
    assert set(tried) == {0.001, 0.01, 0.1, 1.0} and set(tried.values()) == {2, 3}


def test_options_are_dealt_in_orders_of_their_own_and_the_same_each_time():
    one, other = (deal_values(name, (1.0, 9.0, "linear"), 9, 0) for name in ("a", "b"))
    assert one != other and sorted(one) == sorted(other) == [float(i) for i in range(1, 10)]
    assert one == deal_values("a", (1.0, 9.0, "linear"), 9, 0)
    assert one != deal_values("a", (1.0, 9.0, "linear"), 9, 1)
    whole = deal_values("a", (1, 9, "linear"), 5, 0)
    assert sorted(whole) == [1, 3, 5, 7, 9] and all(type(v) is int for v in whole)


@pytest.mark.parametrize(
    "change",
    [
        {"train": {"rounds": 20, "lr": [0.05, 0.1]}},
        {"method": [{"name": "fedprox", "mu": [0.1, 0.2]}, "ifca"]},
        {"train": {"rounds": 20, "lr": "log(0.1, 1, 3)"}},
        {"train": {"rounds": 20, "lr": "log(0.1, 1)"}, "samples": 3},
        {"model": ["mclr", "mlp"]},
    ],
)
def test_a_spec_with_a_range_is_tuned_as_it_says(change):
    table = BASE | change
    tuned = [run.id for run in read_spec(table, tuned=True).runs()]
    assert tuned == [run.id for run in read_spec(table).runs()]


def test_a_list_of_one_value_stays_and_a_number_is_replaced():
    table = BASE | {
        "method": [{"name": "fedprox", "mu": [0.3]}, {"name": "ifca", "clusters": 5}],
    }
    assert {run.options.mu for run in runs_of(table, "fedprox")} == {0.3}
    assert 5 not in {run.options.clusters for run in runs_of(table, "ifca")}
    fixed = BASE | {"train": {"rounds": 20, "lr": [0.05]}, "defaults": {"clusters": [2]}}
    assert {run.train.lr for run in runs_of(fixed)} == {0.05}
    assert {run.options.clusters for run in runs_of(fixed, "ifca")} == {2}


def test_no_more_clusters_than_clients_are_tried():
    for clients, tried in ((3, {2, 3}), (6, {2, 3, 4, 6}), (1, {4})):
        table = BASE | {"data": BASE["data"] | {"clients": clients}}
        assert {run.options.clusters for run in runs_of(table, "ifca")} == tried


def test_no_clustering_after_the_last_round_is_tried():
    for rounds, tried in ((20, {1, 3, 5, 10}), (10, {1, 3, 5}), (5, {1, 3})):
        table = BASE | {"train": {"rounds": rounds}, "method": ["fl_hc"]}
        assert {run.options.warmup_rounds for run in runs_of(table)} == tried


def test_a_range_is_cut_off_as_values_are():
    assert _limit((2, 8, "linear"), 6) == (2, 6, "linear") and _limit((2, 8, "log"), 2) == ()


def test_samples_give_another_number_of_settings():
    counts = Counter(run.method for run in runs_of(BASE | {"samples": 4, "seeds": [0]}))
    assert set(counts.values()) == {4}
    assert not any(
        "samples:" in line for line in read_spec(BASE | {"samples": 4}, tuned=True).warnings
    )


def test_a_sweep_tries_nothing_of_its_own():
    assert len(read_spec(BASE).runs()) == 3


def test_a_rate_of_a_methods_own_is_tried_in_place_of_train_lr():
    for method, rate in (("pfedme", "eta"), ("fedbcd", "local_lr")):
        runs = runs_of(BASE | {"method": [method]})
        assert {run.train.lr for run in runs} == {0.05}
        assert len({getattr(run.options, rate) for run in runs}) == DEFAULT_TRIALS


def test_another_optimiser_has_smaller_rates():
    table = BASE | {"train": {"rounds": 20, "optimizer": "adam"}, "method": "fedavg"}
    rates = sorted(run.train.lr for run in runs_of(table))
    assert (rates[0], rates[-1]) == ADAPTIVE_LR[:2]


@pytest.mark.parametrize("method", list(METHODS))
def test_what_a_method_declares_can_be_tried(method):
    fields = {"train": list_fields(Train), "method": list_fields(METHODS.entry(method).options)}
    assert list_searched(method)
    for name, search in list_searched(method).items():
        section, _, key = name.partition(".")
        field = fields[section][key]
        for value in search[:2] if is_range(search) else search:
            check_value(value, field.hint, field.meta, name)
        # What init writes as a comment is what a spec may say
        text = write_search(search)
        if is_range(search):
            (drawn,) = expand_entry(text.strip('"'), field, name)
            assert (drawn.low, drawn.high, drawn.log) == (*search[:2], search[2] == "log")
    table = BASE | {"data": BASE["data"] | {"clients": 12}, "method": [method]}
    assert 1 < len(runs_of(table)) <= DEFAULT_TRIALS


def test_a_declared_search_is_no_part_of_an_id():
    plain, searched = (
        dataclasses.make_dataclass("Own", [("mu", float, option(1.0, "pull", low=0.0, **more))])
        for more in ({}, {"search": (0.1, 1.0, "log")})
    )
    assert _describe_fields(plain) == _describe_fields(searched)
    assert "search" not in _describe_fields(plain)


@pytest.mark.parametrize(
    "search", [(0.1,), (1.0, 0.1, "log"), (0.0, 1.0, "log"), (0.1, 0.1), (-1.0, 1.0), (0.1, 9.0)]
)
def test_a_search_beyond_the_bounds_is_refused_where_it_is_declared(search):
    with pytest.raises(TypeError, match="search"):
        option(0.5, "share", low=0.0, high=1.0, search=search)


def test_init_writes_what_is_tried_as_comments():
    spec = (
        'train = { lr = 0.1 }\n[[method]]\nname = "fedprox"\nmu = 0.1\n[[method]]\nname = "mine"\n'
    )
    written = add_ranges(spec)
    assert '# cfljax tune tries lr = "log(0.01, 1)"' in written
    assert "# cfljax tune tries mu = [0.001, 0.01, 0.1, 1.0]" in written
    lines = [line for line in written.splitlines() if not line.startswith("# cfljax tune")]
    assert "\n".join([*lines, ""]) == spec
