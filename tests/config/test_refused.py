"""`train.refused = "drop"`: methods run without the options of `train` that they refuse."""

import pytest

import cfljax
from cfljax.config.read import read_spec
from cfljax.errors import SpecError
from cfljax.report.notes import list_notes
from cfljax.report.report_data import read

SHARED = {
    "rounds": 1,
    "participation": 0.5,
    "momentum": 0.9,
    "dropout": 0.1,
    "clock": {"step_ms": 1.0, "deadline_s": 9.0},
    "compress": {"name": "topk", "keep": 0.5, "feedback": True},
}
DATA = {"name": "digits", "partition": "iid", "clients": 4, "samples_per_client": 10}


def spec(method, **train):
    return read_spec({"data": DATA, "model": "mclr", "method": method, "train": train})


def run_of(method, **train):
    (run,) = spec(method, **train).runs()
    return run


@pytest.mark.parametrize(
    "method, refused",
    [
        ("fedavg", {}),
        ("pfedme", {"momentum": None}),
        ("cfl_sattler", {"participation": None, "dropout": None, "clock": {"step_ms": 1.0}}),
    ],
)
def test_a_method_runs_as_if_the_spec_did_not_have_what_it_refuses(method, refused):
    by_hand = {
        key: refused.get(key, value)
        for key, value in SHARED.items()
        if refused.get(key, value) is not None
    }
    run = run_of(method, **SHARED, refused="drop")
    assert run.id == run_of(method, **by_hand).id
    left = {"train.clock.deadline_s" if name == "clock" else f"train.{name}" for name in refused}
    assert run.left_out.keys() == left
    if refused:
        with pytest.raises(SpecError, match=f"with method.{method}: .*leave it out"):
            spec(method, **SHARED)


def test_a_table_is_left_out_as_a_whole_or_in_part():
    part = run_of("fedrc", compress=SHARED["compress"], refused="drop")
    assert part.left_out == {"train.compress.feedback": True}
    assert part.id == run_of("fedrc", compress={"name": "topk", "keep": 0.5, "feedback": False}).id
    whole = run_of("feddyn", server={"name": "sgd", "lr": 1.0}, refused="drop")
    assert list(whole.left_out) == ["train.server"] and whole.id == run_of("feddyn").id


def test_each_is_told_before_the_runs():
    told = spec(["pfedme", "cfl_sattler"], **SHARED, refused="drop").warnings
    assert sorted(line.partition(":")[0] for line in told) == [
        "train.clock.deadline_s with method.cfl_sattler",
        "train.dropout with method.cfl_sattler",
        "train.momentum with method.pfedme",
        "train.participation with method.cfl_sattler",
    ]


def test_one_client_is_not_everybody():
    """1 is a number of clients, 1.0 a share of them."""
    with pytest.raises(SpecError, match=r"train.participation = 1 with method.cfl_sattler"):
        spec("cfl_sattler", rounds=1, participation=1)
    assert spec("cfl_sattler", rounds=1, participation=4).runs()


def test_the_record_and_the_notes_below_a_table_say_it(tmp_path):
    results = cfljax.sweep(
        {
            "data": DATA,
            "model": "mclr",
            "method": ["fedavg", "pfedme"],
            "train": {"rounds": 1, "momentum": 0.9, "refused": "drop"},
        },
        tmp_path,
    )
    left = {result.method: result.record.get("left_out") for result in results}
    assert left == {"fedavg": None, "pfedme": {"train.momentum": 0.9}}
    said = list_notes(read([tmp_path]).table, "*", "≈")
    assert "pFedMe: without train.momentum, which the method refuses" in said
