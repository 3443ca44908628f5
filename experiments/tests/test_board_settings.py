"""The settings of the board: what the seed draws, who can play them, their records."""

import collections
import json

import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment.assemble import host_federation
from cfljax.methods import METHODS
from experiments.board import play, settings, space
from experiments.board.__main__ import dry_run, main


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


NOT_PLAYED = {
    "gossip": "its clients have no server, and it came when the settings were being played",
}
"""Methods that the board leaves out, and why."""


def test_tier_one_has_every_method_and_the_papers_are_in_both():
    one, two = space.read_tiers().values()
    assert set(one["method"]) == set(METHODS) - set(NOT_PLAYED)
    assert set(two["method"]) <= set(one["method"])


@pytest.mark.parametrize("setting", settings.list_settings()[: space.NUMBER], ids=lambda s: s.name)
def test_the_data_of_each_seed_can_be_drawn(setting):
    search = read_spec(setting.make_search(["fedavg"]), tuned=True).search
    for seed in (*search.seeds, *setting.seeds):
        (run,) = read_spec(setting.make_run("fedavg", {"train.lr": 0.1}, seed)).runs()
        assert run.data.clients_that_train == int(host_federation(run).real.sum())


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
    (file,) = play.play([small], tmp_path / "out", tmp_path)
    (record,) = play.read_records(tmp_path)
    assert set(record["refused"]) == {"fedbn"}
    tuned = record["methods"]["fl_hc"]
    best = max(tuned["trials"], key=lambda trial: trial["val_accuracy"])
    assert len(tuned["trials"]) == 2 and tuned["chosen"]["train.lr"] == best["train.lr"]
    # What all trials had in common, too
    assert tuned["chosen"]["method.warmup_rounds"] == 1
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    kept = cfljax.load(tmp_path / "out" / "07" / "fl_hc")[record["runs"][1]["id"]]
    accuracy = kept.summary["accuracy_finetuned"]
    assert record["runs"][1]["accuracy"] == pytest.approx(accuracy, abs=1e-5)
    worst = kept.summary["accuracy_worst10_finetuned"]
    assert record["runs"][1]["worst_tenth"] == pytest.approx(worst, abs=1e-5)
    text = file.read_text("utf-8")
    # What has been played is not played again
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(play, "play_method")
        list(play.play([small], tmp_path / "out", tmp_path))
    assert file.read_text("utf-8") == text
    # What was killed before its part of the record was written goes on
    (tmp_path / "out" / "07" / "fl_hc" / play.PLAYED).unlink()
    list(play.play([small], tmp_path / "out", tmp_path))
    again = json.loads(file.read_text("utf-8"))
    assert again["runs"] == record["runs"] and again["methods"] == record["methods"]
    monkeypatch.setattr(play, "find_setting", lambda _: small)
    assert "fl_hc, seed 1" in play.check_cell(record["runs"][1]["id"], tmp_path)


def test_a_method_without_a_finite_trial_is_refused(small, tmp_path, monkeypatch):
    tune = cfljax.tune

    def find_nothing(*given, **more):
        tune(*given, **more)
        raise SpecError("there is nothing to compare")

    monkeypatch.setattr(cfljax, "tune", find_nothing, raising=False)
    fedavg = small._replace(methods={"fedavg": {}})
    with pytest.raises(SpecError, match="nothing to compare"):
        list(play.play([fedavg], tmp_path / "out", tmp_path))
    monkeypatch.setattr(play, "find_best", lambda *_: None)
    list(play.play([fedavg], tmp_path / "out", tmp_path))
    (record,) = play.read_records(tmp_path)
    assert record["refused"] == {"fedavg": "failed: no trial came to the end"}
    assert record["methods"]["fedavg"]["chosen"] is None and not record["runs"]


def test_the_settings_of_tier_one_share_programs_by_epochs():
    one = settings.find_settings(["one", "07"])
    assert [each.name for each in one] == [f"{i + 1:02}" for i in range(space.NUMBER)]
    assert len({str(each.spec["train"]["plan"]) for each in one}) == 1
    groups = play.group_by_programs(one)
    assert sorted(each.name for group in groups for each in group) == [each.name for each in one]
    epochs = [{each.spec["train"]["epochs"] for each in group} for group in groups]
    assert epochs == [{2}, {4}, {1}]


def test_the_price_is_said_before_anything_runs(small):
    measured = small._replace(methods={"fl_hc": {"max_clusters": "clients"}}, price=3.0)
    assert "about 3 processor seconds" in dry_run(measured)
    assert "nobody has measured" in dry_run(measured._replace(price=None))


def test_mistakes_are_answered_in_a_line(capsys):
    assert main(["play", "99", "--dry-run"]) == 2
    assert main(["check", "0123"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "99: is no setting" in said[0]
