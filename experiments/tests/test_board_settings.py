"""The settings of the board: what the seed draws, who can play them, their records."""

import collections

import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.experiment.assemble import host_federation
from cfljax.methods import METHODS
from experiments.board import play, settings, space
from experiments.board.__main__ import main


def test_the_settings_are_what_the_seed_draws():
    assert space.SETTINGS.read_text(encoding="utf-8") == space.write_settings(space.draw_settings())


def test_kinds_and_data_sets_are_dealt_evenly():
    by_tier = collections.defaultdict(list)
    for setting in space.read_settings():
        by_tier[setting["tier"]].append(setting)
    for each in by_tier.values():
        kinds = collections.Counter(setting["kind"] for setting in each)
        assert sum(kinds.values()) == 32 and set(kinds) == set(space.KINDS)
        assert max(kinds.values()) - min(kinds.values()) <= 1
    sets = collections.Counter(setting["data"]["name"] for setting in by_tier["two"])
    assert set(sets) == set(space.DATA_SETS) and max(sets.values()) <= 12


def test_tier_one_has_every_method_and_the_papers_are_in_both():
    one, two = space.read_tiers().values()
    assert set(one["method"]) == set(METHODS)
    assert set(two["method"]) <= set(one["method"])


@pytest.mark.parametrize("setting", settings.list_settings()[: space.NUMBER], ids=lambda s: s.name)
def test_the_data_of_each_seed_can_be_drawn(setting):
    search = read_spec(setting.make_search(["fedavg"]), tuned=True).search
    for seed in (*search.seeds, *setting.seeds):
        (run,) = read_spec(setting.make_run("fedavg", {"train.lr": 0.1}, seed)).runs()
        assert run.data.clients_that_train == host_federation(run).clients


@pytest.fixture(scope="module")
def small():
    spec = {
        "name": "small",
        "data": {"name": "blobs", "samples": 200, "partition": "label_swap", "groups": 2},
        "model": {"name": "mlp", "hidden": [4]},
        "train": {"rounds": 2, "lr": 0.1, "finetune_steps": 3},
    }
    spec["data"] |= {"clients": 4, "validation": 0.2, "seed": "run"}
    methods = {"fl_hc": {"max_clusters": "clients"}, "fedbn": {}}
    return settings.Setting("07", "one", "swapped labels", spec, methods, 2, [0, 1])


def test_a_setting_is_played_recorded_and_run_again(small, tmp_path, monkeypatch):
    file = play.play(small, tmp_path / "out", tmp_path)
    (record,) = play.read_records(tmp_path)
    assert set(record["refused"]) == {"fedbn"}
    tuned = record["methods"]["fl_hc"]
    best = max(tuned["trials"], key=lambda trial: trial["val_accuracy"])
    assert len(tuned["trials"]) == 2 and tuned["chosen"]["train.lr"] == best["train.lr"]
    # What all trials had in common, too
    assert tuned["chosen"]["method.warmup_rounds"] == 1
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    kept = cfljax.load(tmp_path / "out" / "07")[record["runs"][1]["id"]]
    accuracy = kept.summary["accuracy_finetuned"]
    assert record["runs"][1]["accuracy"] == pytest.approx(accuracy, abs=1e-5)
    worst = kept.summary["accuracy_worst10_finetuned"]
    assert record["runs"][1]["worst_tenth"] == pytest.approx(worst, abs=1e-5)
    lines = [line for line in file.read_text("utf-8").splitlines() if "_seconds" not in line]
    play.play(small, tmp_path / "out", tmp_path)
    assert lines == [
        line for line in file.read_text("utf-8").splitlines() if "_seconds" not in line
    ]
    monkeypatch.setattr(play, "find_setting", lambda _: small)
    assert "fl_hc, seed 1" in play.check_cell(record["runs"][1]["id"], tmp_path)


def test_mistakes_are_answered_in_a_line(capsys):
    assert main(["play", "99", "--dry-run"]) == 2
    assert main(["check", "0123"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "99: is no setting" in said[0]
