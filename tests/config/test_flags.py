"""`--set` on the command line."""

import pytest

from cfljax.config.flags import parse_value, split_commas
from cfljax.errors import SpecError
from cfljax.registry.options import show
from tests.config.small import read, runs, spec

METHODS = spec(
    method=[
        "fedavg",
        {"name": "ifca", "clusters": 3},
        {"name": "ifca", "label": "five", "clusters": 5},
    ],
    seeds="0:2",
)


@pytest.mark.parametrize(("text", "value"), [
    ("0.03,0.1", [0.03, 0.1]), ("5", 5), ("1e-3", 1e-3), ("nan", None), ("true", True), ("full", "full"), ("0:10", "0:10"),
    ("10:20:02", "10:20:02"), ("2020-01-01", "2020-01-01"), ('"a,b",c', ["a,b", "c"]), ("log(1e-4, 1e-1, 7)", "log(1e-4, 1e-1, 7)"),
    ("log(1, 2, 3),5", ["log(1, 2, 3)", 5]), ("[1, 2]", [1, 2]), ("[1,2],[3]", [[1, 2], [3]]),
    ('{ name = "adam", b1 = 0.5 }', {"name": "adam", "b1": 0.5}), ("emnist/byclass", "emnist/byclass"),
    ("fedavg, ifca", ["fedavg", "ifca"]), ("10,full", [10, "full"]),
])  # fmt: skip
def test_values_are_toml_with_bare_words(text, value):
    found = parse_value(text, "--set")
    assert found == value or (value is None and found != found)
    assert type(found) is type(value) or value is None


@pytest.mark.parametrize("text", ['a"b', "\\dir", "\\", "a\nb\t\x7f\x00", "ä, [b]", "'"])
def test_a_string_is_shown_as_toml_reads_it(text):
    assert parse_value(show(text), "--set") == text
    assert parse_value(show({"of": [text]}), "--set") == {"of": [text]}


def test_commas_in_brackets_and_quotes_do_not_cut():
    assert split_commas('a,(b,c),"d,e",[f,{g,h}]') == ["a", "(b,c)", '"d,e"', "[f,{g,h}]"]


def test_a_flag_replaces_what_the_spec_says():
    found = runs(spec(train={"lr": [0.1, 0.2, 0.3]}, seeds="0:9"), "train.lr=0.03,0.1", "seeds=0:2")
    assert [(r.train.lr, r.seed) for r in found] == [(0.03, 0), (0.03, 1), (0.1, 0), (0.1, 1)]


def test_later_flags_win_and_a_line_says_what_they_replace():
    found = read(spec(), "train.rounds=3", "train.rounds=4", "train.lr=0.1", "train.lr=0.1")
    assert found.runs()[0].train.rounds == 4
    (line,) = found.warnings
    assert "train.rounds=3" in line and "list" in line
    (line,) = read(METHODS, "method=ifca", "method=fedavg").warnings
    assert line.startswith('--set method="ifca": has no effect')
    (line,) = read(spec(), "train.lr=0.2", "train={lr=0.1, rounds=4}").warnings
    assert "train.lr=0.1: has no effect" in line


@pytest.mark.parametrize("flags", [
    ("train.steps=3", "train.epochs=3"), ("train.epochs=3", "train.steps=3,4"), ("train.epochs=3", "train={steps=3}"),
    ("method.five.train.steps=3", "method.five.train.epochs=3"), ("train={steps=3,epochs=3}",),
])  # fmt: skip
def test_of_two_flags_that_exclude_each_other_none_wins(flags):
    with pytest.raises(SpecError, match="give epochs or steps, not both"):
        read(METHODS, *flags)


def test_a_method_may_have_epochs_where_others_have_steps():
    found = runs(METHODS, "train.steps=3", "method.five.train.epochs=4", "seeds=[0]")
    assert [(r.train.steps, r.train.epochs) for r in found] == [(3, None), (3, None), (None, 4)]


def test_a_name_does_not_take_the_options_of_flags_before_it_away():
    (run,) = runs(spec(), "train.optimizer.b1=0.8", "train.optimizer=adam")
    assert run.train.optimizer_pair == ("adam", {"b1": 0.8})


def test_two_spellings_of_a_table_in_one_layer_are_joined():
    over = {"method.five.train.lr": 0.1, "method.five": {"train": {"steps": 3}}}
    found = runs(METHODS | {"size": {"s": over}}, "size=s", "method=five", "seeds=[0]")
    assert [(r.train.lr, r.train.steps) for r in found] == [(0.1, 3)]


@pytest.mark.parametrize("table", [
    {"train.lr": 0.1, "train": {"lr": 0.2}}, {"train": {"lr": 0.2}, "train.lr": 0.1},
    {"method.fedavg.train.lr": 0.1, "method.fedavg": {"train": {"lr": 0.2}}},
])  # fmt: skip
@pytest.mark.parametrize("layer", ["size", "include"])
def test_one_table_says_a_key_once(table, layer):
    table = {"size": {"s": table}} if layer == "size" else {"include": [table]}
    with pytest.raises(SpecError, match="is given twice"):
        read(spec(**table), *(["size=s"] if layer == "size" else []))


def test_epochs_and_steps_take_each_others_place():
    (run,) = runs(spec(train={"epochs": 5}), "train.steps=3")
    assert (run.train.epochs, run.train.steps) == (None, 3)


def test_methods_are_selected_with_their_options_and_added_without():
    found = runs(METHODS, "method=ifca,fedprox")
    assert [(r.label, r.options.clusters) for r in found[::2]] == [
        ("ifca", 3),
        ("five", 5),
        ("fedprox", 1),
    ]
    assert [r.label for r in runs(METHODS, "method=five", "seeds=[1]")] == ["five"]
    assert [r.label for r in runs(METHODS, "method=five,ifca,fedavg", "seeds=[1]")] == [
        "five",
        "ifca",
        "fedavg",
    ]  # each once


def test_options_of_a_method_are_set_by_name_or_label():
    found = runs(METHODS, "method.ifca.clusters=4", "seeds=[0]")
    assert [r.options.clusters for r in found] == [1, 4]  # both are the same now
    found = runs(METHODS, "method.five.clusters=6,7", "method.fedavg.train.lr=0.5", "seeds=[0]")
    assert [(r.label, r.options.clusters, r.train.lr) for r in found] == [
        ("fedavg", 1, 0.5),
        ("ifca", 3, 0.03),
        ("five", 6, 0.03),
        ("five", 7, 0.03),
    ]


def test_a_flag_for_the_whole_table_comes_before_one_for_an_option():
    (run,) = runs(METHODS, "method.cfl_mgd.beta=0.5", "method=cfl_mgd", "seeds=[0]")
    assert run.options.beta == 0.5


def test_data_and_model_may_be_names_and_get_options():
    (run,) = runs(
        spec(),
        "data=mnist",
        "data.partition=dirichlet",
        "data.alpha=0.3",
        "model=mlp",
        "model.hidden=[5,5]",
    )
    assert (run.data.name, run.data.partition, run.data.parts.alpha) == ("mnist", "dirichlet", 0.3)
    assert run.model.options.hidden == (5, 5)
    (run,) = runs({}, "data=digits", "method=fedavg")
    assert run.data.name == "digits"


def test_arguments_of_the_optimiser():
    found = runs(spec(train={"optimizer": "adam"}), "train.optimizer.b1=0.8,0.9")
    assert [run.train.optimizer_pair for run in found] == [
        ("adam", {"b1": 0.8}),
        ("adam", {"b1": 0.9}),
    ]


def test_sizes_are_laid_over_the_spec_and_flags_over_sizes():
    table = spec(
        train={"rounds": 300, "lr": [0.1, 0.2]},
        seeds="0:5",
        size={"small": {"train": {"rounds": 3}, "seeds": [0], "data.clients": 10}},
        include=[{"train.rounds": 800}],
    )
    assert (
        {r.train.rounds for r in runs(table)}
        == {r.train.rounds for r in runs(table, "size=full")}
        == {300, 800}
    )
    small = read(table, "size=small")
    assert [(r.train.rounds, r.train.lr, r.data.parts.clients) for r in small.runs()] == [
        (3, 0.1, 10),
        (3, 0.2, 10),
    ]
    assert {r.train.rounds for r in runs(table, "train.rounds=5", "size=small")} == {5}


def test_flags_reach_included_grids():
    table = spec(train={"rounds": 300}, include=[{"train.rounds": 800, "train.lr": 0.5}])
    assert [(r.train.rounds, r.train.lr) for r in runs(table, "train.rounds=2")] == [
        (2, 0.03),
        (2, 0.5),
    ]


def test_the_name_of_a_sweep(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('data = "digits"\nmethod = "fedavg"\n')
    assert read(path).name == "mine"
    assert read(path, "name=other").name == "other"
    assert read(spec()).name == "sweep"
