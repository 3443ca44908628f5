"""Combinations that methods refuse are told all at once, a line for each."""

import pytest

from cfljax.commands import cli
from cfljax.config.read import read_spec
from cfljax.errors import MOST_LINES, SpecError, SpecErrors, join_errors

SPEC = {
    "method": [{"name": "ifca"}, {"name": "fedbcd"}, {"name": "pfedme"}],
    "data": {"name": "digits", "clients": 8},
    "train": {"rounds": 2, "momentum": 0.9, "server": {"name": "sgd", "lr": 1.0}},
}


def test_all_that_is_refused_is_told_with_what_to_do():
    with pytest.raises(SpecErrors) as error:
        read_spec(SPEC)
    lines = error.value.lines
    assert [line.partition(":")[0] for line in lines] == [
        "train.server with method.fedbcd",
        "train.momentum = 0.9 with method.pfedme",
    ]
    assert lines[1].endswith("with train = { momentum = 0.0 } in its table")
    assert str(error.value) == "\n".join(lines)


def test_what_a_line_advises_is_taken():
    methods = [
        {"name": "ifca", "train": {"server": {"name": "sgd", "lr": 1.0}}},
        {"name": "fedbcd"},
        {"name": "pfedme", "train": {"momentum": 0.0}},
    ]
    train = {"rounds": 2, "momentum": 0.9}
    assert len(read_spec(SPEC | {"method": methods, "train": train}).runs()) == 3


def test_a_combination_of_a_grid_is_told_once_and_one_mistake_is_a_plain_error():
    train = SPEC["train"] | {"momentum": 0.9, "lr": [0.1, 0.2, 0.3]}
    spec = SPEC | {"method": [{"name": "pfedme"}], "train": train, "seeds": "0:3"}
    with pytest.raises(SpecError, match="train.momentum = 0.9 with method.pfedme") as error:
        read_spec(spec)
    assert type(error.value) is SpecError and len(error.value.lines) == 1


def test_other_rules_than_a_method_s_are_told_with_it():
    stop = {"patience": 2, "metric": "val_accuracy"}
    with pytest.raises(SpecErrors) as error:
        read_spec(SPEC | {"train": SPEC["train"] | {"stop": stop}})
    assert len(error.value.lines) == 3 and "validation" in str(error.value)


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        ({"metric": "macro_f2"}, 'stop.metric = "macro_f2": unknown; did you mean "macro_f1"'),
        ({"metric": "macro_f1"}, "say which values are better"),
        ({"metric": "val_loss", "better": "higher"}, 'stop.better = "higher": is for a metric'),
        ({"metric": "macro_f1", "better": "up"}, 'stop.better = "up"'),
        ({"metric": "macro_f1", "better": "higher"}, "needs validation samples"),
        ({"metric": "macro_f1", "better": "higher"}, None),
    ],
)
def test_early_stopping_by_a_metric_of_train_metrics(stop, says):
    train = SPEC["train"] | {"metrics": ["macro_f1"], "stop": stop}
    if says is None:
        data = SPEC["data"] | {"validation": 0.2}
        (run,) = read_spec(
            SPEC | {"data": data, "train": train, "method": "fedavg", "seeds": [0]}
        ).runs()
        assert (run.train.stop.own, run.train.stop.better) == ("macro_f1", "higher")
    else:
        with pytest.raises(SpecError, match=says):
            read_spec(SPEC | {"train": train, "method": "fedavg"})


def test_commands_print_each_line_with_the_file(tmp_path, capsys):
    flags = ["method=ifca,fedbcd,pfedme", "data.clients=8", "train.rounds=2"]
    flags += ["train.momentum=0.9", 'train.server={ name = "sgd", lr = 1.0 }']
    spec = tmp_path / "spec.toml"
    spec.write_text('data = { name = "digits" }\n')
    words = [word for flag in flags for word in ("--set", flag)]
    assert cli.main(["sweep", str(spec), "--dry-run", *words]) == 2
    server, momentum = capsys.readouterr().err.splitlines()
    assert server.startswith("cfljax: --set train.server with method.fedbcd")
    assert momentum.startswith("cfljax: --set train.momentum = 0.9 with method.pfedme")


def test_thousands_of_lines_are_cut():
    error = join_errors(f"line {i}" for i in range(MOST_LINES + 5))
    assert len(error.lines) == MOST_LINES + 1 and error.lines[-1] == "… and 5 more"
    assert len(join_errors(f"line {i}" for i in range(MOST_LINES)).lines) == MOST_LINES
    assert str(join_errors(["same", "same"])) == "same"
