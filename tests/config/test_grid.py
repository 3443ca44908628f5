"""Lists are axes; tables are laid over tables by stated rules."""

import pytest

from tests.config.small import BASE, read, runs, spec


def _numbers(found, name):
    return [getattr(run.train, name) for run in found]


def test_a_list_is_an_axis_and_axes_multiply():
    found = runs(spec(train={"lr": [0.1, 0.2], "batch": [10, "full"]}, seeds="0:3"))
    assert len(found) == len({run.id for run in found}) == 12
    assert {(run.train.lr, run.train.batch, run.seed) for run in found} == {
        (lr, batch, seed) for lr in (0.1, 0.2) for batch in (10, "full") for seed in range(3)
    }


def test_seeds_are_innermost():
    assert [run.seed for run in runs(spec(train={"lr": [0.1, 0.2]}, seeds=[3, 1]))] == [3, 1, 3, 1]


def test_the_list_of_a_list_option_is_its_value_and_a_list_of_lists_an_axis():
    model = {"name": "mlp", "hidden": [64, 32]}
    assert [run.model.options.hidden for run in runs(spec(model=model))] == [(64, 32)]
    model["hidden"] = [[64, 32], [], [8]]
    assert [run.model.options.hidden for run in runs(spec(model=model))] == [(64, 32), (), (8,)]


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("2:5", [2, 3, 4]),
        ("0:10:4", [0, 4, 8]),
        ("3:0:-1", [3, 2, 1]),
        (["0:2", 7], [0, 1, 7]),
        ([5], [5]),
    ],
)
def test_ranges_of_seeds(written, values):
    assert [run.seed for run in runs(spec(seeds=written))] == values


@pytest.mark.parametrize(("written", "values"), [
    ("log(1e-4, 1e-1, 4)", [1e-4, 1e-3, 1e-2, 1e-1]), ("lin(0, 1, 5)", [0, 0.25, 0.5, 0.75, 1]), ("log(0.5, 2, 1)", [0.5]),
    (["log(1, 100, 2)", 7], [1, 100, 7]), (1, [1.0]),
])  # fmt: skip
def test_ranges_of_numbers_have_no_rounding_dust(written, values):
    assert _numbers(runs(spec(train={"lr": written})), "lr") == values


def test_integer_options_take_integer_ranges():
    assert _numbers(runs(spec(train={"epochs": "1:4"})), "epochs") == [1, 2, 3]


def test_methods_have_options_labels_and_training_numbers_of_their_own():
    methods = [
        "fedavg",
        {"name": "ifca", "clusters": [2, 3], "train": {"lr": 0.5, "steps": 7}},
        {"name": "ifca", "label": "IFCA, batch", "estimate": "batch"},
    ]
    found = runs(spec(method=methods, train={"lr": 0.1, "epochs": 2}))
    assert [(r.label, r.train.lr, r.train.epochs, r.train.steps) for r in found] == [
        ("fedavg", 0.1, 2, None),
        ("ifca", 0.5, None, 7),
        ("ifca", 0.5, None, 7),
        ("IFCA, batch", 0.1, 2, None),
    ]


def test_defaults_reach_every_method_that_has_the_option():
    methods = ["fedavg", "ifca", {"name": "cfl_mgd", "clusters": 5}]
    found = runs(spec(method=methods, defaults={"clusters": 4, "mu": 0.3}))
    assert [run.options.clusters for run in found] == [1, 4, 5]


def test_an_option_beside_several_names_counts_for_those_that_have_it():
    found = runs(spec(method={"name": ["fedavg", "ifca"], "clusters": [2, 3]}))
    assert [(run.method, run.options.clusters) for run in found] == [
        ("fedavg", 1),
        ("ifca", 2),
        ("ifca", 3),
    ]
    found = runs(spec(data={"name": "mnist", "partition": ["iid", "dirichlet"], "alpha": [0.1, 1]}))
    assert [(run.data.partition, getattr(run.data.parts, "alpha", 0)) for run in found] == [
        ("iid", 0),
        ("dirichlet", 0.1),
        ("dirichlet", 1.0),
    ]


def test_data_and_model_may_be_lists_of_tables():
    data = [
        {"name": "mnist", "partition": "rotated", "groups": 3},
        "digits",
        {"name": "synthetic", "users": 5},
    ]
    found = runs(spec(data=data, model=["mclr", {"name": "mlp", "hidden": [5]}]))
    assert [(r.data.name, r.data.partition, r.model.name) for r in found] == [
        (name, partition, model)
        for name, partition in (("mnist", "rotated"), ("digits", "iid"), ("synthetic", "user"))
        for model in ("mclr", "mlp")
    ]


def test_include_is_the_grid_once_more_with_values_laid_over():
    table = spec(
        data={"name": "mnist", "partition": "rotated", "groups": 3},
        method=["fedavg", {"name": "ifca", "clusters": 3}],
        train={"lr": 0.03, "epochs": 20},
        include=[
            {
                "data": {"name": "synthetic"},
                "train": {"lr": 0.01},
                "method": {"ifca": {"clusters": 5}},
            },
            {"data": {"groups": 2}, "method": ["ifca"], "train.steps": 4},
        ],
    )
    assert [
        (r.data.name, r.data.partition, r.method, r.train.lr, r.train.epochs, r.train.steps)
        for r in runs(table)
    ] == [
        ("mnist", "rotated", "fedavg", 0.03, 20, None),
        ("mnist", "rotated", "ifca", 0.03, 20, None),
        ("synthetic", "user", "fedavg", 0.01, 20, None),
        ("synthetic", "user", "ifca", 0.01, 20, None),
        ("mnist", "rotated", "ifca", 0.03, None, 4),
    ]
    assert [r.options.clusters for r in runs(table)] == [1, 3, 1, 5, 3]


@pytest.mark.parametrize(("rule", "left"), [
    ({"method": "ifca"}, 4), ({"method": "ifca", "train.lr": 0.1}, 8), ({"method": {"ifca": {"clusters": 2}}}, 8),
    ({"method.clusters": [2, 3]}, 4), ({"method.ifca.clusters": "2:4", "seed": 0}, 8),
    ({"train": {"lr": [0.1, 0.2]}, "seeds": "0:1"}, 6), ({"train.momentum": 0, "method": ["fedavg", "none"]}, 8),
    ({"train.momentum": 0.9}, 12), ({"data.name": "digits", "data.partition": "iid", "seed": 1}, 6), ({"method.fedprox.mu": 1}, 12),
    ({"model": "mlp", "model.hidden": [200], "seed": 0}, 6), ({"train.optimizer.name": "sgd", "train.lr": 0.1}, 6),
])  # fmt: skip
def test_exclude_drops_what_a_rule_matches(rule, left):
    methods = ["fedavg", {"name": "ifca", "clusters": [2, 3]}]
    table = spec(method=methods, train={"lr": [0.1, 0.2]}, seeds="0:2", exclude=[rule])
    found = read(table)
    assert len(found.runs()) == left
    assert any("excludes nothing" in w for w in found.warnings) == (left == 12)


def test_a_combination_that_is_excluded_need_not_be_valid():
    table = spec(
        train={"optimizer": ["sgd", {"name": "adam", "b1": [0.8, 0.9]}], "momentum": [0, 0.9]}
    )
    table["exclude"] = {"train.optimizer.name": "adam", "train.momentum": 0.9}
    found = [(r.train.optimizer_pair[1].get("b1"), r.train.momentum) for r in runs(table)]
    assert found == [(None, 0), (None, 0.9), (0.8, 0), (0.9, 0)]


def test_equal_runs_are_merged_with_a_warning():
    found = read(spec(train={"lr": [0.1, 0.1, 0.2]}, method=["fedavg"]))
    assert _numbers(found.runs(), "lr") == [0.1, 0.2]
    assert "1 of 3 runs are the same" in found.warnings[0]


def test_one_participant_as_an_integer_is_asked_about():
    assert "one client; all of them is 1.0" in read(spec(train={"participation": 1})).warnings[0]
    assert not read(spec(train={"participation": 1.0})).warnings
    assert not read(spec(train={"participation": [2, 0.5]})).warnings


def test_varies_names_what_differs_and_nothing_else():
    methods = ["fedavg", {"name": "ifca", "average": "samples", "clusters": [2, 3]}]
    found = runs(spec(method=methods, train={"lr": [0.1, 0.2]}, seeds="0:2"))
    assert [run.varies for run in found[::2]] == [
        {"train.lr": 0.1},
        {"train.lr": 0.2},
        {"train.lr": 0.1, "method.clusters": 2},
        {"train.lr": 0.1, "method.clusters": 3},
        {"train.lr": 0.2, "method.clusters": 2},
        {"train.lr": 0.2, "method.clusters": 3},
    ]
    assert all(
        run.varies == {} for run in runs(spec(method=["fedavg", "ifca", "fedprox"], seeds="0:2"))
    )


def test_varies_shows_data_sets_by_name_and_values_that_are_left_out_as_none():
    found = runs(
        spec(
            data=[{"name": "mnist", "clients": 7}, {"name": "cifar10", "clients": 9}],
            train={"eval_clients": 5},
        )
    )
    assert [run.varies for run in found] == [{"data.name": "mnist"}, {"data.name": "cifar10"}]
    found = runs(spec(train=[{"epochs": 1}, {"steps": 3}]))
    assert [run.varies for run in found] == [
        {"train.epochs": 1, "train.steps": None},
        {"train.epochs": None, "train.steps": 3},
    ]


def test_runs_are_the_same_when_asked_twice():
    found = read(spec(seeds="0:3"))
    assert found.runs() == found.runs()
    assert found.runs() is not found.runs()


def test_the_default_spec_needs_only_data_and_a_method():
    (run,) = runs(BASE)
    assert (run.method, run.data.name, run.data.partition, run.model.name) == (
        "fedavg",
        "digits",
        "iid",
        "mlp",
    )
    assert (run.train.epochs, run.seed) == (1, 0)
